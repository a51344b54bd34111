"""Every operation of a step, checked as it runs: who made the first NaN or Inf, of what, and how it came to the loss.

A dispatch mode sees each operation below autograd, forward and backward alike. What is not finite is remembered with
the operation that wrote it and with what that one read, so that from a bad loss or gradient the way back leads to the
birth: the operation that made something bad of good numbers. An infinity that is written on purpose (the -inf of an
attention mask) is no birth; the first operation that makes NaN of it is. Far too slow for training: made for a step
that is run once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchdoctor.attach.places import Place

FINITE, INFINITE, NAN = 0, 1, 2
GIVEN = frozenset(
    [
        *("masked_fill", "masked_fill_", "where", "fill_", "full", "full_like", "new_full", "index_fill"),
        *("index_fill_", "scalar_tensor", "constant_pad_nd", "masked_scatter", "index_put_", "index_put", "scatter"),
        *("scatter_", "lift_fresh", "zero_", "copy_", "triu", "tril", "_to_copy"),
    ]
)
"""Operations that put values where they are told to: an infinity that comes out of one was meant, or came in."""
CASTS = frozenset(("_to_copy", "copy_"))
"""Of those, the ones that can overflow: a number that half precision does not hold."""
UNWRITTEN = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"))
"""They give memory as it is found."""
SAMPLES_KEPT = 16
ROWS_KEPT = 4096
CHAIN_KEPT = 48


@dataclass(frozen=True)
class Extent:
    """What a tensor held."""

    state: int
    low: float
    high: float
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Where:
    """What runs now: the user's line, the module, and in the backward pass autograd's name for it."""

    place: Place | None = None
    module: str | None = None
    node: str | None = None


@dataclass(eq=False)
class Step:
    """One operation whose result was not finite."""

    order: int
    operator: str
    backward: bool
    inputs: tuple[Extent, ...]
    result: Extent
    parents: tuple[Step, ...]
    """the operations that wrote what it read and was not finite"""
    foreign: tuple[str, ...]
    """names of what it read that was bad before the step began, but for masks"""
    infinite: bool
    """it read something bad from before the step: an infinity, where `foreign` names nothing, as a mask holds them"""
    where: Where
    count: int
    rows: tuple[int, ...]
    """places along the first dimension that hold bad values"""
    scalars: tuple[float, ...]
    """numbers among its arguments"""
    at: tuple[float | None, ...]
    """of each input the number that made the first bad one, where that can be said"""

    def samples(self, of: int) -> tuple[int, ...]:
        """Bad samples of so many in the batch, where the first dimension is that of samples (or of several rows each);
        none where all are."""
        rows = self.result.shape[0] if self.result.shape else 0
        if of < 2 or rows < of or rows % of:
            return ()
        bad = sorted({row // (rows // of) for row in self.rows})
        return () if len(bad) == of else tuple(bad[:SAMPLES_KEPT])

    @property
    def given(self) -> bool:
        """It wrote an infinity where it was told to, or passed one on that was there before."""
        if self.result.state != INFINITE or self.parents or self.foreign:
            return False
        return self.infinite or (self.operator in GIVEN and self.operator not in CASTS)

    def __str__(self) -> str:
        at = f" at {self.where.place}" if self.where.place else ""
        inside = f" in {self.where.module}" if self.where.module else ""
        return f"{self.operator}{' (backward)' if self.backward else ''}{at}{inside}"


@dataclass(frozen=True)
class Birth:
    """The way of a NaN or Inf from where it was made to where it was noticed."""

    step: Step
    chain: tuple[Step, ...]
    """from the birth to what was asked about, in the order in which they ran"""


class Inspector(TorchDispatchMode):
    """Checks all that runs while it is on."""

    def __init__(
        self,
        locate: Callable[[], Where],
        name_of: Callable[[Tensor], str | None],
        is_weight: Callable[[Tensor], bool] = lambda _: False,
    ) -> None:
        super().__init__()
        self._locate, self._name_of, self._is_weight = locate, name_of, is_weight
        self._writers: dict[int, Step] = {}
        self._held: list[Tensor] = []
        """what is not finite stays alive, so that its place in memory is not given to anything else"""
        self._count = 0
        self.resting = False
        """what runs is ours"""

    def forget(self) -> None:
        """What follows is another step."""
        self._writers.clear()
        self._held.clear()

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.resting:
            return func(*args, **kwargs)
        read = [t for t in tree_leaves((args, kwargs)) if is_checked(t)]
        before = [extent(t) for t in read]
        writers = [self._writers.get(_place(t)) for t in read]
        result = func(*args, **kwargs)
        self._count += 1
        if _is_view(func) or _name(func) in UNWRITTEN:
            return result
        for out in (t for t in tree_leaves(result) if is_checked(t)):
            after = extent(out)
            if after.state != FINITE:
                self._note(func, args, read, before, writers, out, after)
            elif _wrote_all(out, read):
                self._writers.pop(_place(out), None)
        return result

    def _note(
        self, func: Any, args: Any, read: list[Tensor], before: list[Extent], writers: Sequence[Step | None],
        out: Tensor, after: Extent,
    ) -> None:  # fmt: skip
        bad = [(t, e, w) for t, e, w in zip(read, before, writers, strict=True) if e.state != FINITE]
        makers = [w for _, _, w in bad if w is not None]
        came = [(t, e) for t, e, w in bad if w is None]
        earlier = self._writers.get(_place(out))
        if earlier is not None and _name(func).endswith("_") and not _wrote_all(out, read):
            makers.append(earlier)
        wrong = ~torch.isfinite(out.detach())
        self._writers[_place(out)] = Step(
            order=self._count,
            operator=_name(func),
            backward=torch._C._current_graph_task_id() != -1,
            inputs=tuple(before),
            result=after,
            parents=tuple({w.order: w for w in makers}.values()),
            foreign=tuple(self._name_of(t) or "" for t, e in came if not self._is_mask(func, t, e)),
            infinite=bool(came),
            where=self._locate(),
            count=int(wrong.sum()),
            rows=_rows(wrong),
            scalars=tuple(float(a) for a in args if isinstance(a, int | float) and not isinstance(a, bool)),
            at=tuple(_value_at(wrong, t, out) for t in read),
        )
        self._held.append(out)

    def _is_mask(self, func: Any, tensor: Tensor, held: Extent) -> bool:
        """An infinity from before the step that was meant: it is put somewhere, or stands among zeros alone."""
        if held.state == NAN or self._is_weight(tensor) or self._name_of(tensor) in ("input", "target"):
            return False
        return _name(func) in GIVEN - CASTS or (held.low == -math.inf and held.high <= 0)

    def birth_of(self, tensor: Tensor) -> Birth | None:
        """Where what is wrong with this tensor was born; None where nothing that ran here wrote it."""
        last = self._writers.get(_place(tensor))
        return trace(last) if last is not None else None


def trace(last: Step) -> Birth:
    """The birth behind a bad result. Of several the first that ran; what was given on purpose comes last."""
    behind = sorted(_ancestors(last), key=lambda s: s.order)
    origins = [s for s in behind if not s.parents and not s.given]
    if not origins:  # all that is infinite was meant to be: who made NaN of it, or let it through?
        origins = [s for s in behind if s.result.state == NAN] or [s for s in behind if not s.given] or behind
    birth = origins[0]
    return Birth(birth, _way(birth, last))


def _ancestors(last: Step) -> set[Step]:
    seen, waiting = {last}, [last]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return seen


def _way(birth: Step, last: Step) -> tuple[Step, ...]:
    """A shortest way from the birth to the end."""
    after: dict[Step, Step | None] = {last: None}
    waiting = [last]
    for step in waiting:
        if step is birth:
            break
        for parent in step.parents:
            if parent not in after:
                after[parent] = step
                waiting.append(parent)
    way: list[Step] = []
    at: Step | None = birth
    while at is not None and len(way) < CHAIN_KEPT:
        way.append(at)
        at = after.get(at)
    return tuple(way)


def is_checked(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.layout == torch.strided
        and value.device.type != "meta"
        and value.numel() > 0
    )


def extent(tensor: Tensor) -> Extent:
    plain = tensor.detach()
    if plain.dtype not in (torch.float32, torch.float64):
        plain = plain.float()
    low, high = (float(v) for v in torch.aminmax(plain))
    state = NAN if low != low or high != high else INFINITE if math.isinf(low) or math.isinf(high) else FINITE
    return Extent(state, low, high, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__) if hasattr(func, "overloadpacket") else str(func)


def _is_view(func: Any) -> bool:
    """What it gives is what it got, seen otherwise."""
    schema = getattr(func, "_schema", None)
    returns = schema.returns if schema is not None else ()
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _wrote_all(out: Tensor, read: list[Tensor]) -> bool:
    """It wrote all of that place anew."""
    return all(out.numel() >= t.numel() for t in read if _place(t) == _place(out))


def _rows(wrong: Tensor) -> tuple[int, ...]:
    if not wrong.dim():
        return ()
    return tuple(torch.nonzero(wrong.reshape(wrong.shape[0], -1).any(1)).flatten()[:ROWS_KEPT].tolist())


def _value_at(wrong: Tensor, read: Tensor, out: Tensor) -> float | None:
    """The number of an input that stands where the result is first bad; None where it was overwritten or reduced."""
    if _place(read) == _place(out) or read.device != wrong.device or not bool(wrong.any()):
        return None
    try:
        spread = torch.broadcast_to(read.detach(), wrong.shape)
    except RuntimeError:
        return None
    value = float(spread[tuple(torch.nonzero(wrong)[0])] if wrong.dim() else spread)
    return value if math.isfinite(value) else None
