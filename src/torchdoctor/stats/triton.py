"""Statistics of CUDA tensors by Triton: the whole list in one pass over memory, without waiting for the device.

A launch is described by small tables on the device: where each tensor lies, how long it is, and which program reads
which part. They are kept for lists that come again, as gradients and weights do at every step; they hold numbers
only, so no tensor outlives the call. If Triton is missing, or fails once, `usable` is False from then on.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchdoctor.signals import HISTOGRAM_BINS, HISTOGRAM_EXPONENTS, STATISTICS
from torchdoctor.stats import foreach
from torchdoctor.stats.cpu import ORDINARY, TINY_F32
from torchdoctor.stats.support import flatten

CHUNK = 32_768
BLOCK = 1_024
WARPS = 4
STAGES = 3
SPAN = 128
SLOTS = 128
"""Places of a histogram in a kernel: a power of two that holds all bins and one for what is in none."""

DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
"""What the kernels read; float64 goes to plain torch operations."""
TABLES_KEPT = 64

failure: str | None = None
"""Why Triton is not used any more, once that is so."""

_kernels: ModuleType | None = None
_T = TypeVar("_T")


class _Work(NamedTuple):
    """Which program reads what, on the device. `firsts[i]` is the first program of tensor i."""

    sizes: Tensor
    owners: Tensor
    ordinals: Tensor
    firsts: Tensor
    programs: int


_tables: OrderedDict[Hashable, object] = OrderedDict()


def usable(tensor: Tensor) -> bool:
    """Whether this tensor's device can be served; imports Triton on the first call for a CUDA tensor."""
    return tensor.is_cuda and failure is None and _load() is not None


def _load() -> ModuleType | None:
    global _kernels
    if _kernels is None:
        try:
            _kernels = importlib.import_module("torchdoctor.stats.kernels")
        except Exception as error:
            _give_up(error)
    return _kernels


def _give_up(error: Exception) -> None:
    global failure
    failure = f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _kept(key: Hashable, build: Callable[[], _T]) -> _T:
    if key in _tables:
        _tables.move_to_end(key)
        return _tables[key]  # type: ignore[return-value]
    value = build()
    _tables[key] = value
    while len(_tables) > TABLES_KEPT:
        _tables.popitem(last=False)
    return value


