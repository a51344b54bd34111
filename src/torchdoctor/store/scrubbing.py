"""Taking secrets out of command lines and diffs before they are written. Rather one value too many than one too few.

Every pattern starts only where a word starts, so that the time they take grows with the text and not with its square.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"

_ALWAYS = re.compile(r"secret|passw(?:or)?d|passphrase|credential|(?:api|private|access)[-_.]?key", re.IGNORECASE)
_LIKELY = re.compile(r"token|key|pwd|auth", re.IGNORECASE)
_HARMLESS = re.compile(
    r"""tokeni[sz]\w* | (?<![a-z0-9])tokens(?![a-z0-9]) | author\w* | keyword\w* | keypoint\w* | keyframe\w*
      | (?:pad|eos|bos|unk|mask|sep|cls|special|image|start|stop)[-_.]token
      | key[-_.](?:dim|size|value|heads?|states?|length)\w* | num[-_.]key\w* | monkey\w* | turkey\w*""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words of machine learning that hold one of the above by accident: hiding --tokenizer would help nobody."""

_OPTION = re.compile(r"[-+~]*[\w.\-/]+")
_URL_LOGIN = re.compile(r"(?<![a-z0-9+.-])(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s@'\"]*@", re.IGNORECASE)
_URL_PARAMETER = re.compile(r"(?P<before>[?&](?P<name>[\w.-]+)=)[^&\s'\"#]+")
_KNOWN_FORMS = re.compile(
    r"""(?<![\w-])(?:
        hf_[A-Za-z0-9]{16,}
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
      | sk-[\w-]{16,} | xox[abprs]-[\w-]{10,} | AIza[\w-]{30,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}
      | eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+
      | local-[0-9a-f]{40}(?!\w)
      )
      | (?s:-----BEGIN[A-Z\ ]*PRIVATE\ KEY-----.*?(?:-----END[A-Z\ ]*PRIVATE\ KEY-----|\Z))""",
    re.VERBOSE,
)
"""Keys of Hugging Face, GitHub, GitLab, OpenAI, Slack, Google, AWS, W&B; JSON web tokens; private keys."""

_ASSIGNMENT = re.compile(
    r"""(?<![\w.\-])(?P<name>[\w.\-]+)
        (?P<between>["']?\]?[^\S\n]*(?::[^\S\n]*\w+[^\S\n]*)?[:=][^\S\n]*|["'][^\S\n]*,[^\S\n]*)
        (?P<value>(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\n])*(?P=quote)|[^\s"'(),\[\]{}]+(?=[^\S\n]*$))""",
    re.VERBOSE | re.MULTILINE,
)
"""name = "value", name: value, "name": "value", ("name", "value"); a bare value only if it ends the line."""


def scrub_argv(argv: Sequence[str]) -> list[str]:
    """The command line without the values of options that are secrets by their name, and without logins in URLs."""
    clean: list[str] = []
    hide_next = False
    for argument in map(str, argv):
        name, equals, value = argument.partition("=")
        if hide_next and not argument.startswith("--"):
            clean.append(HIDDEN)
            hide_next = False
            continue
        hide_next = False
        if _OPTION.fullmatch(name) and is_secret(name) and (equals or name.startswith("-")):
            hide_next = not equals
            clean.append(f"{name}={HIDDEN}" if value else argument)
        else:
            clean.append(scrub_text(argument))
    return clean


def scrub_text(text: str) -> str:
    """Text without logins in URLs, keys of known services, and values assigned to names of secrets."""
    text = _KNOWN_FORMS.sub(HIDDEN, text)
    text = _URL_LOGIN.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _URL_PARAMETER.sub(lambda m: m["before"] + HIDDEN if is_secret(m["name"]) else m[0], text)
    return _ASSIGNMENT.sub(_hide_value, text)


def is_secret(name: str) -> bool:
    """Whether a value of that name is likely to be one."""
    name = _HARMLESS.sub("", name)
    return bool(_ALWAYS.search(name) or _LIKELY.search(name))


def _hide_value(match: re.Match[str]) -> str:
    quote = match["quote"] or ""
    if not is_secret(match["name"]) or (not quote and _is_code(match["value"], bool(_ALWAYS.search(match["name"])))):
        return match[0]
    return f"{match['name']}{match['between']}{quote}{HIDDEN}{quote}"


def _is_code(value: str, certain: bool) -> bool:
    """A bare value that gives nothing away: a small number, None, a name in the program (token = self.token)."""
    if value in ("None", "True", "False", "null", "true", "false"):
        return True
    if certain:
        return re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", value) is not None
    return re.fullmatch(r"-?\d{1,6}(?:\.\d{1,6})?|[A-Za-z_.]{1,39}", value) is not None
