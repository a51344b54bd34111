"""Where to clip gradients: the norms of a training without clipping, and what each threshold would do to them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import check_loader, endless
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import StepFn, Subject
from torchdoctor.instruments.tables import table
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import mark_level, new_figure
from torchdoctor.plots.palette import BAND, BLUE, ORANGE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.rules.movement import OF_TORCH, PLAIN
from torchdoctor.rules.norms import CALM, read_norms

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STEPS = 200
"""The 95th percentile of so many norms rests on ten of them."""
LEAST_STEPS = 20
"""As the rule on clipping that is too tight wants them."""
USUAL = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
"""Thresholds that people copy from each other; 1.0 is that of most language models."""
DOMINANT = 10.0
"""Largest norm over the median from which a single step can undo many."""
MOST_SKIPPED = 200
"""Updates that a GradScaler may skip: halving its scale so often takes it from the largest float down to one."""


@dataclass(frozen=True)
class Threshold:
    value: float
    acts: float
    """share of the steps that it would cut"""
    keeps: float
    """what is left of the typical step that it cuts; 1 where it cuts none"""


@dataclass(frozen=True)
class ClippingAdvice(Result):
    norms: NDArray[np.float64]
    """of the gradient before each update, without clipping"""
    losses: NDArray[np.float64]
    """before the same updates"""
    recommended: float
    median: float
    percentile_95: float
    largest: float
    table: tuple[Threshold, ...]
    trend: str
    """"steady", "falling" or "rising\""""
    change: float
    """level at the end over level at the beginning"""
    spikes: int
    """steps with more than five times the median"""
    adaptive: bool
    """the optimizer divides the gradient's size out, as Adam does"""
    broke_at: int | None
    """the first step whose norm was NaN or Inf"""
    in_use: float | None = None

    @property
    def needed(self) -> bool:
        """Whether single steps stand out so far that cutting them makes a difference."""
        return self.broke_at is not None or self.largest > CALM * self.median

    @property
    def warnings(self) -> list[str]:
        found = []
        if self.broke_at is not None:
            found.append(f"Without clipping the gradient was NaN or Inf at step {self.broke_at}; norms end there.")
        if len(self.norms) < LEAST_STEPS:
            found.append(f"Only {len(self.norms)} norms: a 95th percentile needs {LEAST_STEPS} and better {STEPS}.")
        if self.trend == "falling":
            found.append(
                f"The norms still fall, to {self.change:.2g} of where they began: this is the second half's threshold; "
                "look again later in training."
            )
        if self.trend == "rising":
            found.append(
                f"The norms grow, {figure(self.change)}-fold during the look: clipping hides that, a lower rate or "
                "warmup cures it."
            )
        if self.median == 0:
            found.append("Most steps have no gradient at all: torchdoctor.gradient_summary shows where it is lost.")
        elif self.largest > DOMINANT * self.median:
            share = self.spikes / max(1, len(self.norms))
            found.append(
                f"Spikes dominate: the largest norm is {figure(self.largest / self.median)} times the median, and "
                f"{share:.1%} of the steps exceed five times it. Look at their batches."
            )
        return found

    def __str__(self) -> str:
        value = figure(self.recommended).replace(",", "")
        acts = self._acts
        if self.trend == "rising":
            lines = [f"The norms grow {figure(self.change)}-fold without clipping: look at the learning rate first."]
            lines.append(f"  To cut the exceptional ones of the second half ({acts:.1%}), clip at {value}.")
        elif self.needed:
            lines = [f"Clip at {value}: it cuts {acts:.1%} of the steps, the exceptional ones."]
        else:
            lines = [f"Clipping is hardly needed: no norm is above {self.largest / self.median:.2g} times the median."]
            lines.append(f"  As a safety net {value} would cut {acts:.1%} of the steps.")
        lines.append(f"  torch.nn.utils.clip_grad_norm_(model.parameters(), {value})")
        lines += [f"  warning: {text}" for text in self.warnings]
        if self.adaptive:
            lines.append("  This optimizer divides the gradient's size out: a threshold only matters for spikes.")
        lines.append(
            f"  {len(self.norms)} norms: median {figure(self.median)}, 95th percentile {figure(self.percentile_95)}, "
            f"largest {figure(self.largest)}"
        )
        rows = [(f"{figure(t.value)}{self._mark(t)}", f"{t.acts:.1%}", f"{t.keeps:.0%}") for t in self.table]
        return "\n".join([*lines, "", *table(("threshold", "steps cut", "left of a cut step"), rows)])

    @property
    def _acts(self) -> float:
        """How often the recommendation would cut, of the steps that it rests on."""
        return next((t.acts for t in self.table if t.value == self.recommended), math.nan)

    def _mark(self, threshold: Threshold) -> str:
        if threshold.value == self.in_use:
            return " (in use)"
        return " (recommended)" if threshold.value == self.recommended else ""

    def plot(self) -> Figure:
        steps, above = np.arange(len(self.norms)), self.norms > self.recommended
        steady = self.trend == "steady"
        title = f"{self._acts:.1%} of the {'' if steady else 'later '}gradient norms exceed {figure(self.recommended)}"
        if not steady:
            title += f", and the norms are {self.trend}"
        chart = new_figure(title, "step", "gradient norm before clipping", yaxis=LOG)
        for name, keep, colour, symbol in (("kept", ~above, BLUE, "circle"), ("cut", above, RED, "x")):
            chart.add_scatter(
                x=steps[keep],
                y=self.norms[keep],
                mode="markers",
                name=name,
                marker={"color": colour, "symbol": symbol},
            )
        mark_level(chart, self.recommended, "recommended", RED)
        mark_level(chart, self.median, "median", BLUE, "dot")
        if self.in_use is not None:
            mark_level(chart, self.in_use, "in use", ORANGE)
        low = float(self.norms[self.norms > 0].min(initial=self.recommended)) / 2
        chart.add_hrect(low, self.recommended, fillcolor=BAND, line_width=0, layer="below")
        return chart