def _upload(values: Sequence[int] | np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    host = torch.as_tensor(np.asarray(values, np.int64)).to(dtype)
    if device.type == "cpu":
        return host
    return host.pin_memory().to(device, non_blocking=True)


def _work(sizes: tuple[int, ...], device: torch.device) -> _Work:
    chunks = np.array([-(-size // CHUNK) for size in sizes], np.int64)
    firsts = np.concatenate(([0], np.cumsum(chunks)))
    owners = np.repeat(np.arange(len(sizes)), chunks)
    ordinals = np.arange(firsts[-1]) - firsts[:-1][owners] if len(owners) else owners
    return _Work(
        _upload(sizes, torch.int64, device),
        _upload(owners, torch.int32, device),
        _upload(ordinals, torch.int32, device),
        _upload(firsts, torch.int32, device),
        int(firsts[-1]),
    )


class _Batch(NamedTuple):
    """Tensors of one dtype, ready to be read. `held` keeps copies alive until the launch is queued."""

    held: list[Tensor]
    addresses: Tensor
    aligned: bool
    work: _Work


def _place(device: torch.device) -> Hashable:
    """Tables belong to a stream: another could read them before they have arrived, or after they are gone."""
    return device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _flat(tensor: Tensor) -> Tensor:
    if tensor.is_contiguous() and not tensor.is_neg():
        return tensor
    if 0 in tensor.stride():
        raise ValueError("an expanded tensor is measured without its repetitions")
    return flatten(tensor.detach())


def _batch(tensors: Sequence[Tensor]) -> _Batch:
    held = [_flat(t) for t in tensors]
    device = held[0].device
    place = _place(device)
    pointers = tuple([t.data_ptr() for t in held])
    sizes = tuple([t.numel() for t in held])
    if 0 in pointers and any(s and not p for p, s in zip(pointers, sizes, strict=True)):
        raise ValueError("a tensor without memory of its own")
    addresses = _kept((place, "addresses", pointers), lambda: _upload(pointers, torch.int64, device))
    work = _kept((place, "work", CHUNK, sizes), lambda: _work(sizes, device))
    return _Batch(held, addresses, not any(p % 16 for p in pointers), work)


def summarize(tensors: Sequence[Tensor]) -> Tensor:
    """(T, 8) float32, as reference.summarize defines it."""
    return _by_dtype(tensors, lambda part: _reduce(_batch(part), None), foreach.summarize)


def change_norms(before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    """(T,) float32: the norm of after - before for each pair of equal shapes; NaN where a change is not finite."""
    dtypes = {t.dtype for t in (*before, *after)}
    if len(dtypes) != 1 or not dtypes <= DTYPES:
        return foreach.change_norms(before, after)
    alike = [a.stride() == b.stride() for a, b in zip(after, before, strict=True)]
    old = [b if same else b.detach().contiguous() for b, same in zip(before, alike, strict=True)]
    new = [a if same else a.detach().contiguous() for a, same in zip(after, alike, strict=True)]
    rows = _reduce(_batch(new), _batch(old))
    of_nothing = torch.where(rows[:, 0].isnan(), 0.0, rows[:, 0])
    return torch.where(rows[:, 7] > 0, float("nan"), of_nothing)


def histograms(tensors: Sequence[Tensor]) -> Tensor:
    """(T, HISTOGRAM_BINS) float32 counts of tensors in one of DTYPES."""
    dtype = tensors[0].dtype
    if any(t.dtype != dtype for t in tensors):
        return _by_dtype(tensors, histograms, histograms)
    kernels = _ready()
    batch = _batch(tensors)
    counts = torch.zeros(len(tensors), SLOTS, dtype=torch.int32, device=batch.addresses.device)
    low, high = HISTOGRAM_EXPONENTS
    if batch.work.programs:
        with _guarded(counts.device):
            kernels.count_chunks[(batch.work.programs,)](
                batch.addresses,
                batch.work.sizes,
                batch.work.owners,
                batch.work.ordinals,
                counts,
                DTYPE=_language_type(dtype),
                LOWEST=low,
                SIDE=high - low + 2,
                SLOTS=SLOTS,
                CHUNK=CHUNK,
                BLOCK=BLOCK,
                num_warps=WARPS,
            )
    return counts[:, :HISTOGRAM_BINS].float()


def _by_dtype(
    tensors: Sequence[Tensor],
    measure: Callable[[Sequence[Tensor]], Tensor],
    measure_other: Callable[[Sequence[Tensor]], Tensor],
) -> Tensor:
    dtypes = [t.dtype for t in tensors]
    distinct = set(dtypes)
    if len(distinct) == 1:
        return (measure if dtypes[0] in DTYPES else measure_other)(tensors)
    rows: list[Tensor] = [tensors[0]] * len(tensors)
    for dtype in distinct:
        members = [i for i, d in enumerate(dtypes) if d == dtype]
        found = (measure if dtype in DTYPES else measure_other)([tensors[i] for i in members])
        for i, row in zip(members, found.unbind(), strict=True):
            rows[i] = row
    return torch.stack(rows)


def _ready() -> ModuleType:
    kernels = _load()
    if kernels is None:
        raise RuntimeError(failure)
    return kernels


def _language_type(dtype: torch.dtype) -> object:
    language = _ready().tl
    return {torch.float32: language.float32, torch.bfloat16: language.bfloat16, torch.float16: language.float16}[dtype]


class _guarded:  # noqa: N801 - reads as the verb it is
    """Launches on the tensors' device, and remembers a failure of Triton itself."""

    def __init__(self, device: torch.device) -> None:
        other = device.type == "cuda" and device.index != torch.cuda.current_device()
        self.device = torch.cuda.device(device) if other else None

    def __enter__(self) -> None:
        if self.device is not None:
            self.device.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.device is not None:
            self.device.__exit__(kind, error, trace)
        if isinstance(error, Exception) and not isinstance(error, torch.cuda.OutOfMemoryError):
            _give_up(error)


def _reduce(batch: _Batch, other: _Batch | None) -> Tensor:
    kernels = _ready()
    work = batch.work
    device = batch.addresses.device
    rows = torch.empty(len(batch.held), len(STATISTICS), dtype=torch.float32, device=device)
    partials = torch.empty(max(work.programs, 1), 8, dtype=torch.float64, device=device)
    dtype = _language_type(batch.held[0].dtype)
    with _guarded(device):
        if work.programs:
            kernels.reduce_chunks[(work.programs,)](
                batch.addresses,
                (other or batch).addresses,
                work.sizes,
                work.owners,
                work.ordinals,
                partials,
                DTYPE=dtype,
                OTHER=dtype,
                CHANGE=other is not None,
                ALIGNED=batch.aligned and (other or batch).aligned,
                TINY=TINY_F32,
                LOW=ORDINARY[0],
                HIGH=ORDINARY[1],
                CHUNK=CHUNK,
                BLOCK=BLOCK,
                STAGES=STAGES,
                num_warps=WARPS,
            )
        kernels.merge_chunks[(len(batch.held),)](
            partials, work.firsts, work.sizes, rows, CHUNK=CHUNK, SPAN=SPAN, num_warps=4
        )
    return rows
