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

from torchdoctor.scrubbing.commands import (
    CLIENT_CALL,
    CURL_USER,
    LOGIN_CALL,
    LOGIN_COMMAND,
    PASSWORD_OPTION,
    PIPED_LOGIN,
    SIGNING_CALL,
)
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
    r"""[bfruBFRU@]{0,2}(?P<quote>\\{0,8}(?:\'\'\'|\"\"\"|["'`]))(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\]|\\)){0,4000})(?:(?P=quote)|$)
      | (?P<open>[\[({])(?P<listed>[^\[\](){}\n]{0,4000}["'][^\[\](){}\n]{0,4000})(?=[\])}])
      | (?P<bare>(?!\\n)[^\s"'`,;(){}\[\]<>][^\s"'`,;){}\]]{0,4000})""",
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
    r"""(?P<head>(?<![\w.-])["']?(?P<name>[A-Za-z_][\w.\-]*)["']?[^\S\n]*[:=][^\S\n]*(?:(?:[|>][-+]?|[(\\])[^\S\n]*)?\n
        [+\- ]?[^\S\n]*)(?P<quote>["']?)(?P<value>[^\s"':=]+)(?P=quote)(?=["',)\]}]{0,4}[^\S\n]*(?:\n|\Z))""",
    re.VERBOSE,
)
_NAMED_VALUE = re.compile(
    r"""(?P<head>\b(?:name|key)["']?[^\S\n]*[:=][^\S\n]*["']?(?P<name>[A-Za-z_][\w.\-]*)["']?[\s,+\-]{1,40}
        ["']?(?:value|content)["']?[^\S\n]*[:=][^\S\n]*)(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,}"']+)""",
    re.VERBOSE,
)
"""name: API_KEY, value: x, as in the files of Kubernetes."""
_SHELL = re.compile(
    r"(?P<head>(?:^|(?<=[\s;&+-]))(?:ENV|ARG|setenv|setx|set -[gUx]+|\#[^\S\n]*define)[^\S\n]+"
    r"(?P<name>[A-Za-z_]\w*)[^\S\n]+)"
    r"(?P<value>\S+)",
    re.MULTILINE,
)
"""ENV NAME value of a Dockerfile, setenv of csh, set -x of fish, #define of C."""
_ELEMENT = re.compile(r"(?P<head><(?P<name>[A-Za-z_][\w.-]*)(?:\s[^<>\n]*)?>)(?P<value>[^<>\n]+)(?=</)")
_NAMED_ELEMENT = re.compile(
    r"""(?P<head><[A-Za-z_][\w.-]*\s(?:[^<>\n]{0,200}?\s)?(?:name|key)=["'](?P<name>[\w.-]+)["'][^<>\n]*>)
        (?P<value>[^<>\n]+)(?=</)""",
    re.VERBOSE,
)
_BLOCK = re.compile(
    r"^(?P<indent>[+\- ]?[^\S\n]*)[\"']?(?P<name>[A-Za-z_][\w.\-]*)[\"']?[^\S\n]*:[^\S\n]*\n", re.MULTILINE
)
"""A key of YAML above others."""
_BLOCK_LINE = re.compile(
    r"""(?P<head>[+\- ]?[^\S\n]*(?:-[ ]+)?["']?[\w.\-]+["']?[^\S\n]*:[^\S\n]+)(?P<value>[^\s#][^\n]*)"""
)
MOST_BLOCK_LINES = 100
_ARGUMENTS = re.compile(r"(?P<callee>[A-Za-z_][\w.]*)\((?P<arguments>[^()\n]{0,400})\)")
_ARGUMENT = re.compile(r"""[bfruBFRU]{0,2}(?P<quote>["'])(?P<value>[^"'\n]+)(?P=quote)""")
_WRAPPERS = words("secretstr secretbytes secret str bytes field final")
"""Calls whose text is the secret itself; of other calls it may be the name of one: api_key = read("api_key")."""
_CONTINUED = re.compile(
    r"""[^\S\n]{0,20}[+.]?[^\S\n]{0,20}[bfruBFRU]{0,2}(?P<quote>["'])(?P<value>[^"'\n]+)(?P=quote)"""
)
"""Goes on with a further text: "abc" + "def"."""
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
    r"""(?P<head>(?:^[+\- ]?[^\S\n]*|\blogin[^\S\n]+\S+\s{1,40}[+\-]?[^\S\n]{0,40}
          |\b(?:machine|default)[^\S\n][^\n]{0,300}?)
        \b(?:password|passwd|account)[^\S\n]+)(?P<value>\S+)(?=[^\S\n]*(?:$|account|macdef))""",
    re.VERBOSE | re.MULTILINE,
)
_SENTENCE = re.compile(
    r"""(?P<head>(?<![\w-])(?:(?:api|access|auth|secret|private)\ (?:key|token)
          | \w*(?:key|token|passcode|passphrase|passw(?:or)?d|secret|pwd))["']?
          (?:\ (?:is|was|provided|given|used|of))?[:\ ]\ ?["'`]?)
        (?P<value>[\w+=~-]{12,})(?=["'`.,;)\]}\\]{0,4}(?:\s|$))""",
    re.VERBOSE | re.IGNORECASE,
)
"""the api key x; AUTH_TOKEN x."""
_PLAIN_WORDS = re.compile(
    r"""[<\[(]?/?[A-Za-z][a-z]*(?:[\ _./:|-]*[a-z]+)*[>\])]? | [A-Z]+(?:_[A-Z]+)* | (?:[A-Z][a-z]+)+ | <\|?\w+\|?>
      | \[\w+\] | _\w*[A-Za-z]_*""",
    re.VERBOSE,
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"_*[A-Za-z]+\d{0,2}(?:_+[A-Za-z]+\d{0,2})*_*")
"""An identifier as people write it; not Zq7Vx9Lw."""
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]{0,6}(?:\.\d{0,6})?|\d(?:\.\d{1,4})?e[-+]?\d{1,2})%?")
_STAND_IN = "\x1f\n"
"""For a backslash and an n: a line's end that can be told from a real one, and blank for every pattern."""
_SMALL_NUMBER = re.compile(r"-?(?:\d{1,2}|\d?\.\d{1,3})")
"""Too short to be a secret."""
_NOTHING = words(
    "none null true false nil undefined yes no str int bytes bool float any optional object string bytesio secretstr "
    "tensor ... *** self type lambda not await yield sorted"
)
_ENDS_WITH_SCHEME = re.compile(r"(?:^|[\s\"':=])(?:bearer|basic)$", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{?[\w.:-]+\}?|\{\{.*|%\(?\w*\)?s?|\$\(.*|<[\w -]+>|\{[\w.!:]*\}?")
"""A value that only says where another one is: $VARIABLE, ${{ secrets.X }}, <your key>."""
_STOP_WORDS = words(
    "a an and are as at be by can cannot for from has if in into is it may must not of on or that the this to was were "
    "when which will with without"
)


REMEMBERED, REMEMBERED_LENGTH = 2048, 300
_CLEAN: set[str] = set()
"""Texts without secrets: names of modules, places and settings are written again and again."""


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
    if type(text) is not str or len(text) > REMEMBERED_LENGTH:
        return _scrub_any(text)
    if text in _CLEAN:
        return text
    clean = _scrub_any(text)
    if clean == text:
        if len(_CLEAN) >= REMEMBERED:
            _CLEAN.clear()
        _CLEAN.add(text)
    return clean


def _scrub_any(text: str) -> str:
    if r"\n" in text and _STAND_IN not in text:  # the repr of a text, or JSON in a text: its lines count, too
        text = _scrub_lines(text.replace(r"\n", _STAND_IN)).replace(_STAND_IN, r"\n")
    return _scrub_lines(text)


def _scrub_lines(text: str) -> str:
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
    if _ENDS_WITH_SCHEME.search(argument):
        return lambda word: True
    if argument.endswith(":") and secrecy_of(argument):  # a header, its name and value in two words
        return lambda word: word.casefold() not in ("bearer", "basic")
    if secrecy and argument.startswith("-"):
        return lambda word: not _is_option_word(word) and not _is_clearly_none(word, secrecy)
    if argument in ("-p", "-P"):
        return lambda word: not word.startswith("-") and not _is_harmless_of_p(word)
    if argument in ("-u", "-U", "--user", "--login", "--userpwd", "--proxy-user"):
        return lambda word: ":" in word
    if argument in ("-t", "-k", "-s", "-a", "--api"):
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
    if _SMALL_NUMBER.fullmatch(value):
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
    if value.strip().casefold() in _NOTHING or _REFERENCE.fullmatch(value) or _SMALL_NUMBER.fullmatch(value):
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
            called = _ARGUMENTS.match(text, value.start()) if group == "bare" and secrecy is Secrecy.CERTAIN else None
            if called is not None:
                pieces += [text[done : called.start("arguments")], _hide_arguments(called)]
                done = at = called.end("arguments")
            continue
        pieces += [text[done : value.start(group)], HIDDEN]
        done = at = value.end(group)
        while group == "quoted" and (more := _CONTINUED.match(text, value.end() if done < value.end() else done + 1)):
            pieces += [text[done : more.start("value")], HIDDEN]
            done = at = more.end("value")
    return "".join([*pieces, text[done:]])


def _hide_arguments(called: re.Match[str]) -> str:
    """The arguments of a call whose result is a secret: `api_key: str = field(default="x")`."""
    is_wrapper = called["callee"].rpartition(".")[2].casefold() in _WRAPPERS

    def hide(text: re.Match[str]) -> str:
        value = text["value"]
        is_name = " " in value or _VARIABLE.fullmatch(value) is not None or not re.search(r"\d", value)
        if (is_name and not is_wrapper) or _is_harmless_value(value, Secrecy.CERTAIN):
            return text[0]
        return text[0].replace(value, HIDDEN)

    return _ARGUMENT.sub(hide, called["arguments"])


def _indent_of(line: str) -> int:
    """The mark of a diff counts as a blank."""
    line = f" {line[1:]}" if line[:1] in ("+", "-") else line
    return len(line) - len(line.lstrip())


def _hide_blocks(text: str) -> str:
    """Values below a key that leaves no doubt, such as `secrets:` or `credentials:` in YAML."""
    pieces, done = [], 0
    for header in _BLOCK.finditer(text):
        if header.start() < done or secrecy_of(header["name"]) is not Secrecy.CERTAIN:
            continue
        at, indent = header.end(), _indent_of(header[0])
        for _ in range(MOST_BLOCK_LINES):
            end = text.find("\n", at) + 1 or len(text)
            line = text[at:end]
            if _indent_of(line) <= indent and line.strip("+- \n"):
                break
            entry = _BLOCK_LINE.match(line)
            if entry is not None and not _is_harmless_value(entry["value"].strip("\"' "), Secrecy.CERTAIN):
                pieces += [text[done : at + entry.start("value")], HIDDEN]
                done = at + entry.end("value")
            at = end
            if at == len(text):
                break
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
    if not value[0].endswith(value["quote"]) and not re.search(r"\w{3}", value[group]):
        return True  # not the beginning of a text but its end: input("Password: ")
    return _is_harmless_value(value[group], secrecy)


def _is_code(named: re.Match[str], match: re.Match[str], secrecy: Secrecy) -> bool:
    """A bare value that gives nothing away: nothing, a name in the program (token = self.token), a call."""
    text, value = match.string, match["bare"]
    following = text[match.end() : match.end() + 1]
    if value.casefold() in _NOTHING or value.startswith(HIDDEN) or _REFERENCE.fullmatch(value):
        return True
    if _SMALL_NUMBER.fullmatch(value):
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
    """`head`, `name` and `value`."""
    value, secrecy = match["value"].strip("\"'"), secrecy_of(match["name"])
    if secrecy is Secrecy.NONE or _is_harmless_value(value, secrecy):
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
_NAMES += ("csrf", "xsrf", "mfa", "pin", "phrase", "encryption", "license")
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
    (("login",), lambda text: LOGIN_COMMAND.sub(_hide_value, text)),
    (("mysql", "maria", "sshpass", "redis", "mongo", "login"), lambda text: PASSWORD_OPTION.sub(_hide_value, text)),
    (("auth", "login", "jwt"), lambda text: LOGIN_CALL.sub(_hide_value, text)),
    (_CLIENTS, lambda text: CLIENT_CALL.sub(_hide_random, text)),
    (("stdin", "login"), lambda text: PIPED_LOGIN.sub(_hide_value, text)),
    (("hmac.",), lambda text: SIGNING_CALL.sub(_hide_value, text)),
    (("-u", "-user", "--login"), lambda text: CURL_USER.sub(_hide_value, text)),
)
"""Patterns, each with the parts in lower case of which a text must hold one."""


def _hide_by_name(text: str) -> str:
    text = _PAIR.sub(_hide_pair, text)
    text = _NAMED_VALUE.sub(_hide_if_named, text)
    text = _ELEMENT.sub(_hide_if_named, text)
    text = _NAMED_ELEMENT.sub(_hide_if_named, text)
    text = _hide_blocks(text)
    text = _NEXT_LINE.sub(_hide_next_line, text)
    text = _SHELL.sub(_hide_if_named, text)
    text = _hide_assigned(text)
    return _OPTION.sub(_hide_option, text)
