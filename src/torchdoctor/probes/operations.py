"""Operations that give NaN or Inf from finite numbers: what the graph kept of them, on looks and when the loss breaks.

Autograd keeps an operation's input or result for its gradient, so the graph tells whether a log had a zero in it.
On looks at the graph the operations at risk are read; when a loss is not finite, all of the graph is, before its
backward runs, and the first operation that made something bad of good numbers is the birth. Lines are known for
the first steps; later the same operation in the same place of the graph has the same line.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.facts import OperationFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import ACCUMULATE, Graph, line_of, nearest_parameter
from torchdoctor.probes.saved import saved

NODES_LIMIT = 20_000
TRACES_KEPT = 3
"""Broken losses that are traced; the first is the one that matters."""
WRITTEN_LIMIT = 64
READ_LIMIT = 32
"""Operations that one look reads."""
SAMPLES_KEPT = 16
MOSTLY = 0.5
"""An overflow that does no more than set some values to zero is written again when it has taken this share."""
CASTS = ("ToCopyBackward0", "ViewBackward0", "UnsafeViewBackward0", "TransposeBackward0")
LOG, DIVISION, SQRT, EXP, HALF = "log", "division", "sqrt", "exp", "half"


@dataclass(frozen=True)
class Reading:
    """What one operation kept."""

    trouble: str
    bad: Tensor
    """where it is over the edge"""
    infinite: bool
    """its result is not finite there"""
    low: float
    dtype: str
    clean: bool
    """what went into it was finite, as far as it can be seen"""


def _saved(node: Any, name: str) -> Tensor | None:
    value = saved(node, name)
    return value.detach() if value is not None and value.numel() else None


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _input(trouble: str, x: Tensor, bad: Tensor, infinite: bool) -> Reading:
    return Reading(trouble, bad, infinite, float(x.min()), _dtype(x), bool(x.isfinite().all()))


def _log(node: Any) -> Reading | None:
    x = _saved(node, "self")
    edge = -1.0 if node.name().startswith("Log1P") else 0.0
    return _input(LOG, x, x <= edge, True) if x is not None else None


def _divide(node: Any) -> Reading | None:
    other, x = _saved(node, "other"), _saved(node, "self")
    if other is None:
        return None
    reading = _input(DIVISION, other.abs(), other == 0, True)
    clean = reading.clean and (x is None or bool(x.isfinite().all()))
    return Reading(DIVISION, reading.bad, True, reading.low, reading.dtype, clean)


def _invert(node: Any) -> Reading | None:
    """1 / x and 1 / sqrt(x) keep their result: infinite where x is zero."""
    y = _saved(node, "result")
    return Reading(DIVISION, y.isinf(), True, 0.0, _dtype(y), not bool(y.isnan().any())) if y is not None else None


def _spread(node: Any) -> Reading | None:
    """A standard deviation or variance of too few values is 0 / 0."""
    x, correction = _saved(node, "self"), getattr(node, "_saved_correction", None)
    if x is None:
        return None
    dims = getattr(node, "_saved_dim", None) or tuple(range(x.dim()))
    count = 1
    for dim in dims:
        count *= x.shape[dim if dim < x.dim() else dim - 2**64]
    few = count <= (1 if correction is None else correction)
    bad = torch.full((1,), bool(few))
    return Reading(DIVISION, bad, True, float(count), _dtype(x), bool(x.isfinite().all()))


def _average(node: Any) -> Reading | None:
    """The mean of nothing."""
    count = getattr(node, "_saved_self_sym_numel", None)
    if count is None:
        return None
    return Reading(DIVISION, torch.full((1,), int(count) == 0), True, float(int(count)), "float32", True)


def _root(node: Any) -> Reading | None:
    y = _saved(node, "result")
    if y is None:
        return None
    bad = y.isnan() | (y == 0)
    low = float(y.nan_to_num(0.0).min())
    return Reading(SQRT, bad, bool(y.isnan().any()), low, _dtype(y), not bool(y.isinf().any()))


def _power(node: Any) -> Reading | None:
    x, exponent = _saved(node, "self"), getattr(node, "_saved_exponent", None)
    if x is None or not isinstance(exponent, int | float) or exponent >= 1 or exponent == 0:
        return None
    if exponent < 0:
        return _input(DIVISION, x.abs(), x == 0, True)
    return _input(SQRT, x, x <= 0, bool((x < 0).any()))


def _grow(node: Any) -> Reading | None:
    y = _saved(node, "result")
    if y is None:
        return None
    bad = y.isinf()
    high = float(y.nan_to_num(0.0, posinf=torch.finfo(y.dtype).max).max())
    return Reading(EXP, bad, True, high, _dtype(y), not bool(y.isnan().any()))


READERS: dict[str, Callable[[Any], Reading | None]] = {
    **dict.fromkeys(("LogBackward0", "Log2Backward0", "Log10Backward0", "Log1PBackward0"), _log),
    "DivBackward0": _divide,
    **dict.fromkeys(("ReciprocalBackward0", "RsqrtBackward0"), _invert),
    **dict.fromkeys(("StdBackward0", "VarBackward0", "StdMeanBackward0", "VarMeanBackward0"), _spread),
    "MeanBackward0": _average,
    "SqrtBackward0": _root,
    "PowBackward0": _power,
    **dict.fromkeys(("ExpBackward0", "Expm1Backward0"), _grow),
}
"""Operators at risk, by autograd's name for their gradient."""

