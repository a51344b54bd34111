"""The one place where secrets are taken out of what torchdoctor writes. One value too many rather than one too few.

Whoever writes to a run folder or a report goes through `store/documents.py` or `report/`, and those through `scrub` and
`scrub_text`: no caller has to remember it. A text is looked at only by the patterns of which it holds a fixed part, and
every pattern starts only where a word starts, so that the time they take grows with the text and not with its square.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from torchdoctor.scrubbing.forms import KNOWN_FORMS
from torchdoctor.scrubbing.names import Secrecy, secrecy_of, words
from torchdoctor.scrubbing.urls import HIDDEN, scrub_urls

__all__ = ["HIDDEN", "may_hold_secret", "scrub", "scrub_argv", "scrub_text"]

_NAME = re.compile(
    r"""(?<![\w.$-])(?P<lead>-{0,2})(?P<name>[A-Za-z_][\w.\-]*)
        (?P<between>\\{0,8}["']?\]?[^\S\n]*
            (?: :[^\S\n]*(?:[A-Za-z_][\w.\[\]|]*[^\S\n]*(?:\|[^\S\n]*\w+[^\S\n]*)*)=[^\S\n]*   # annotated
              | (?:[:!=]?=>?|:(?!:)|=>)[^\S\n]*(?:[|>][-+]?[^\S\n]*)?
            ))""",
    re.VERBOSE,
)
"""name = , name: , "name": , name: str = , name == , each before a value."""

_VALUE = re.compile(
    r"""[bfrBFR]{0,2}(?P<quote>\\{0,8}(?:\'\'\'|\"\"\"|["'`]))(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\]|\\)){0,4000})(?:(?P=quote)|$)
      | (?P<open>[\[({])(?P<listed>[^\[\](){}\n]{0,4000}["'][^\[\](){}\n]{0,4000})(?=[\])}])
      | (?P<bare>[^\s"'`,;(){}\[\]<>][^\s"'`,;){}\]]{0,4000})""",
    re.VERBOSE | re.MULTILINE,
)
"""A quoted text, a list of such, or what goes on to the next blank."""

_PAIR = re.compile(
    r"""(?P<q>\\{0,8}["'])(?P<name>-{0,2}[A-Za-z_][\w.\-]*:?)(?P=q)(?P<between>[^\S\n]*,[^\S\n]*(?:default[^\S\n]*=[^\S\n]*)?
        (?:[\w]+[^\S\n]*=[^\S\n]*[\w"']+[^\S\n]*,[^\S\n]*){0,3}?(?:default[^\S\n]*=[^\S\n]*)?)
        (?P<quote>\\{0,8}["'])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\]))*)(?P=quote)""",
    re.VERBOSE,
)
"""("name", "value"), and ("--name", type=str, default="value")."""

_OPTION = re.compile(
    r"""(?<![\w-])(?P<name>--?[A-Za-z][\w.\-]*)(?P<between>[^\S\n]+)(?:(?P<quote>["'])(?P<quoted>[^"'\n]*)(?P=quote)
        |(?P<bare>[^\s"'`,;]+))""",
    re.VERBOSE,
)
"""--name value inside a text."""

_NEXT_LINE = re.compile(
    r"""(?P<head>(?<![\w.-])["']?(?P<name>[A-Za-z_][\w.\-]*)["']?[^\S\n]*[:=][^\S\n]*(?:[|>][-+]?|[(\\])?[^\S\n]*\n
        [+\- ]?[^\S\n]*)(?P<quote>["']?)(?P<value>[^\s"':=]+)(?P=quote)(?=[,)]?[^\S\n]*(?:\n|\Z))""",
    re.VERBOSE,
)
_NAMED_VALUE = re.compile(
    r"""(?P<head>\b(?:name|key)["']?[^\S\n]*[:=][^\S\n]*["']?(?P<name>[A-Za-z_][\w.\-]*)["']?[\s,+\-]{1,40}
        ["']?(?:value|content)["']?[^\S\n]*[:=][^\S\n]*)(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,}"']+)""",
    re.VERBOSE,
)
"""name: API_KEY, value: x, as in the files of Kubernetes."""
_SHELL = re.compile(
    r"(?P<head>(?:^|(?<=[\s;&+-]))(?:ENV|ARG|setenv|setx|set -[gUx]+)[^\S\n]+(?P<name>[A-Za-z_]\w*)[^\S\n]+)"
    r"(?P<value>\S+)",
    re.MULTILINE,
)
"""ENV NAME value of a Dockerfile, setenv of csh, set -x of fish."""
_ELEMENT = re.compile(r"(?P<head><(?P<name>[A-Za-z_][\w.-]*)(?:\s[^<>\n]*)?>)(?P<value>[^<>\n]+)(?=</)")
_HEADER = re.compile(
    r"""(?P<head>(?<![\w-])(?:proxy-)?(?:authorization|(?:set-)?cookie)
        (?:\\{0,8}["']?[^\S\n]*[:=][^\S\n]*\\{0,8}["']?|\\{0,8}["'][^\S\n]*,[^\S\n]*\\{0,8}["']))
        (?P<value>(?!None\b|str\b|\()[^"'`\n\\]+)""",
    re.VERBOSE | re.IGNORECASE,
)
_BEARER = re.compile(
    r"""(?<![\w-])(?P<head>(?:bearer|basic|negotiate|apikey|api-key|token|jwt)[^\S\n]+\\{0,8}["']?)
        (?P<value>[\w.~+/=:$%*-]{4,})""",
    re.VERBOSE | re.IGNORECASE,
)
_NETRC = re.compile(
    r"""(?P<head>(?:^[+\- ]?[^\S\n]*|\blogin[^\S\n]+\S+\s+[+\-]?[^\S\n]*|\b(?:machine|default)[^\S\n][^\n]{0,300}?)
        \b(?:password|passwd|account)[^\S\n]+)(?P<value>\S+)(?=[^\S\n]*(?:$|account|macdef))""",
    re.VERBOSE | re.MULTILINE,
)
_LOGIN_COMMAND = re.compile(
    r"(?P<head>\b(?:wandb|huggingface-cli|hf|comet|docker|npm|neptune|kaggle)\s+(?:auth\s+)?login\s+(?:--?[\w-]+\s+)*)"
    r"(?P<value>[\w.-]{20,})"
)
"""`wandb login KEY`: a key of W&B is 40 hexadecimal digits like a commit, so only the command tells."""
_SENTENCE = re.compile(
    r"""(?P<head>(?<![\w-])(?:(?:api|access|auth|secret|private)\ (?:key|token)
          | \w*(?:key|token|passcode|passphrase|passw(?:or)?d|secret|pwd))["']?
          (?:\ (?:is|was|provided|given|used|of))?[:\ ]\ ?["'`]?)
        (?P<value>[\w+=~-]{12,})(?=["'`.,;)]?(?:\s|$))""",
    re.VERBOSE | re.IGNORECASE,
)
"""the api key x; AUTH_TOKEN x."""
_PASSWORD_OPTION = re.compile(
    r"(?P<head>\b(?:mysql\w*|mariadb|sshpass|redis-cli|mongo\w*|(?:docker|podman|helm registry|az|oc)\s+login)\b"
    r"[^\n|;]{0,300}?\s-(?:pw|p|P|a)\s*[\"']?)(?P<value>(?![\s\"'-])[^\s\"']+)"
)
"""Programs that take a password after -p."""
_LOGIN_CALL = re.compile(
    r"""(?P<head>\b(?:auth[^\S\n]*=[^\S\n]*\(|\w*Auth\(|login\(|jwt\.(?:en|de)code\()
          [^\S\n]*[^\s,()]{1,100},[^\S\n]*b?(?P<quote>["']))
        (?P<value>[^"'\n]+)(?=(?P=quote))""",
    re.VERBOSE,
)
"""auth=("user", "x"), login("user", "x")."""
_CLIENT_CALL = re.compile(
    r"""(?P<head>\b(?:Fernet|Experiment|OpenAI|Anthropic|HfApi|InferenceClient|\w*Client|Github|Gitlab|Bot|login)\(
        [^\S\n]*b?(?P<quote>["']))(?P<value>[\w.+/=-]{12,})(?=(?P=quote))""",
    re.VERBOSE,
)
"""Experiment("x"), as clients take a key for their first argument."""
_CURL_USER = re.compile(r"(?P<head>(?<![\w-])(?:-u|--user|--proxy-user)[\s=\"',]+[\w.@+-]*:)(?P<value>[^\s\"']+)")

_PLAIN_WORDS = re.compile(
    r"""[<\[(]?[A-Za-z][a-z]*(?:[\ _./:|-]*[a-z]+)*[>\])]? | [A-Z]+(?:_[A-Z]+)* | (?:[A-Z][a-z]+)+ | <\|?\w+\|?>
      | \[\w+\] | _\w*[A-Za-z]_*""",
    re.VERBOSE,
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"_*[A-Za-z]+\d{0,2}(?:_+[A-Za-z]+\d{0,2})*_*")
"""An identifier as people write it; not Zq7Vx9Lw."""
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]{0,6}(?:\.\d{0,6})?|\d(?:\.\d{1,4})?e[-+]?\d{1,2})%?")
_NOTHING = words(
    "none null true false nil undefined yes no str int bytes bool float any optional object string bytesio secretstr "
    "tensor ... *** self type lambda not await yield sorted"
)
_REFERENCE = re.compile(r"\$\{?[\w.:-]+\}?|\{\{.*|%\(?\w*\)?s?|\$\(.*|<[\w -]+>|\{[\w.!:]*\}?")
"""A value that only says where another one is: $VARIABLE, ${{ secrets.X }}, <your key>."""
_STOP_WORDS = words(
    "a an and are as at be by can cannot for from has if in into is it may must not of on or that the this to was were "
    "when which will with without"
)


