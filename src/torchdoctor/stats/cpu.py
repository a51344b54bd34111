"""Statistics of CPU tensors in float16, bfloat16, float32 or float64, and of large ones of integers.

What counts is the number of calls: between two steps of a training the caches are cold, and a torch operation costs
5 to 8 us, a numpy one 1 to 3, however small its tensor. So tensors below SMALL elements are joined into one buffer
and reduced segment by segment with numpy, the others go through torch one by one, and the last few operations on a
handful of sums are plain Python. Measured between steps of a training on an AMD EPYC (Zen 3), torch 2.13, one
thread, median microseconds for 6 tensors of 26k elements / 16 of 160k / 53 of 810k in all:

    all statistics                     140 / 590 / 1600    of gradients that hold zeros, which must be counted
    the same where nothing is tiny      91 / 410 / 1130    (with SMALL 8k: 140 / 426 / 1190; 128k: 91 / 463 / 1554)
    and with numpy for the last sums   162 / 505 / -
    norms by torch._foreach_norm        37 / 125 / 344
    norms by joining and numpy         136 / 329 / 914
    changes by torch._foreach_sub       64 / 261 / 821     (by joining and numpy: 98 / 410 / 1731)

Norms of order 1 or inf cost 8 to 25 times order 2, torch.var 15 times a sum, so neither is used. numpy's dot is
twice as fast as torch's but wakes a thread pool of its own above 10,000 elements.

Fast sums assume finite elements of ordinary size; on a CPU looking at the result is free, and the few tensors for
which that does not hold are measured again, carefully, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.signals import TINY
from torchdoctor.stats.foreach import wider
from torchdoctor.stats.support import WHOLE, flatten

SMALL = WHOLE
GROUP = 1 << 17
"""Elements joined at once."""
CHUNK = 1 << 18
"""Elements of a large tensor taken at once: its temporaries stay in the cache, and float32 sums accurate."""
FOREACH_LIMIT = 1 << 20
"""Above this the float32 sum in torch._foreach_norm is off by more than 1e-5 (measured: 5e-4 at 2**24 elements)."""
FOREACH_TOTAL = 1 << 22
"""Elements whose changes are held in memory at once: 16 MB."""

ORDINARY = (1e-15, 1e15)
"""Largest magnitudes between these: squares neither vanish nor overflow in float32, even summed."""
SHAKY = 1e-2
"""Variance over mean square below which E[x^2] - E[x]^2 in float32 loses too many digits."""

_NEAREST = np.float32(TINY)
TINY_F32 = float(np.nextafter(_NEAREST, np.float32(1)) if float(_NEAREST) < TINY else _NEAREST)
"""The smallest float32 not below TINY, so that comparing in float32 decides as comparing exactly would."""

Row = tuple[float, float, float, float, float, float, float, float]
NOTHING: Row = (*(math.nan,) * 7, 0.0)
"""The row of an empty tensor."""

_SINGLE = frozenset(
    {torch.float32, torch.bfloat16, torch.float16, torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16}
)
"""What float32 holds exactly; the rest is widened to float64."""

_DTYPE = attrgetter("dtype")
_join = torch._C._nn.flatten_dense_tensors  # of a single contiguous tensor this is a view: never write into it


class _Group(NamedTuple):
    members: tuple[int, ...]
    starts: NDArray[np.intp]
    sizes: tuple[int, ...]


class _Plan(NamedTuple):
    groups: tuple[_Group, ...]
    large: tuple[int, ...]


@lru_cache(maxsize=64)
def _plan(sizes: tuple[int, ...], doubles: tuple[bool, ...] | None) -> _Plan:
    groups: list[_Group] = []
    for double in (False, True):
        members: list[int] = []
        filled = 0
        for i, size in enumerate(sizes):
            if 0 < size < SMALL and double == (doubles is not None and doubles[i]):
                if filled + size > GROUP:
                    groups.append(_group(members, sizes))
                    members, filled = [], 0
                members.append(i)
                filled += size
        if members:
            groups.append(_group(members, sizes))
    return _Plan(tuple(groups), tuple(i for i, size in enumerate(sizes) if size >= SMALL))


def _group(members: list[int], sizes: tuple[int, ...]) -> _Group:
    own = tuple(sizes[i] for i in members)
    return _Group(tuple(members), np.cumsum((0, *own[:-1])).astype(np.intp), own)


def summarize(tensors: Sequence[Tensor]) -> Tensor:
    """(T, 8) float32, as reference.summarize defines it."""
    dtypes = list(map(_DTYPE, tensors))
    doubles = tuple(d is torch.float64 for d in dtypes) if torch.float64 in dtypes else None
    plan = _plan(tuple(map(Tensor.numel, tensors)), doubles)
    rows: list[Row] = [NOTHING] * len(tensors)
    with np.errstate(all="ignore"):
        for group in plan.groups:
            _summarize_group([tensors[i] for i in group.members], group, rows)
        for i in plan.large:
            rows[i] = _summarize_large(_flat(tensors[i]))
        return torch.from_numpy(np.array(rows, np.float32))


def _flat(tensor: Tensor) -> Tensor:
    plain = tensor.detach()
    if plain.is_contiguous():
        return plain.view(-1)
    if 0 in plain.stride():
        raise ValueError("an expanded tensor is measured without its repetitions")
    return flatten(plain)


def _together(tensors: list[Tensor]) -> NDArray[np.floating]:
    joined = _join(tensors)
    return (joined if joined.dtype in (torch.float32, torch.float64) else joined.float()).numpy()


def _summarize_group(tensors: list[Tensor], group: _Group, rows: list[Row]) -> None:
    flat = _together(tensors)
    magnitude = np.abs(flat)
    limit = TINY if flat.dtype == np.float64 else TINY_F32
    starts = group.starts
    lows = np.minimum.reduceat(magnitude, starts).tolist()
    if any(low < limit for low in lows):
        is_zero, is_small = magnitude == 0, magnitude < limit
    reduced = zip(
        group.members,
        group.sizes,
        starts.tolist(),
        lows,
        np.maximum.reduceat(magnitude, starts).tolist(),
        np.add.reduceat(flat, starts).tolist(),
        np.add.reduceat(flat * flat, starts).tolist(),
        np.add.reduceat(magnitude, starts).tolist(),
        strict=True,
    )
    for i, (member, size, start, low, high, total, squares, absolute) in enumerate(reduced):
        mean, square = total / size, squares / size
        variance = square - mean * mean
        zeros = small = 0
        if not ORDINARY[0] < high < ORDINARY[1] and high != 0.0:
            rows[member] = _summarize_carefully(_flat(tensors[i]))
            continue
        if low < limit:
            zeros = np.count_nonzero(is_zero[start : start + size])
            small = np.count_nonzero(is_small[start : start + size])
        if variance < SHAKY * square:
            variance = _variance(flat[start : start + size], mean)
        l2, std = math.sqrt(squares), math.sqrt(variance)
        rows[member] = (l2, mean, std, high, absolute / size, zeros / size, (small - zeros) / size, 0.0)


def _count_small(magnitude: NDArray[np.floating], limit: float) -> tuple[int, int]:
    """How many are exactly zero, and how many are below the limit."""
    small = np.count_nonzero(magnitude < limit)
    return np.count_nonzero(magnitude == 0) if small else 0, small


def _variance(values: NDArray[np.floating], near: float) -> float:
    shifted = values - values.dtype.type(near)
    return max(float(np.square(shifted).mean()) - float(shifted.mean()) ** 2, 0.0)


def _pieces(flat: Tensor) -> Sequence[Tensor]:
    return (flat,) if flat.numel() <= CHUNK else flat.split(CHUNK)


def _summarize_large(flat: Tensor) -> Row:
    limit, wide = (TINY_F32, torch.float32) if flat.dtype in _SINGLE else (TINY, torch.float64)
    zeros = small = 0
    total = squares = absolute = high = 0.0
    for piece in _pieces(flat):
        values = piece.to(wide)
        magnitude = torch.abs(values)
        smallest, largest = torch.aminmax(magnitude)
        squares += torch.dot(values, values).item()
        total += values.sum().item()
        absolute += magnitude.sum().item()
        if smallest.item() < limit:
            more = _count_small(magnitude.numpy(), limit)
            zeros, small = zeros + more[0], small + more[1]
        high = max(high, largest.item())
        if not high < ORDINARY[1] or math.isnan(squares):
            return _summarize_carefully(flat)
    if 0.0 < high < ORDINARY[0]:
        return _summarize_carefully(flat)
    size = flat.numel()
    mean, square = total / size, squares / size
    variance = square - mean * mean
    if variance < SHAKY * square:
        variance = _variance_large(flat, mean, wide)
    l2, std = math.sqrt(squares), math.sqrt(variance)
    return (l2, mean, std, high, absolute / size, zeros / size, (small - zeros) / size, 0.0)


def _variance_large(flat: Tensor, near: float, wide: torch.dtype) -> float:
    squares = shift = 0.0
    for piece in _pieces(flat):
        shifted = piece.to(wide) - near
        squares += torch.dot(shifted, shifted).item()
        shift += shifted.sum().item()
    return max(squares / flat.numel() - (shift / flat.numel()) ** 2, 0.0)


def _summarize_carefully(flat: Tensor) -> Row:
    """In float64, scaled, over the finite elements alone, a piece at a time."""
    count = zeros = small = 0
    total = absolute = high = 0.0
    for values in _finite_pieces(flat):
        magnitude = np.abs(values)
        more = _count_small(magnitude, TINY)
        zeros, small, count = zeros + more[0], small + more[1], count + values.size
        total += float(values.sum())
        absolute += float(magnitude.sum())
        high = max(high, float(magnitude.max(initial=0.0)))
    size = flat.numel()
    shares = (zeros / size, (small - zeros) / size, float(size - count))
    if not count:
        return (*(math.nan,) * 5, *shares)
    mean, scale = total / count, high or 1.0
    squares = deviations = 0.0
    for values in _finite_pieces(flat):
        squares += float(np.square(values / scale).sum())
        deviations += float(np.square((values - mean) / scale).sum())
    return (scale * math.sqrt(squares), mean, scale * math.sqrt(deviations / count), high, absolute / count, *shares)


def _finite_pieces(flat: Tensor) -> Iterator[NDArray[np.float64]]:
    for piece in _pieces(flat):
        values = piece.double().resolve_neg().numpy()
        yield values[np.isfinite(values)]


def norms(tensors: Sequence[Tensor], single: bool = False) -> Tensor:
    """(T,) float32; NaN or Inf where an element is. `single` says that all are known to be float32."""
    single = single or set(map(_DTYPE, tensors)) == {torch.float32}
    if single and max(map(Tensor.numel, tensors)) < FOREACH_LIMIT:
        results = torch.stack(torch._foreach_norm(tensors))
    else:
        results = torch.tensor([_norm(_pieces(_flat(t))) for t in tensors], dtype=torch.float32, device="cpu")
    low, high = ORDINARY
    for i, value in enumerate(results.tolist()):
        if not low < value < high:
            results[i] = _norm_carefully(_pieces(_flat(tensors[i])))
    return results


def _norm(pieces: Sequence[Tensor]) -> float:
    wide = [p.to(torch.float32 if p.dtype in _SINGLE else torch.float64) for p in pieces]
    return math.sqrt(sum([torch.dot(p, p).item() for p in wide]))


def _norm_carefully(pieces: Sequence[Tensor]) -> float:
    """In float64 and scaled; NaN or Inf where an element is."""
    bounds = [bound.item() for p in pieces if p.numel() for bound in torch.aminmax(p)]
    if any(math.isnan(b) for b in bounds):
        return math.nan
    scale = max((abs(b) for b in bounds), default=0.0)
    if scale == 0.0 or math.isinf(scale):
        return scale
    return scale * math.sqrt(sum([(p.double() / scale).square_().sum().item() for p in pieces]))


def change_norms(before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    """(T,) float32: the norm of after - before for each pair of equal shapes; NaN or Inf where a change is."""
    if len({t.dtype for t in (*before, *after)}) == 1 and after[0].dtype in (torch.float32, torch.float64):
        parts, held = [], 0
        start = 0
        for stop, tensor in enumerate(after, 1):
            held += tensor.numel()
            if held > FOREACH_TOTAL or stop == len(after):
                parts.append(norms(torch._foreach_sub(after[start:stop], before[start:stop])))
                start, held = stop, 0
        return torch.cat(parts)
    changes = (a.to(wider(a, b)) - b.to(wider(a, b)) for a, b in zip(after, before, strict=True))
    return torch.cat([norms((change,)) for change in changes])
