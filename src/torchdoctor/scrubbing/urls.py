"""Addresses that let in whoever has them: logins in URLs, signed URLs, the paths of webhooks."""

from __future__ import annotations

import re

from torchdoctor.scrubbing.names import Secrecy, secrecy_of, words

HIDDEN = "***"

_URL = re.compile(r"(?<![A-Za-z0-9])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,40}:/{2,3})(?P<rest>[^\s'\"<>`|]+)")
_WEB = ("http", "https", "ws", "wss", "s3", "gs", "file", "hf", "ftp", "sftp")
_PORT = re.compile(r"\[?[\w.:%-]*\]?:\d{1,5}")
_PARAMETER = re.compile(r"(?P<before>[?&;#](?:amp;)?(?P<name>[\w.%~-]+)=)(?P<value>[^&\s'\"#<>`;]+)")
_SIGNATURES = words(
    "sig signature x-amz-signature x-amz-credential x-amz-security-token x-goog-signature x-goog-credential "
    "x-goog-security-token x-oss-signature x-oss-credential x-cos-security-token x-tos-signature q-signature "
    "googleaccessid awsaccesskeyid ossaccesskeyid key-pair-id code hdnea hdnts ticket "
    "x-ms-signature"
)
"""Parameters that sign an address or stand for a login, beside those that are secrets by their name."""

_WEBHOOK = re.compile(
    r"""(?:(?<![\w.-])|(?<=(?<![\w.-])-))(?P<before>(?:https?://)?(?:
            hooks\.[\w.-]+/ | [\w-]+\.webhook\.office\.com/ | webhook\.[\w.-]+/ | (?:[\w-]+\.)?m\.pipedream\.net/
          | hc-ping\.com/ | ntfy\.sh/ | (?:ptb\.|canary\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/
          | [\w.-]+\.logic\.azure\.com(?::\d+)?/ | [\w.-]+\.environment\.api\.powerplatform\.com(?::\d+)?/
          | api\.telegram\.org/bot | maker\.ifttt\.com/trigger/[^\s/]*/(?:json/)?with/key/
          | [\w.-]+(?::\d+)?/(?:[\w.~-]+/){0,4}(?:web)?hooks?(?:b2)?/
        ))(?P<path>[^\s'"<>`]+)""",
    re.VERBOSE | re.IGNORECASE,
)
"""From the beginning of a host's name only, or the time grows with the square of its length."""
_LOGIN = re.compile(
    r"(?<![\w./@:])(?P<user>[\w.+-]{0,100}:)[^\s:@/'\"]{2,}@(?=(?:[\w-]+\.)+[a-z]{2,}|localhost|[\w.-]+:\d)"
)
"""user:password@host without a scheme, as in a proxy's address."""
_ORACLE = re.compile(r"(?P<before>jdbc:oracle:\w{1,10}:[^\s/@:'\"]{1,100}/)[^\s@'\"]{1,100}(?=@)", re.IGNORECASE)
"""jdbc:oracle:thin:user/password@host"""


def scrub_urls(text: str) -> str:
    text = _URL.sub(_hide_login, text)
    text = _ORACLE.sub(rf"\g<before>{HIDDEN}", text)
    text = _WEBHOOK.sub(rf"\g<before>{HIDDEN}", text)
    text = _PARAMETER.sub(_hide_parameter, text)
    return _LOGIN.sub(rf"\g<user>{HIDDEN}@", text)


def _hide_login(match: re.Match[str]) -> str:
    """What stands before the @, to the last one where the password itself holds an @ or a slash."""
    rest, at = match["rest"], match["rest"].rfind("@")
    if at < 0:
        return match[0]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    is_host = "@" not in authority and (":" not in authority or _PORT.fullmatch(authority) is not None)
    if is_host and match["scheme"].partition(":")[0].lower() in _WEB:
        return match[0]  # https://host/@user
    if "@" in authority and ":" not in authority.partition("@")[0]:
        at = authority.rfind("@")
    return f"{match['scheme']}{HIDDEN}{rest[at:]}"


def _hide_parameter(match: re.Match[str]) -> str:
    name = match["name"].lower()
    if match["value"].startswith((HIDDEN, "{", "$", "%(")):
        return match[0]
    return match["before"] + HIDDEN if name in _SIGNATURES or secrecy_of(name) != Secrecy.NONE else match[0]
