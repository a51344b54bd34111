"""What a CUDA device can do at best, measured in a few milliseconds after the training has ended. These wait for it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

FREE_BYTES = 1 << 30
"""Device memory that must be free."""
TRIES = 3
MANY_PROCESSORS = 60
"""A device of so many takes the larger product."""
COPIED = 1 << 28
"""Bytes: several times the largest caches."""
MOVED = 1 << 25


def matmul_rate(dtype: torch.dtype) -> float | None:
    """FLOP a second in one large product, with the script's own settings of precision."""
    if not _has_room() or not dtype.is_floating_point:
        return None
    many = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count >= MANY_PROCESSORS
    size = 4096 if many else 2048
    numbers = torch.arange(size * size, device="cuda", dtype=torch.int32).remainder_(13)
    matrix = numbers.to(dtype).div_(13).view(size, size)
    out = torch.empty_like(matrix)
    return 2.0 * size**3 / _fastest(lambda: torch.mm(matrix, matrix, out=out))


def copy_rate() -> float | None:
    """Bytes a second, read and written."""
    if not _has_room():
        return None
    source = torch.zeros(COPIED // 4, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    return 2.0 * COPIED / _fastest(lambda: target.copy_(source))


def transfer_rate() -> float | None:
    """Bytes a second from pageable host memory."""
    if not _has_room():
        return None
    host = torch.zeros(MOVED // 4, device="cpu", dtype=torch.float32)
    target = torch.empty_like(host, device="cuda")
    seconds = []
    for _ in range(TRIES):
        start = perf_counter()
        target.copy_(host)
        seconds.append(perf_counter() - start)
    return MOVED / min(seconds)


def _has_room() -> bool:
    return bool(torch.cuda.mem_get_info()[0] >= FREE_BYTES)


def _fastest(action: Callable[[], object]) -> float:
    """Seconds of the fastest try, after one that warms up."""
    with torch.no_grad():
        action()
        seconds = []
        for _ in range(TRIES):
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            action()
            ended.record()
            ended.synchronize()
            seconds.append(begun.elapsed_time(ended) / 1e3)
    return max(min(seconds), 1e-9)
