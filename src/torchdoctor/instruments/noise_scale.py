"""The gradient noise scale: from which batch size on a larger batch stops to save steps.

McCandlish, Kaplan, Amodei and the OpenAI Dota Team, "An Empirical Model of Large-Batch Training" (2018), section 2.2
and appendix A.1. For a batch of B samples the squared norm of the gradient is |G|^2 + tr(Sigma) / B on average, so
that batches of two sizes give both parts without bias. Their ratio tr(Sigma) / |G|^2 is the simple noise scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import SequentialSampler

from torchdoctor.attach.guard import unseen
from torchdoctor.distributions.student import t_quantile
from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import apart, check_loader
from torchdoctor.instruments.learning_rate.sweep import unsynchronised
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import StepFn, Subject
from torchdoctor.instruments.tables import table
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import mark_place, new_figure
from torchdoctor.plots.palette import BAND, BLUE, GREY, ORANGE
from torchdoctor.stats import norms

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

REPEATS, LARGE = 10, 10
"""Large batches, and small ones in each: a hundred backward passes."""
LEAST_REPEATS, LEAST_LARGE = 3, 2
NEAR = 2.0
"""Batch over noise scale, or the reverse: within it a batch makes half to two thirds of the progress there is."""


@dataclass(frozen=True)
class NoiseScale(Result):
    scale: float
    """in samples; infinite where the gradient itself cannot be told from noise"""
    low: float
    high: float
    """of the confidence interval (Fieller's, over the repeats); high may be infinite"""
    confidence: float
    batch: int
    """samples of the small batch, the loader's own"""
    large: int
    """samples of the large batch"""
    signal: float
    """|G|^2, the squared norm of the gradient without noise"""
    noise: float
    """tr(Sigma), the variance of a single sample's gradient"""
    signals: NDArray[np.float64]
    noises: NDArray[np.float64]
    """of each repeat"""
    notes: tuple[str, ...] = ()

    def progress(self, batch: float) -> float:
        """What a step over so many samples gains, of what one along the exact gradient would."""
        return 0.0 if math.isinf(self.scale) else batch / (batch + self.scale)

    @property
    def reading(self) -> str:
        """What it says of the batch size: "small", "near", "large" or "unclear"."""
        if self.low > NEAR * self.batch:
            return "small"
        if self.high < self.batch / NEAR:
            return "large"
        if self.low <= NEAR * self.batch and self.high > NEAR**2 * max(self.scale, self.batch):
            return "unclear"
        return "near"

    @property
    def _estimated(self) -> bool:
        """There is a number to reckon with, not only a least one or none at all."""
        return math.isfinite(self.scale) and (self.low > 0 or math.isfinite(self.high))

    def __str__(self) -> str:
        headings = ("batch", "progress of a step", "samples for the same progress")
        lines = [
            f"Gradient noise scale: {self._headline()}.",
            f"  {self._words()}",
            f"  from {len(self.signals)} repeats of batches of {self.batch} and of {self.large} samples",
            *(f"  note: {note}" for note in self.notes),
            "",
            *([*table(headings, self._rows()), ""] if self._estimated else []),
            "  It holds for these weights: it is small at the start of a training and grows as the loss falls.",
        ]
        return "\n".join(lines)

    def _headline(self) -> str:
        if self._estimated:
            beyond = f"to {_samples(self.high)}" if math.isfinite(self.high) else "or more"
            unit = "sample" if _samples(self.scale) == "1" else "samples"
            interval = f"{self.confidence:.0%} sure: {_samples(self.low)} {beyond}"
            return f"about {_samples(self.scale)} {unit} ({interval})"
        if self.low > 0:
            return f"{_samples(self.low)} samples or more ({self.confidence:.0%} sure); how many cannot be told"
        seen = len(self.signals) * self.large // self.batch
        return f"it cannot be told from {seen} batches of {self.batch}; their gradients are lost in noise"

    def _words(self) -> str:
        batch, gain = self.batch, self.progress(2 * self.batch) / max(self.progress(self.batch), 1e-12)
        if self.reading == "unclear":
            return (
                f"At a batch of {batch} noise hides the gradient too well to say more; measure with a larger batch or "
                "more repeats."
            )
        if self.reading == "small":
            times = f"{gain:.2g}" if math.isfinite(self.scale) else "nearly 2"
            return (
                f"Your batch of {batch} is well below it: steps are mostly noise. Twice the batch makes {times} times "
                "the progress a step; larger batches (or accumulation) save steps at hardly any cost in samples."
            )
        if self.reading == "large":
            return (
                f"Your batch of {batch} is well above it: a step already makes {self.progress(batch):.0%} of the "
                f"progress it can.{self._smaller()}"
            )
        return (
            f"Your batch of {batch} is near it, where steps and samples are in balance: a step makes "
            f"{self.progress(batch):.0%} of the progress it can, twice the batch {gain:.2g} times as much."
        )

    def _smaller(self) -> str:
        """What a batch as small as the scale would cost and save: by the paper, steps go with 1 + scale / batch and
        samples with batch + scale."""
        other = max(1, self._rounded())
        if other >= self.batch:
            return ""
        steps = self.progress(self.batch) / self.progress(other)
        samples = (other + self.scale) / (self.batch + self.scale)
        return f" A batch of {other:,} would take {steps:.2g} times the steps and {100 * samples:.2g}% of the samples."

    def _rows(self) -> list[tuple[str, ...]]:
        sizes = sorted({max(1, self.batch // 4), self.batch, 4 * self.batch, 16 * self.batch, self._rounded()} - {0})
        rows = []
        for size in sizes:
            share = self.progress(size)
            more = f"{(size + self.scale) / (self.batch + self.scale):.2g} times"
            mark = " (yours)" if size == self.batch else " (noise scale)" if size == self._rounded() else ""
            rows.append((f"{size:,}{mark}", f"{share:.1%}", "as yours" if size == self.batch else more))
        return rows

    def _rounded(self) -> int:
        return round(self.scale) if math.isfinite(self.scale) else 0

    def plot(self) -> Figure:
        title = f"At a batch of {self.batch} a step makes {self.progress(self.batch):.0%} of the progress it can"
        if self.reading == "unclear":
            title = f"At a batch of {self.batch} noise hides the gradient too well to tell the scale"
        elif math.isinf(self.scale):
            title = f"At a batch of {self.batch} a step is nearly all noise"
        axis = {**LOG, "dtick": 1}
        chart = new_figure(title, "batch, samples", "progress of a step", xaxis=axis, yaxis_tickformat=".0%")
        ends = [v for v in (self.batch, self.scale, self.low, self.high) if math.isfinite(v) and v > 0]
        sizes = np.geomspace(max(1.0, min(ends) / 8), max(ends) * 16, 100)
        for low, name, line in (
            (self.low, "if the scale is at its low end", {"color": GREY, "dash": "dot"}),
            (self.high, "if the scale is at its high end", {"color": GREY, "dash": "dash"}),
            (self.scale, "estimate", {"color": BLUE}),
        ):
            if math.isfinite(low):
                chart.add_scatter(x=sizes, y=sizes / (sizes + low), mode="lines", name=name, line=line)
        mark_place(chart, self.batch, "your batch", ORANGE)
        if math.isfinite(self.scale) and self.scale > 0:
            chart.add_vrect(self.scale / NEAR, self.scale * NEAR, fillcolor=BAND, line_width=0, layer="below")
        return chart


@unseen()
@explained
def gradient_noise_scale(
    model: nn.Module,
    loader: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    step_fn: StepFn | None = None,
    repeats: int = REPEATS,
    large: int = LARGE,
    batch_size: int | None = None,
    confidence: float = 0.95,
    autocast: torch.dtype | None = None,
    progress: bool = True,
) -> NoiseScale:
    """Takes gradients of the loader's batches at the present weights, without a step, in one pass over the loader.

        print(torchdoctor.gradient_noise_scale(model, loader, nn.CrossEntropyLoss()))

    Each of `repeats` groups of `large` batches gives one estimate; shorter loaders are divided into what they have.
    `batch_size` is the number of samples in a batch where it cannot be read off the tensors. The loss has to be a mean
    over the samples, or a sum over batches of one size.
    """
    if repeats < LEAST_REPEATS or large < LEAST_LARGE:
        raise UsageError(
            f"repeats={repeats}, large={large}: an interval needs {LEAST_REPEATS} repeats of {LEAST_LARGE} batches"
        )
    if not 0 < confidence < 1:
        raise UsageError(f"confidence={confidence} has to lie between 0 and 1, such as 0.95")
    subject = Subject(model, loss_fn, step_fn=step_fn, autocast=autocast)
    return measure_noise_scale(
        subject,
        loader,
        repeats=repeats,
        large=large,
        batch_size=batch_size,
        confidence=confidence,
        progress=progress,
    )


def measure_noise_scale(
    subject: Subject,
    loader: Iterable[Any],
    *,
    repeats: int = REPEATS,
    large: int = LARGE,
    batch_size: int | None = None,
    confidence: float = 0.95,
    progress: bool = True,
) -> NoiseScale:
    check_loader(loader)
    repeats, large = _plan(loader, repeats, large)
    with (
        untouched(*subject.parts, loaders=(loader,)),
        apart(loader),
        torch.enable_grad(),
        progress_bar("gradients of batches", repeats * large, progress) as advance,
    ):
        if not subject.model.training:
            subject.model.train()
        groups, batch, seen = _gather(subject, loader, repeats, large, batch_size, advance)
        if len(groups) < LEAST_REPEATS and seen >= LEAST_REPEATS * LEAST_LARGE:
            # A loader that does not tell its length has told it now.
            repeats, large = _divide(seen, repeats, large)
            groups, batch, _ = _gather(subject, loader, repeats, large, batch_size, advance)
    if len(groups) < LEAST_REPEATS:
        raise UsageError(
            f"the loader gave {seen} batches of one size; {LEAST_REPEATS * LEAST_LARGE} are needed. Take a smaller "
            "batch, so that there are more of them"
        )
    small_R, big_R = np.array(groups).T
    signals, noises = separate(small_R, big_R, batch, large * batch)
    scale, low, high = ratio_interval(noises, signals, confidence)
    return NoiseScale(
        scale=scale,
        low=low,
        high=high,
        confidence=confidence,
        batch=batch,
        large=large * batch,
        signal=float(signals.mean()),
        noise=float(noises.mean()),
        signals=signals,
        noises=noises,
        notes=tuple(_notes(subject.model, loader)),
    )


def _plan(loader: Any, repeats: int, large: int) -> tuple[int, int]:
    """As many full groups as one pass gives: a second pass would only show the same samples again."""
    try:
        length = len(loader)
    except TypeError:
        return repeats, large
    if length >= repeats * large:
        return repeats, large
    needed = LEAST_REPEATS * LEAST_LARGE
    if length < needed:
        raise UsageError(
            f"the loader gives {length} batches; {needed} are needed. Take a smaller batch, so that there are more"
        )
    return _divide(length, repeats, large)


def _divide(length: int, repeats: int, large: int) -> tuple[int, int]:
    large = min(large, max(LEAST_LARGE, length // repeats))
    return min(repeats, length // large), large


def _gather(
    subject: Subject,
    loader: Iterable[Any],
    repeats: int,
    large: int,
    batch_size: int | None,
    advance: Callable[[], None],
) -> tuple[list[tuple[float, float]], int, int]:
    """Mean squared norm over the small batches of each group, and the squared norm of their mean; the samples of a
    batch, and how many batches there were."""
    held = [p for p in subject.model.parameters() if p.requires_grad]
    groups: list[tuple[float, float]] = []
    taken = 0
    size, sums, squares = batch_size, [torch.zeros_like(p) for p in held], []
    for batch in loader:
        count = samples_in(batch)
        if size is None and count is None:
            raise UsageError(f"a batch is a {type(batch).__name__} without a tensor; say how many samples: batch_size=")
        size = size or count
        if batch_size is None and count != size:
            continue
        squares.append(_backward(subject, held, batch, sums))
        taken += 1
        advance()
        if len(squares) == large:
            groups.append((float(np.mean(squares)), _square(sums) / large**2))
            torch._foreach_zero_(sums)
            squares = []
            if len(groups) == repeats:
                break
    if size is None:
        raise UsageError("the loader gives no batch; is its dataset empty, or drop_last=True with too few samples?")
    return groups, size, taken


def _backward(subject: Subject, held: list[nn.Parameter], batch: Any, sums: list[Tensor]) -> float:
    for parameter in held:
        parameter.grad = None
    # The mean over processes would be the gradient of another batch than the one that is counted.
    with unsynchronised(subject.model):
        loss = subject.loss(batch)
        if not loss.requires_grad:
            raise UsageError("the loss hangs on no trainable parameter; torchdoctor.overfit_batch says why")
        loss.backward()
    pairs = [(s, p.grad) for s, p in zip(sums, held, strict=True) if p.grad is not None]
    found = [grad.to_dense() if grad.is_sparse else grad for _, grad in pairs]
    with torch.no_grad():
        torch._foreach_add_([s for s, _ in pairs], found)
    square = _square(found)
    if not math.isfinite(square):
        raise UsageError("a gradient holds NaN or Inf; torchdoctor.find_nonfinite(model) says where")
    return square


def _square(tensors: list[Tensor]) -> float:
    return float(norms(tensors).double().square().sum())


def separate(
    small: NDArray[np.float64], big: NDArray[np.float64], small_size: int, big_size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """|G|^2 and tr(Sigma) from squared norms at two batch sizes: equations A.2 and A.3 of the paper."""
    signal = (big_size * big - small_size * small) / (big_size - small_size)
    noise = (small - big) / (1 / small_size - 1 / big_size)
    return signal, noise


def ratio_interval(
    above: NDArray[np.float64], below: NDArray[np.float64], confidence: float
) -> tuple[float, float, float]:
    """Ratio of two means over paired repeats, not below 0, with Fieller's interval, which is open where the lower mean
    cannot be told from zero (Fieller, "Some problems in interval estimation", 1954)."""
    count = len(above)
    top, bottom = float(above.mean()), float(below.mean())
    t = t_quantile(0.5 + confidence / 2, count - 1)
    cov = np.cov(above, below) / count * t * t
    a, b, c = bottom**2 - cov[1, 1], top * bottom - cov[0, 1], top**2 - cov[0, 0]
    ratio = max(0.0, top / bottom) if bottom > 0 else math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    if bottom > 0 and a > 0:
        return ratio, max(0.0, (b - root) / a), max(0.0, (b + root) / a)
    if top > 0 and c > 0 and a < 0:
        return ratio, max(0.0, (b - root) / a), math.inf
    return ratio, 0.0, math.inf


def _notes(model: nn.Module, loader: Any) -> list[str]:
    found = []
    if dist.is_available() and dist.is_initialized() and (count := dist.get_world_size()) > 1:
        found.append(f"of this process alone: a step over {count} processes has {count} times the batch")
    if isinstance(getattr(loader, "sampler", None), SequentialSampler):
        found.append("the loader does not shuffle; if neighbouring samples are alike, the scale comes out too large")
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules()):
        found.append("batch norm ties the samples of a batch together; take the scale as a rough one")
    return found


def _samples(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