LOOKED = frozenset(name for name, reader in READERS.items() if reader in (_log, _divide, _invert, _root, _power))
"""Those whose gradient alone can be infinite where their result did no harm: read while the loss is finite."""


SWALLOWING = {
    "DivBackward0": ("other", math.inf),
    "SqrtBackward0": ("result", math.inf),
    "RsqrtBackward0": ("result", 0.0),
    "ReciprocalBackward0": ("result", 0.0),
    "LinalgVectorNormBackward0": ("result", math.inf),
    "NormBackward1": ("result", math.inf),
}
"""Where an infinity is divided by and gone: what float16 operators keep, and the value that only an overflow gives."""


class OperationProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._traces = 0
        self._lines: dict[tuple[str, int], tuple[str, int]] = {}
        self._written: set[tuple[Any, ...]] = set()

    @contained("operations: look")
    def look(self, loss: Tensor, graph: Graph) -> None:
        """On a look at the graph: free where it holds no operation at risk."""
        if not loss.is_cpu or graph.opaque or not bool(loss.detach().isfinite().all()):
            return  # of a loss that is broken `trace` tells more
        self._look_swallowed(graph)
        traced = loss.grad_fn is not None and line_of(loss.grad_fn) is not None
        wanted = READERS.keys() if traced else LOOKED
        if wanted.isdisjoint(graph.operators):
            return
        nodes = [n for n in in_order(loss) if n.name() in READERS]
        if traced:
            self._learn_lines(nodes)
        for at, node in list(_numbered([n for n in nodes if n.name() in LOOKED]))[:READ_LIMIT]:
            reading = READERS[node.name()](node)
            if reading is not None:
                self._write(node, at, reading, born=False)

    def _look_swallowed(self, graph: Graph) -> None:
        """A float16 denominator that is infinite: the quotient is zero, and no loss ever shows it."""
        if SWALLOWING.keys().isdisjoint(graph.operators):
            return
        nodes = sorted((n for n in graph.nodes if n.name() in SWALLOWING), key=lambda node: node._sequence_nr())
        if line_of(nodes[0]) is not None:
            self._learn_lines(nodes)
        for at, node in list(_numbered(nodes))[:READ_LIMIT]:
            name, overflown = SWALLOWING[node.name()]
            kept = _saved(node, name)
            if kept is None or kept.dtype != torch.float16:
                continue
            bad = kept == overflown
            if bool(bad.any()):
                high = float(kept.masked_fill(bad, 0.0).max())
                self._write(node, at, Reading(HALF, bad, True, high, _dtype(kept), True), born=False)

    @contained("operations: trace")
    def trace(self, loss: Tensor | None) -> None:
        """The loss is not finite: find the first operation that made it so."""
        if loss is None or not loss.is_cpu or self._traces >= TRACES_KEPT:
            return
        self._traces += 1
        nodes = list(in_order(loss))
        numbers = {id(node): at for at, node in _numbered([n for n in nodes if n.name() in READERS])}
        for node in nodes:
            reader = READERS.get(node.name())
            reading = reader(node) if reader is not None else None
            if reading is not None and reading.infinite and reading.clean and bool(reading.bad.any()):
                self._write(node, numbers[id(node)], reading, born=True)
                return
            half = None if reading is not None else _overflow(node)
            if half is not None:
                self._write(node, -1, half, born=True)
                return
            if any(bool(t.isnan().any()) for t in _kept(node)):
                self._blame_half(node)
                return
        if loss.dtype == torch.float16:
            self._blame_half(loss.grad_fn)

    def _blame_half(self, node: Any) -> None:
        """The first NaN stands in an operation that had its input from half precision: there it overflowed."""
        maker = _half_maker(node)
        if maker is not None:
            reading = Reading(HALF, torch.ones(1, dtype=torch.bool), True, float("inf"), "float16", True)
            self._write(maker, -1, reading, born=True)

    def _learn_lines(self, nodes: list[Any]) -> None:
        for at, node in _numbered(nodes):
            place = line_of(node)
            if place is not None:
                self._lines[node.name(), at] = (place.file, place.line)

    def _line(self, node: Any, at: int) -> tuple[str | None, int | None]:
        place = line_of(node)
        if place is not None:
            return place.file, place.line
        name = node.name()
        lines = {line for (op, _), line in self._lines.items() if op == name}
        known = self._lines.get((name, at))
        if len(lines) == 1:
            return next(iter(lines))
        return known or (None, None)

    def _write(self, node: Any, at: int, reading: Reading, born: bool) -> None:
        bad = reading.bad
        count = int(bad.sum())
        file, line = self._line(node, at)
        mostly = reading.trouble == HALF and count >= MOSTLY * bad.numel()
        seen = (node.name(), at, reading.trouble, count > 0, mostly, born)
        if seen in self._written or len(self._written) >= WRITTEN_LIMIT:
            return
        self._written.add(seen)
        rows = bad.reshape(bad.shape[0], -1).any(1) if bad.dim() else bad.reshape(1)
        parameter, _ = nearest_parameter(node)
        name = self._context.names.name_of(parameter) if parameter is not None else None
        fact = OperationFact(
            trouble=reading.trouble,
            operator=node.name().partition("Backward")[0],
            over=count > 0,
            born=born,
            count=count,
            total=bad.numel(),
            low=reading.low,
            dtype=reading.dtype,
            samples=torch.nonzero(rows).flatten()[:SAMPLES_KEPT].tolist() if len(rows) > 1 else [],
            module=name.rpartition(".")[0] or name if name else None,
            file=file,
            line=line,
        )
        self._context.record.fact(fact, self._context.step, f"{node.name()}/{at}")


