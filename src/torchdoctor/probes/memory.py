"""Host and device memory."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.interruptions import let_through
from torchdoctor.probes.context import Context

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@contained("memory: look")
def look(context: Context) -> None:
    resident = host_bytes()
    if resident is not None:
        context.record.scalar(signals.MEMORY_HOST.name, context.step, resident)
    if torch.cuda.is_initialized():
        context.record.scalar(signals.MEMORY_DEVICE.name, context.step, torch.cuda.memory_allocated())


def host_bytes() -> int | None:
    """Resident memory of this process; None where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError) as error:
        let_through(error)
        return None


def memory_left() -> int | None:
    """Bytes that can be had without swapping, inside this container; None where the system does not say."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        group = Path("/sys/fs/cgroup")
        most = (group / "memory.max").read_text().strip()
        if most != "max":
            found.append(int(most) - int((group / "memory.current").read_text()))
    except (OSError, ValueError, IndexError) as error:
        let_through(error)
    return max(0, min(found)) if found else None