@unseen()
@explained
def suggest_clipping(
    model: nn.Module,
    optimizer: Optimizer,
    loader: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    step_fn: StepFn | None = None,
    steps: int = STEPS,
    accumulate: int = 1,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    autocast: torch.dtype | None = None,
    scaler: Any = None,
    progress: bool = True,
) -> ClippingAdvice:
    """Trains for so many steps without clipping and proposes a threshold; then everything is as it was.

        print(torchdoctor.suggest_clipping(model, optimizer, loader, nn.CrossEntropyLoss()))

    `max_norm` is the threshold in use, if any, to see it in the table. `accumulate` batches make up an update; their
    gradients are averaged. `norm_type` is that of clip_grad_norm_. `autocast` is the type of mixed precision, `scaler`
    its GradScaler: norms are those after scaler.unscale_(optimizer), and updates that it skips have none.
    """
    if steps < 2 or accumulate < 1:
        raise UsageError(f"steps={steps}, accumulate={accumulate}: at least two steps of one batch each are needed")
    if max_norm is not None and not max_norm > 0:
        raise UsageError(f"max_norm={max_norm} cuts everything; a threshold is above 0")
    subject = Subject(model, loss_fn, step_fn=step_fn, autocast=autocast)
    return measure_clipping(
        subject,
        optimizer,
        loader,
        steps=steps,
        accumulate=accumulate,
        max_norm=max_norm,
        norm_type=norm_type,
        scaler=scaler,
        progress=progress,
    )


def measure_clipping(
    subject: Subject,
    optimizer: Optimizer,
    loader: Iterable[Any],
    *,
    steps: int = STEPS,
    accumulate: int = 1,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scaler: Any = None,
    progress: bool = True,
) -> ClippingAdvice:
    check_loader(loader)
    stepper = _Stepper(subject, optimizer, norm_type, scaler)
    with (
        untouched(*subject.parts, optimizer, scaler, loaders=(loader,)),
        torch.enable_grad(),
        contextlib.closing(endless(loader)) as batches,
        progress_bar("training without clipping", steps, progress) as advance,
    ):
        if not subject.model.training:
            subject.model.train()
        norms, losses = [], []
        while len(norms) < steps:
            norm, loss = stepper(list(islice(batches, accumulate)))
            if not math.isfinite(norm) and stepper.still_scales(loss):
                continue
            norms.append(norm)
            losses.append(loss)
            advance()
            if not math.isfinite(norm):
                break
    name = type(optimizer).__name__
    return advise(np.array(norms), np.array(losses), max_norm, name in OF_TORCH and name not in PLAIN)


