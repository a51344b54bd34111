"""Whether the process that writes a run is still there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def identify() -> dict[str, Any]:
    """What tells this process from all others, as far as the system says it."""
    identity: dict[str, Any] = {"pid": os.getpid()}
    with contextlib.suppress(OSError):
        identity["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        identity["namespace"] = str(Path("/proc/self/ns/pid").readlink())
        identity["begun"] = _begun(os.getpid())
    return identity


def is_alive(identity: Mapping[str, Any]) -> bool | None:
    """None where it cannot be told: another machine, another container, another system."""
    here, pid, begun = identify(), identity.get("pid"), identity.get("begun")
    if not isinstance(pid, int) or begun is None:
        return None
    if any(here.get(name) != identity.get(name) for name in ("boot", "namespace")):
        return None
    return _begun(pid) == begun


def _begun(pid: int) -> int | None:
    """When the process began, in the kernel's ticks; None if there is no such process, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the program's name in parentheses may hold anything, so fields are counted from behind it
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])