def in_order(loss: Tensor) -> Iterator[Any]:
    """Every operator behind the loss, in the order in which the forward pass made them."""
    start = loss.grad_fn
    if start is None:
        return
    seen, queue = {start}, deque([start])
    while queue and len(seen) < NODES_LIMIT:
        for child, _ in queue.popleft().next_functions:
            if child is not None and child not in seen and child.name() != ACCUMULATE:
                seen.add(child)
                queue.append(child)
    yield from sorted(seen, key=lambda node: node._sequence_nr())


def _numbered(nodes: list[Any]) -> Iterator[tuple[int, Any]]:
    """Each with its place among the operators of its own name."""
    count: Counter[str] = Counter()
    for node in nodes:
        yield count[node.name()], node
        count[node.name()] += 1


def _kept(node: Any) -> Iterator[Tensor]:
    for name in dir(node):
        if name.startswith("_saved_"):
            tensor = _saved(node, name.removeprefix("_saved_"))
            if tensor is not None and tensor.is_floating_point():
                yield tensor


def _half_maker(node: Any) -> Any | None:
    """The operator that gave this one a tensor in half precision, itself included; casts are passed over."""
    waiting = [node, *(child for child, _ in node.next_functions if child is not None)]
    waiting += [c for n in waiting[1:] if n.name() in CASTS for c, _ in n.next_functions if c is not None]
    for candidate in waiting:
        metadata = getattr(candidate, "_input_metadata", None)
        if metadata and metadata[0].dtype == torch.float16 and candidate.name() != ACCUMULATE:
            return candidate
    return None


def _overflow(node: Any) -> Reading | None:
    """Something in half precision is infinite that came out of an ordinary operation."""
    for tensor in _kept(node):
        if tensor.dtype == torch.float16 and bool(tensor.isinf().any()) and not bool(tensor.isnan().any()):
            high = float(tensor.abs().nan_to_num(0.0, posinf=0.0).max())
            return Reading(HALF, tensor.isinf(), True, high, _dtype(tensor), True)
    return None
