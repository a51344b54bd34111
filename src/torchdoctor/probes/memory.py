"""Host and device memory."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from torchdoctor import signals
from torchdoctor.attach.guard import contained
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
    except (OSError, IndexError, ValueError):
        return None