class _Stepper:
    """One update without clipping; gives the norm of its gradient, and the loss before it."""

    def __init__(self, subject: Subject, optimizer: Optimizer, norm_type: float, scaler: Any) -> None:
        if not isinstance(optimizer, Optimizer):
            raise UsageError(f"optimizer is a {type(optimizer).__name__}, not a torch.optim.Optimizer")
        if scaler is not None and not hasattr(scaler, "is_enabled"):
            raise UsageError(f"scaler is a {type(scaler).__name__}, not a torch.amp.GradScaler")
        self._subject, self._optimizer, self._norm_type = subject, optimizer, norm_type
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._searches = isinstance(optimizer, torch.optim.LBFGS)
        if self._searches and self._scaler is not None:
            raise UsageError(
                "LBFGS takes a closure, which a GradScaler cannot serve; leave `scaler` out (bfloat16 needs none)"
            )
        self._skipped = 0

    def __call__(self, batches: list[Any]) -> tuple[float, float]:
        seen: list[tuple[float, float]] = []

        def closure() -> torch.Tensor:
            loss = self._backward(batches)
            seen.append((float(nn.utils.clip_grad_norm_(self._held(), math.inf, self._norm_type)), float(loss)))
            return loss

        if self._searches:
            self._optimizer.step(closure)
            return seen[0]
        closure()
        if self._scaler is not None:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        elif math.isfinite(seen[0][0]):
            self._optimizer.step()
        return seen[0]

    def still_scales(self, loss: float) -> bool:
        """After a gradient that is not finite: whether that may be the scale's doing, which a scaler finds by trial."""
        self._skipped += 1
        scaling = self._scaler is not None and self._scaler.get_scale() >= 1 and self._skipped < MOST_SKIPPED
        return scaling and math.isfinite(loss)

    def _held(self) -> list[nn.Parameter]:
        """Of the model, and with a scaler of the optimizer: it unscales these alone."""
        trained = [p for p in self._subject.model.parameters() if p.requires_grad]
        if self._scaler is None:
            return trained
        own = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        return [p for p in trained if id(p) in own]

    def _backward(self, batches: list[Any]) -> torch.Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device="cpu")
        for batch in batches:
            loss = self._subject.loss(batch) / len(batches)
            if not loss.requires_grad:
                raise UsageError("the loss hangs on no trainable parameter; torchdoctor.overfit_batch says why")
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            total = total + loss.detach().float().cpu()
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        return total


def advise(
    norms: NDArray[np.float64], losses: NDArray[np.float64], in_use: float | None = None, adaptive: bool = False
) -> ClippingAdvice:
    """What these norms, one a step, ask for."""
    found = read_norms(norms)
    if found is None:
        seen = "NaN or Inf from the first step" if len(norms) and not np.isfinite(norms[0]) else "all zero"
        raise UsageError(f"the gradients are {seen}, so there is no norm to clip at; see torchdoctor.gradient_summary")
    kept, recommended = found.kept, found.recommended
    values = {v for v in USUAL if kept.min() / 2 <= v <= 2 * kept.max()} | {recommended, in_use or recommended}
    return ClippingAdvice(
        norms=kept,
        losses=losses[np.isfinite(norms)],
        recommended=recommended,
        median=found.median,
        percentile_95=found.percentile_95,
        largest=found.largest,
        table=tuple(_threshold(v, found.basis) for v in sorted(values)),
        trend=found.trend,
        change=found.change,
        spikes=found.spikes,
        adaptive=adaptive,
        broke_at=found.broke_at,
        in_use=in_use,
    )


def _threshold(value: float, norms: NDArray[np.float64]) -> Threshold:
    cut = norms[norms > value]
    return Threshold(value, len(cut) / len(norms), float(np.median(value / cut)) if len(cut) else 1.0)
