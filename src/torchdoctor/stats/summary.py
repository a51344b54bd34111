"""The statistics of a list of tensors, by whichever way is fastest where they are.

Nothing here raises on an odd tensor, waits for a device, touches the random state, writes into an input, adds to a
graph or keeps a tensor alive. What cannot be measured is a row of NaN; `unsupported` says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor

from torchdoctor.interruptions import let_through
from torchdoctor.signals import STATISTICS
from torchdoctor.stats import cpu, foreach, triton
from torchdoctor.stats.rows import by_device, nothing
from torchdoctor.stats.support import FLOATS, PLAIN_TYPES, Elements, Quiet, blocked, capturing, unsupported

WIDTH = len(STATISTICS)
_KIND, _DEVICE, _DTYPE = attrgetter("__class__", "dtype", "is_cpu"), attrgetter("device"), attrgetter("dtype")
_SINGLE_ON_CPU = frozenset((kind, torch.float32, True) for kind in PLAIN_TYPES)
_ON_CPU = frozenset((kind, dtype, True) for kind in PLAIN_TYPES for dtype in FLOATS)


def summarize(tensors: Sequence[Tensor]) -> Tensor:
    """(T, 8) float32 in the order of signals.STATISTICS, as reference.summarize defines them.

    The result lies on the tensors' device; with several, on the first that is not a CPU. Inside a graph that
    torch.compile traces this is one operator, torchdoctor::summarize. Inside torch.func transforms and, for CUDA
    tensors, while a CUDA graph is captured, all is NaN, on the CPU.
    """
    if torch.compiler.is_compiling():
        return torch.ops.torchdoctor.summarize([t.detach() for t in tensors])
    if not tensors or blocked():
        return nothing((len(tensors), WIDTH))
    with Quiet():
        return _summarize_alike(tensors) if _alike(tensors) else _summarize_mixed(tensors)


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """(T,) float32 Euclidean norms, the cheapest look at a list of tensors.

    Unlike the `l2` of `summarize` they are over all elements: NaN or Inf tells that one of them is.
    """
    if not tensors or blocked():
        return nothing((len(tensors),))
    with Quiet():
        try:
            if _SINGLE_ON_CPU.issuperset(map(_KIND, tensors)):
                return cpu.norms(tensors, single=True)
            if _alike(tensors):
                return (cpu if tensors[0].is_cpu else foreach).norms(tensors)
        except Exception as error:
            let_through(error)
        return _norms_mixed(tensors)


def change_norms(before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    """(T,) float32: the Euclidean norm of after - before for each pair; NaN where a pair does not fit together."""
    if not after or blocked():
        return nothing((len(after),))
    with Quiet():
        try:
            if _alike(after) and _alike(before) and _fit(before, after):
                backend = cpu if after[0].is_cpu else triton if triton.usable(after[0]) else foreach
                return backend.change_norms(before, after)
        except Exception as error:
            let_through(error)
        return _change_norms_mixed(before, after)


def _fit(before: Sequence[Tensor], after: Sequence[Tensor]) -> bool:
    if len(before) != len(after) or before[0].device != after[0].device:
        return False
    return [t.shape for t in before] == [t.shape for t in after]


def _alike(tensors: Sequence[Tensor]) -> bool:
    """Whether they are plain floating-point tensors of one device, at the least cost of finding out."""
    try:
        if _ON_CPU.issuperset(map(_KIND, tensors)):
            return True
        if tensors[0].is_cpu or not PLAIN_TYPES.issuperset(map(type, tensors)):
            return False
        devices = set(map(_DEVICE, tensors))
        if len(devices) != 1 or devices.pop().type == "meta" or capturing():
            return False
        return FLOATS.issuperset(map(_DTYPE, tensors))
    except Exception as error:
        let_through(error)
        return False


def _summarize_alike(tensors: Sequence[Tensor]) -> Tensor:
    try:
        if tensors[0].is_cpu:
            return cpu.summarize(tensors)
        if triton.usable(tensors[0]):
            return triton.summarize(tensors)
    except Exception as error:
        let_through(error)
    return _summarize_mixed(tensors)


def _summarize_mixed(tensors: Sequence[Tensor]) -> Tensor:
    def measure(values: list[Tensor], parts: list[Elements]) -> Tensor:
        rows = _measure_rows(values)
        return torch.stack([_complete(row, part) for row, part in zip(rows, parts, strict=True)])

    return by_device(tensors, (WIDTH,), measure)


def _measure_rows(values: list[Tensor]) -> Tensor:
    if values[0].is_cpu:
        return cpu.summarize(values)
    if triton.usable(values[0]):
        return triton.summarize(values)
    return foreach.summarize(values)


def _complete(row: Tensor, part: Elements) -> Tensor:
    """Account for repeated and implied elements in the statistics of the stored ones."""
    if part.repeats == 1 and part.implied == 0:
        return row
    l2, mean, std, absmax, absmean, zeros, tiny, nonfinite = row.to(foreach.widest(row)).unbind()
    stored = part.values.numel() * part.repeats
    total = stored + part.implied
    if not part.values.numel() and part.implied:
        mean = std = absmax = absmean = l2 = torch.zeros_like(l2)
        zeros = tiny = torch.zeros_like(l2)
    nonfinite = nonfinite * part.repeats
    finite = stored - nonfinite
    share = finite / (finite + part.implied)
    centre = mean * share if part.implied else mean
    if part.implied:
        none = finite == 0
        variance = share * (std.square() + (mean - centre).square()) + (1 - share) * centre.square()
        l2, absmax = l2.masked_fill(none, 0.0), absmax.masked_fill(none, 0.0)
        centre, std = centre.masked_fill(none, 0.0), variance.sqrt().masked_fill(none, 0.0)
        absmean = (absmean * share).masked_fill(none, 0.0)
    zeros, tiny = (zeros * stored + part.implied) / total, tiny * stored / total
    row = torch.stack([l2 * math.sqrt(part.repeats), centre, std, absmax, absmean, zeros, tiny, nonfinite])
    return row.to(torch.float32)


def _norms_mixed(tensors: Sequence[Tensor]) -> Tensor:
    def measure(values: list[Tensor], parts: list[Elements]) -> Tensor:
        found = (cpu if values[0].is_cpu else foreach).norms(values)
        repeats = [math.sqrt(part.repeats) for part in parts]
        return torch.stack([norm * factor for norm, factor in zip(found, repeats, strict=True)])

    return by_device(tensors, (), measure)


def _change_norms_mixed(before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    changes: list[object] = [None] * len(after)
    for i, (old, new) in enumerate(zip(before, after, strict=False)):
        if unsupported(old) or unsupported(new) or old.shape != new.shape or old.device != new.device:
            continue
        try:
            wide = foreach.wider(old, new)
            if not old.dtype.is_floating_point and not wide.is_complex:
                wide = foreach.widest(old)
            old, new = (t.to_dense() if t.layout != torch.strided else t for t in (old.detach(), new.detach()))
            changes[i] = new.to(wide) - old.to(wide)
        except Exception as error:
            let_through(error)
            continue
    return _norms_mixed(changes)  # type: ignore[arg-type]
