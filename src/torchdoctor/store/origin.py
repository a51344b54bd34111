"""A signature by which a user's own runs are known: over the script, its arguments and where it was started.

A run folder from somebody else can name any script of the user's with any arguments, and even with the script's digest.
So each run is signed with a key that never leaves the user's home folder. Without a home there is no signature, and
`torchdoctor replay` asks before it starts what the run names.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchdoctor.opening import open_plain

ORIGIN = "origin"
"""Key of the signature in run.json."""
SIGNED = ("argv", "cwd", "script_sha256")
KEY_BYTES = 32


def sign(info: Mapping[str, Any]) -> str:
    """The signature of these entries. OSError or RuntimeError where there is no place for a key."""
    return _digest(_make_key(), info)


def is_own(info: Mapping[str, Any]) -> bool:
    """Whether this user recorded the run, and nobody has changed what it says about its script."""
    given, key = info.get(ORIGIN), None
    with contextlib.suppress(OSError, RuntimeError):
        key = _read_key(_key_file())
    if key is None or not isinstance(given, str):
        return False
    return hmac.compare_digest(given.encode("utf-8", "replace"), _digest(key, info).encode())


def _digest(key: bytes, info: Mapping[str, Any]) -> str:
    text = json.dumps([info.get(name) for name in SIGNED])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key_file() -> Path:
    """By the XDG rules, which want an absolute path."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "state") / "torchdoctor" / "origin.key"


def _read_key(path: Path) -> bytes | None:
    """None where there is none, or one that others could have put there."""
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        return None
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        held = os.fstat(descriptor)
        foreign = hasattr(os, "getuid") and (held.st_uid != os.getuid() or stat.S_IMODE(held.st_mode) & 0o077)
        key = file.read(KEY_BYTES + 1)
    return key if len(key) == KEY_BYTES and not foreign else None


def _make_key() -> bytes:
    path = _key_file()
    key = _read_key(path)
    if key is not None:
        return key
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(part, path)  # of several ranks that begin at once, one makes the key
    finally:
        part.unlink(missing_ok=True)
    key = _read_key(path)
    if key is None:
        raise OSError(f"{path} is not a key of this user's")
    return key