def scrub(value: Any, names: bool = True) -> Any:
    """The same data without secrets in texts and, with `names`, under keys of mappings that name secrets."""
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, Mapping):
        return {
            scrub_text(k) if isinstance(k, str) else k: _scrub_named(k, v) if names else scrub(v, False)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        is_argv = all(isinstance(each, str) for each in value) and any(each.startswith("-") for each in value)
        return scrub_argv(value) if is_argv else [scrub(each, names) for each in value]
    return scrub_text(str(value)) if isinstance(value, PurePath) else value


def scrub_argv(argv: Sequence[str]) -> list[str]:
    """The command line without the values of options that are secrets by their name, and without secrets in words."""
    clean: list[str] = []
    hides = _hides_nothing
    for argument in map(str, argv):
        hidden, hides = hides(argument), _hides_nothing
        if hidden:
            clean.append(HIDDEN)
            continue
        name, equals, value = argument.partition("=")
        secrecy = secrecy_of(name) if _is_option(name) else Secrecy.NONE
        if equals and secrecy and not _is_clearly_none(value, secrecy):
            clean.append(f"{name}={HIDDEN}" if value else argument)
            continue
        clean.append(_short_option(scrub_text(argument)))
        if not equals:
            hides = _what_follows(argument, secrecy)
    return clean


def scrub_text(text: str) -> str:
    """Text without logins in URLs, keys of known services, and values assigned to names of secrets."""
    if len(text) < 4:
        return text
    folded = text.casefold()
    for hints, clean in _STAGES:
        if any(hint in folded for hint in hints):
            text = clean(text)
    return text


def may_hold_secret(text: str) -> bool:
    """Whether a text holds a part of which every secret that we know has one."""
    folded = text.casefold()
    return any(hint in folded for hints, _ in _STAGES[1:] for hint in hints) or KNOWN_FORMS.search(text) is not None


def _is_option(name: str) -> bool:
    return re.fullmatch(r"[-+~]*[\w.\-/:]+", name) is not None


def _hides_nothing(_: str) -> bool:
    return False


def _what_follows(argument: str, secrecy: Secrecy) -> Callable[[str], bool]:
    """Whether the word after this one is its secret."""
    if argument.casefold() in ("bearer", "basic"):
        return lambda word: True
    if argument.endswith(":") and secrecy_of(argument):  # a header, its name and value in two words
        return lambda word: word.casefold() not in ("bearer", "basic")
    if secrecy and argument.startswith("-"):
        return lambda word: not _is_option_word(word) and not _is_clearly_none(word, secrecy)
    if argument in ("-p", "-P"):
        return lambda word: not word.startswith("-") and not _is_harmless_of_p(word)
    if argument in ("-u", "-U", "--user", "--login", "--userpwd", "--proxy-user"):
        return lambda word: ":" in word
    if argument in ("-t", "-k", "-s", "-a"):
        return _looks_random
    return _hides_nothing


def _is_option_word(word: str) -> bool:
    """--verbose after --token is the next option; --X7f is a password that begins with dashes."""
    return re.fullmatch(r"--[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*(?:=.*)?|-[a-zA-Z]", word, re.DOTALL) is not None


def _is_harmless_of_p(word: str) -> bool:
    """-p is also a port, a probability, a path or a project."""
    return bool(
        _NUMBER.fullmatch(word) or re.fullmatch(r"[./~][\w./-]*|[\w-]+\.(?:py|ya?ml|json|toml|ini|cfg|pt)", word)
    )


def _short_option(argument: str) -> str:
    """-pS3cret, as mysql takes it."""
    attached = re.fullmatch(r"-p(?=[^=]*\d)(?=[^=]*[A-Za-z!@#$%^&*])[^=]{4,}", argument)
    return f"-p{HIDDEN}" if attached else argument


def _looks_random(word: str) -> bool:
    return len(word) >= 16 and bool(re.search(r"\d", word)) and bool(re.search(r"[A-Za-z]", word)) and "/" not in word


def _is_clearly_none(value: str, secrecy: Secrecy) -> bool:
    if value.casefold() in ("true", "false", "none", "null") or _REFERENCE.fullmatch(value):
        return True
    return secrecy is Secrecy.LIKELY and _NUMBER.fullmatch(value) is not None


def _scrub_named(name: Any, value: Any) -> Any:
    """A value of a mapping. A name that is a path (of a file, of a module) names no secret."""
    secrecy = secrecy_of(name) if isinstance(name, str) and "/" not in name else Secrecy.NONE
    if secrecy is Secrecy.NONE or (isinstance(name, str) and name.endswith(".py")):
        return scrub(value)
    if isinstance(value, str):
        return HIDDEN if value and not _is_harmless_value(value, secrecy) else value
    if isinstance(value, list | tuple):
        return [_scrub_named(name, each) for each in value]
    if isinstance(value, Mapping):
        return {key: _scrub_named(name if secrecy is Secrecy.CERTAIN else key, each) for key, each in value.items()}
    if secrecy is Secrecy.CERTAIN and type(value) is int and abs(value) > 999:
        return HIDDEN
    return scrub(value)


def _is_harmless_value(value: str, secrecy: Secrecy) -> bool:
    if value.strip().casefold() in _NOTHING or _REFERENCE.fullmatch(value):
        return True
    if secrecy is Secrecy.CERTAIN:
        return False
    if len(value) < 4 or _NUMBER.fullmatch(value) or re.search(r"[\s{]", value):
        return True  # tokens hold no blanks; what does is a sentence or a template
    return len(value) < 40 and _PLAIN_WORDS.fullmatch(value) is not None


def _hide_assigned(text: str) -> str:
    """A value whose name says nothing is searched, too: a text may hold a whole configuration."""
    pieces, done, at = [], 0, 0
    while (named := _NAME.search(text, at)) is not None:
        at = named.end()
        secrecy = _secrecy_in_text(named["name"])
        value = _VALUE.match(text, at) if secrecy is not Secrecy.NONE else None
        if value is None:
            at = named.end("name")  # what follows may be a name itself: /p:Password=x
            continue
        group = "quoted" if value["quote"] else "listed" if value["open"] else "bare"
        if not value[group] or _is_harmless_here(named, value, group, secrecy):
            continue
        pieces += [text[done : value.start(group)], HIDDEN]
        done = at = value.end(group)
    return "".join([*pieces, text[done:]])


def _secrecy_in_text(name: str) -> Secrecy:
    """Of a dotted name in a program, session.step, the last part counts, unless there is no doubt."""
    whole = secrecy_of(name)
    return whole if whole is Secrecy.CERTAIN or "." not in name else secrecy_of(name.rpartition(".")[2])


def _is_harmless_here(named: re.Match[str], value: re.Match[str], group: str, secrecy: Secrecy) -> bool:
    if group == "bare":
        return _is_code(named, value, secrecy)
    if group == "listed":
        return secrecy is not Secrecy.CERTAIN or value[group].strip("\"' ") == HIDDEN
    return _is_harmless_value(value[group], secrecy)


def _is_code(named: re.Match[str], match: re.Match[str], secrecy: Secrecy) -> bool:
    """A bare value that gives nothing away: nothing, a name in the program (token = self.token), a call."""
    text, value = match.string, match["bare"]
    following = text[match.end() : match.end() + 1]
    if value.casefold() in _NOTHING or value.startswith(HIDDEN) or _REFERENCE.fullmatch(value):
        return True
    if not re.search(r"\w", value):
        return True
    if value == named["name"] or re.match(r"[A-Za-z_][\w.]*[(\[]", value):
        return True
    if following and following in "([" and _IDENTIFIER.match(value):
        return True
    if _PATH.fullmatch(value):
        return not re.search(r"\d", value)
    if secrecy is Secrecy.CERTAIN:
        return False
    if _NUMBER.fullmatch(value) or len(value) < 4:
        return True
    if len(value) >= 40 or not _VARIABLE.fullmatch(value):
        return False
    before = text[: named.start()].rpartition("\n")[2]
    is_argument = before.rstrip().endswith(("(", ",")) or (not before.strip("+- \t") and following == ",")
    is_annotation = ":" in named["between"] and _PLAIN_WORDS.fullmatch(value) is not None
    return is_argument or is_annotation or (named["between"][-1:].isspace() and ":" not in named["between"])


def _hide_pair(match: re.Match[str]) -> str:
    name = match["name"]
    secrecy, value = secrecy_of(name), match["quoted"]
    if secrecy is Secrecy.NONE or not value or _is_option_word(value) or _is_harmless_value(value, secrecy):
        return match[0]
    return f"{match['q']}{name}{match['q']}{match['between']}{match['quote']}{HIDDEN}{match['quote']}"


def _hide_option(match: re.Match[str]) -> str:
    name = match["name"]
    secrecy, value = secrecy_of(name), match["quoted"] if match["quote"] else match["bare"]
    if secrecy is Secrecy.NONE or not value or _is_option_word(value) or _is_clearly_none(value, secrecy):
        return match[0]
    if not match["quote"] and (value.casefold().strip(".:") in _STOP_WORDS or value.startswith(("=", ":", "|"))):
        return match[0]
    if secrecy is Secrecy.LIKELY and not match["quote"] and _PLAIN_WORDS.fullmatch(value):
        return match[0]
    quote = match["quote"] or ""
    return f"{name}{match['between']}{quote}{HIDDEN}{quote}"


def _hide_if_named(match: re.Match[str]) -> str:
    """`head`, `name` and `value`; only names that leave no doubt."""
    value = match["value"].strip("\"'")
    if secrecy_of(match["name"]) is not Secrecy.CERTAIN or _is_harmless_value(value, Secrecy.CERTAIN):
        return match[0]
    return match[0].replace(match["value"], HIDDEN) if len(value) > 3 else f"{match['head']}{HIDDEN}"


def _hide_next_line(match: re.Match[str]) -> str:
    if secrecy_of(match["name"]) is not Secrecy.CERTAIN or _is_harmless_value(match["value"], Secrecy.CERTAIN):
        return match[0]
    if not match["quote"] and ("(" in match["value"] or _PATH.fullmatch(match["value"]) or match["value"] == "pass"):
        return match[0]
    return f"{match['head']}{match['quote']}{HIDDEN}{match['quote']}"


def _hide_value(match: re.Match[str]) -> str:
    return f"{match['head']}{HIDDEN}"


def _hide_random(match: re.Match[str]) -> str:
    """Where the place alone leaves doubts, so that words and names of classes stay."""
    value = match["value"]
    return _hide_value(match) if re.search(r"\d", value) and not _VARIABLE.fullmatch(value) else match[0]


def _hide_header(match: re.Match[str]) -> str:
    value = match["value"].strip()
    if not value or value.casefold() in _NOTHING or _PATH.fullmatch(value) or _REFERENCE.fullmatch(value):
        return match[0]
    return _hide_value(match)


def _hide_bearer(match: re.Match[str]) -> str:
    """After bearer and the like, unless the sentence goes on there."""
    value, scheme = match["value"], match["head"].split()[0].casefold()
    if value.startswith(HIDDEN) or _REFERENCE.fullmatch(value):
        return match[0]
    is_word = re.fullmatch(r"[A-Za-z]?[a-z]+[.:]?", value) is not None and len(value) < 16
    if is_word or (scheme in ("basic", "token", "jwt", "negotiate") and not _looks_random(value)):
        return match[0]
    return _hide_value(match)


_NAMES = ("key", "token", "pass", "pw", "pat", "jwt", "secret", "auth", "cook", "session", "sid", "sig", "cred", "dsn")
_NAMES += ("bearer", "otp", "psk", "sas", "hmac", "mnemonic", "webhook", "contrase", "netrc", "connection", "connstr")
"""A part of every name that secrecy_of knows, so that most texts are done with at once."""

_SPOKEN = ("key", "token", "passcode", "passphrase", "password", "passwd", "secret", "pwd")
_CLIENTS = (
    "fernet(",
    "experiment(",
    "openai(",
    "anthropic(",
    "hfapi(",
    "client(",
    "github(",
    "gitlab(",
    "bot(",
    "login(",
)

_STAGES: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (("",), lambda text: KNOWN_FORMS.sub(HIDDEN, text)),
    (("://", "@", "?", "&", "/hook", "hooks", "#"), scrub_urls),
    (("authorization", "cookie"), lambda text: _HEADER.sub(_hide_header, text)),
    (
        ("bearer", "basic", "negotiate", "apikey", "api-key", "token", "jwt"),
        lambda text: _BEARER.sub(_hide_bearer, text),
    ),
    (_NAMES, lambda text: _hide_by_name(text)),
    (("password", "passwd"), lambda text: _NETRC.sub(_hide_value, text)),
    (_SPOKEN, lambda text: _SENTENCE.sub(_hide_random, text)),
    (("login",), lambda text: _LOGIN_COMMAND.sub(_hide_value, text)),
    (("mysql", "maria", "sshpass", "redis", "mongo", "login"), lambda text: _PASSWORD_OPTION.sub(_hide_value, text)),
    (("auth", "login", "jwt"), lambda text: _LOGIN_CALL.sub(_hide_value, text)),
    (_CLIENTS, lambda text: _CLIENT_CALL.sub(_hide_random, text)),
    (("-u", "-user"), lambda text: _CURL_USER.sub(_hide_value, text)),
)
"""Patterns, each with the parts in lower case of which a text must hold one."""


def _hide_by_name(text: str) -> str:
    text = _PAIR.sub(_hide_pair, text)
    text = _NAMED_VALUE.sub(_hide_if_named, text)
    text = _ELEMENT.sub(_hide_if_named, text)
    text = _NEXT_LINE.sub(_hide_next_line, text)
    text = _SHELL.sub(_hide_if_named, text)
    text = _hide_assigned(text)
    return _OPTION.sub(_hide_option, text)
