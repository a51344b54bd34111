"""Which tensors of a model hold NaN or Inf: parameters, buffers, gradients, and what an optimizer remembers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.errors import UsageError
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.tables import table
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import ORANGE, RED
from torchdoctor.signals import STATISTICS
from torchdoctor.stats import summarize

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COUNT = STATISTICS.index("nonfinite")
MOST_ROWS = 20


@dataclass(frozen=True)
class NonfiniteTensor:
    """One tensor with NaN or Inf in it."""

    kind: str
    """"parameter", "buffer", "gradient" or "optimizer state\""""
    name: str
    shape: tuple[int, ...]
    nan: int
    inf: int
    first: tuple[int, ...]
    """index of the first such element"""

    @property
    def share(self) -> float:
        return (self.nan + self.inf) / max(1, math.prod(self.shape))


@dataclass(frozen=True)
class NonfiniteReport(Result):
    """`found` in the model's own order, parameters first, then buffers, gradients and optimizer state."""

    found: tuple[NonfiniteTensor, ...]
    examined: dict[str, int]
    """how many tensors of each kind were looked at"""
    not_examined: tuple[str, ...]

    @property
    def finite(self) -> bool:
        return not self.found

    @property
    def first(self) -> NonfiniteTensor | None:
        return self.found[0] if self.found else None

    def __bool__(self) -> bool:
        return bool(self.found)

    def __str__(self) -> str:
        looked = ", ".join(f"{count} {_plural(kind, count)}" for kind, count in self.examined.items() if count)
        unseen = [f"  not examined: {', '.join(self.not_examined)}"] if self.not_examined else []
        if not self.found:
            return "\n".join([f"All is finite: {looked}.", *unseen])
        head = ", ".join(
            f"{count} of {self.examined[kind]} {_plural(kind, self.examined[kind])}"
            for kind in self.examined
            if (count := sum(f.kind == kind for f in self.found))
        )
        rows = [_row(f) for f in self.found[:MOST_ROWS]]
        lines = [f"NaN or Inf in {head}.", f"  {self._reading()}", ""]
        lines += table(("tensor", "kind", "NaN", "Inf", "of", "first at"), rows)
        if len(self.found) > MOST_ROWS:
            lines.append(f"  ... and {len(self.found) - MOST_ROWS} more")
        return "\n".join([*lines, *unseen])

    def _reading(self) -> str:
        kinds = {f.kind for f in self.found}
        if kinds == {"gradient"}:
            return "Only gradients are broken: the weights can be saved by not taking this step (zero_grad, go on)."
        if kinds == {"buffer"}:
            return "Only buffers are broken: a batch with NaN went into the running statistics of a normalisation."
        if "parameter" in kinds:
            return (
                "The weights themselves are broken: go back to a checkpoint; torchdoctor replay finds where it began."
            )
        if "optimizer state" in kinds:
            return "The optimizer's state is broken: its next step breaks the weights. Make a new optimizer."
        return "The next step would break the weights: skip it with zero_grad()."

    def plot(self) -> Figure:
        count = len(self.found)
        holding = "1 tensor holds" if count == 1 else f"{count} tensors hold" if count else "No tensor holds"
        title = f"{holding} NaN or Inf"
        if self.first is not None:
            title += f", the first is {self.first.name} ({self.first.kind})"
        chart = new_figure(title, "share of elements", "tensor", barmode="stack", xaxis_tickformat="~%")
        names = [f"{f.name} ({f.kind})" for f in self.found]
        sizes = [max(1, math.prod(f.shape)) for f in self.found]
        for part, colour in (("nan", RED), ("inf", ORANGE)):
            shares = [getattr(f, part) / size for f, size in zip(self.found, sizes, strict=True)]
            name = "NaN" if part == "nan" else "Inf"
            chart.add_bar(y=names, x=shares, orientation="h", name=name, marker_color=colour)
        chart.update_yaxes(autorange="reversed")
        if not count:
            chart.update_xaxes(visible=False).update_yaxes(visible=False)
            chart.add_annotation(text=str(self).splitlines()[0], showarrow=False, font_size=18)
        return chart


def find_nonfinite(model: nn.Module, optimizer: Optimizer | None = None) -> NonfiniteReport:
    """Looks at every parameter, buffer and gradient, and with an optimizer at its state as well. The result is true
    where something was found.

        if bad := torchdoctor.find_nonfinite(model):
            print(bad)
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    tensors = [*_tensors(model), *_state(model, optimizer)]
    examined = {kind: sum(k == kind for k, _, _ in tensors) for kind in ("parameter", "buffer", "gradient")}
    if optimizer is not None:
        examined["optimizer state"] = sum(k == "optimizer state" for k, _, _ in tensors)
    counts = summarize([t for _, _, t in tensors])[:, COUNT].tolist() if tensors else []
    found, unseen = [], []
    for (kind, name, tensor), count in zip(tensors, counts, strict=True):
        if math.isnan(count):
            unseen.append(name)
        elif count:
            found.append(_look(kind, name, tensor))
    return NonfiniteReport(tuple(found), examined, tuple(unseen))


def _tensors(model: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    parameters = [(n, p) for n, p in model.named_parameters() if not nn.parameter.is_lazy(p)]
    yield from (("parameter", n, p.detach()) for n, p in parameters)
    yield from (("buffer", n, b) for n, b in model.named_buffers() if b.is_floating_point() or b.is_complex())
    yield from (("gradient", n, p.grad) for n, p in parameters if p.grad is not None)


def _state(model: nn.Module, optimizer: Optimizer | None) -> Iterator[tuple[str, str, Tensor]]:
    if optimizer is None:
        return
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"optimizer is a {type(optimizer).__name__}, not a torch.optim.Optimizer")
    names = {p: n for n, p in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.is_floating_point():
                yield "optimizer state", f"{names.get(parameter, 'a parameter of another model')}: {key}", value


@torch.no_grad()
def _look(kind: str, name: str, tensor: Tensor) -> NonfiniteTensor:
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    bad = ~torch.isfinite(dense)
    nan = int(torch.isnan(dense).sum())
    where = torch.nonzero(bad)[0].tolist() if dense.dim() else []
    return NonfiniteTensor(kind, name, tuple(dense.shape), nan, int(bad.sum()) - nan, tuple(map(int, where)))


def _row(f: NonfiniteTensor) -> tuple[str, ...]:
    where = str(list(f.first)) if f.first else "itself"
    return (f.name, f.kind, str(f.nan), str(f.inf), f"{math.prod(f.shape):,}", where)


def _plural(kind: str, count: int) -> str:
    return kind if count == 1 or kind == "optimizer state" else f"{kind}s"
