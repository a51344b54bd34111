"""Names whose values are likely secrets: options, variables, headers, query parameters, keys of a configuration.

A name is taken apart into words, so that `api_key`, `--apiKey` and `X-Api-Key` are one thing, and `monkey`, `tokenizer`
and `keyboard` hold no key and no token.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Secrecy(IntEnum):
    """How sure a name makes us that its value is a secret."""

    NONE = 0
    LIKELY = 1
    """`key`, `token`, `session`: also words of machine learning, so the value has a say."""
    CERTAIN = 2


MOST_LETTERS = 200
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_CERTAIN_PARTS = re.compile(
    r"""secret(?!ar) | passw(?:or)?d | passwort | passphrase | passcode | credential | contrasena | authorization
      | api\ ?keys?(?![a-z]) | (?:seed|recovery|backup)\ ?phrase | pin\ ?code
      | connection\ ?string | conn\ ?str(?![a-z]) | shared\ ?access\ ?sig
      | (?<![a-z])(?:access|account|auth|client|crypt|encryption|license|master|priv|private|service|shared|signing|ssh
          |storage|subscription)\ ?keys?(?![a-z])
      | (?<![a-z])(?:access|api|auth|bearer|bot|csrf|hub|identity|oauth|personal|refresh|security|session|xsrf)
          \ ?tokens?(?![a-z])""",
    re.VERBOSE,
)
"""Searched in the words of a name, in lower case with blanks between them."""

_CERTAIN_WORDS = words(
    "pwd pw psw pswd passwd pat jwt bearer cred creds cookie cookies otp totp psk dsn apikey apitoken htpasswd "
    "netrc mnemonic privkey webhook hmac sas csrf xsrf pgpass"
)
_LIKELY_WORDS = words(
    "token tokens key keys pass auth session sessionid jsessionid phpsessid sid sig signature oauth mfa"
)

_HARMLESS_BESIDE = {
    "token": words(
        "accuracy added aggregation audio begin bos budget bucket class classification cls count dim drop dropout emb "
        "embed embedding embeddings end eos eval extra first generated id ids image img index input label last layer "
        "len length level limit loss mask masked masking max mean merging min mixer mixing mixup n new next num "
        "number output pad padding patch per pool pooling position prefix prev prob prompt prune pruning rate ratio "
        "reduction register sep shift size special start stop suffix text total type types unk unknown video virtual "
        "vision visual vocab weight weights word"
    ),
    "mfa": words("beam dim align"),
    "key": words(
        "attention attn batch best bias cache cols column columns data dataset depth dict dim dims error event feature "
        "features field file foreign frame frames group groups head heads hidden id ids image images index input item "
        "json label labels layer length log lookup mapping mask memory metric missing model monitor n name names norm "
        "num optimizer order output pad padding param parameter partition path per point points position prefix "
        "primary prng proj projection query rng row sample sort split state states step steps strict strip suffix "
        "target task text type unexpected unique val value values weight width"
    ),
    "pass": words(
        "all at backward backwards band bypass count eval filter first forward high k low multi n num one per rate "
        "second single through train two validation"
    ),
    "session": words("based count duration index length level n num number rec steps time timeout"),
    "sig": words("dim fig level test"),
    "signature": words("column dim kernel loss method model path transform type"),
    "sas": words("rec model block"),
    "pat": words("dir len length file filename glob image img name path regex"),
    "pw": words("conv dim layer loss prefix prefixes"),
    "auth": words("method mode type use user"),
    "cookie": words("cutter"),
    "bearer": words("angle direction"),
    "hmac": words("algorithm"),
}
"""Words that make another one a word of machine learning: `num_tokens`, `key_dim`, `forward_pass`."""

_CERTAIN_BESIDE = words(
    "access account admin aes anthropic api app auth aws azure bearer bot clearml client comet consumer crypt csrf "
    "database databricks db deploy discord docker encryption fernet gcp gh git github gitlab google gpg hf hub "
    "huggingface hugging identity ingest jwt kaggle ldap license licence master mlflow neptune ngc npm oauth openai "
    "org personal pgp private publish push pypi refresh registry replicate root rsa secret security service session "
    "shared signing slack smtp ssh stripe subscription telegram wandb webhook write xsrf"
)
"""Words that make a key or token a secret, whatever its value looks like."""

_NO_VALUE = words("error exception file filename path dir folder dataset")
"""Last words of names whose values are no secrets themselves, but say where one is: `--token-file`."""

_NO_SECRET = words(
    "monkey turkey donkey hockey jockey whiskey hotkey keykey passkey lackey mickey flunkey smokey tokey"
)


@lru_cache(maxsize=4096)
def secrecy_of(name: str) -> Secrecy:
    """How likely a value of that name is a secret."""
    parts = [word.lower() for word in _WORD.findall(name[-MOST_LETTERS:])]
    if _is_number_of_tokens(parts) or (parts and parts[-1] in _NO_VALUE and "webhook" not in parts):
        return Secrecy.NONE
    if _CERTAIN_PARTS.search(" ".join(parts)) or parts[-2:] == ["id", "token"]:
        return Secrecy.CERTAIN
    return max((_secrecy_of_word(word, parts) for word in set(parts)), default=Secrecy.NONE)


def _secrecy_of_word(word: str, parts: list[str]) -> Secrecy:
    stem = _stem(word)
    others = {each for each in parts if _stem(each) != stem}
    if stem in _CERTAIN_WORDS or word in _CERTAIN_WORDS:
        return Secrecy.NONE if others & _HARMLESS_BESIDE.get(stem, frozenset()) else Secrecy.CERTAIN
    if word.endswith("pass") and any(word == f"{each}pass" for each in _CERTAIN_BESIDE):
        return Secrecy.CERTAIN
    if word not in _LIKELY_WORDS and stem not in ("key", "token"):
        return Secrecy.NONE
    if others & _CERTAIN_BESIDE:
        return Secrecy.CERTAIN
    if others & _HARMLESS_BESIDE.get(stem, frozenset()):
        return Secrecy.NONE
    if word in ("tokens", "keys"):
        return Secrecy.NONE
    # wandbkey, hftoken, dbpass: run together with a word before
    run_together = word not in _LIKELY_WORDS and any(word.startswith(each) for each in _CERTAIN_BESIDE)
    return Secrecy.CERTAIN if run_together else Secrecy.LIKELY


def _stem(word: str) -> str:
    if word in _NO_SECRET:
        return word
    for ending in ("token", "key", "pwd"):
        if word.endswith((ending, ending + "s")):
            return ending
    return word


def _is_number_of_tokens(parts: list[str]) -> bool:
    return "tokens" in parts and bool({"max", "min", "num", "n", "per", "total", "new", "count"} & set(parts))
