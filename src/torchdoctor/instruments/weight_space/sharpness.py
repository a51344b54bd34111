"""How sharp the place is where the weights are: by noise of several sizes, and by the ends of the Hessian's spectrum.

Noise is scaled by filters, so that the scale of a layer does not matter (Li et al. 2018), and each direction is taken
both ways, so that a slope cancels and curvature remains. The eigenvalues tell a plateau from a saddle and a minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from torchdoctor.attach.guard import unseen
from torchdoctor.distributions.intervals import mean_interval
from torchdoctor.errors import UsageError
from torchdoctor.facts import LandscapeFact
from torchdoctor.findings import Finding
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.overfitting.loss_reading import floor_of_loss, read_loss
from torchdoctor.instruments.progress import Advance, progress_bar
from torchdoctor.instruments.result import Result, plain
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import StepFn, Subject
from torchdoctor.instruments.tables import table
from torchdoctor.instruments.weight_space.critical_point import NOISE, CriticalPoint, judge
from torchdoctor.instruments.weight_space.hessian import Curvature, measure_curvature
from torchdoctor.instruments.weight_space.surface import Surface, length_of
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import mark_level, new_figure
from torchdoctor.plots.palette import BLUE, GREY
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters import plateau_or_saddle
from torchdoctor.run import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

RADII = (0.01, 0.05, 0.1, 0.2)
"""From what rounding to eight bits does to a weight up to what flat minima still bear."""
NEAR_EDGE = 0.9
"""Share of the edge of stability from which on training is at it: gradient descent hovers just below (Cohen et al.
2021)."""


@dataclass(frozen=True)
class Rise:
    """What noise of one size does."""

    radius: float
    """length of the noise in a filter over the filter's own norm"""
    mean: float
    """rise of the loss over the directions"""
    low: float
    high: float
    """the confidence interval of the mean"""
    each: list[float]


@dataclass(frozen=True)
class Sharpness(Result):
    loss: float
    rises: list[Rise]
    gradient_norm: float
    weight_norm: float
    parameters: int
    samples: int
    batches: int
    confidence: float
    curvature: Curvature | None
    point: CriticalPoint | None
    lr: float | None
    momentum: float
    notes: list[str]
    finding: Finding | None = None
    """plateau-or-saddle (H011) where that is what it is"""

    @property
    def kind(self) -> str | None:
        """flat, saddle, minimum, maximum or slope; None without eigenvalues"""
        return self.point.kind if self.point is not None else None

    @property
    def edge(self) -> float | None:
        """Up to this curvature gradient descent with this rate is stable: 2 / lr, with momentum 2 (1 + m) / lr."""
        return 2 * (1 + self.momentum) / self.lr if self.lr else None

    @property
    def doubling_radius(self) -> float | None:
        """Size of the noise that doubles the loss, between two that were tried; None if none does."""
        left, low = 0.0, 0.0
        for rise in self.rises:
            if not math.isfinite(rise.mean) or not self.loss:
                return None
            if rise.mean >= abs(self.loss):
                return left + (rise.radius - left) * (abs(self.loss) - low) / (rise.mean - low)
            left, low = rise.radius, rise.mean
        return None

    def __str__(self) -> str:
        lines = [self.point.text] if self.point is not None else []
        if self.finding is not None and self.finding.fix is not None:
            lines += [f"  {self.finding.name} ({self.finding.code}): {self.finding.fix.text}"]
        lines += ["", f"loss {figure(self.loss)} on {self.samples:,} samples; {self.parameters:,} weights are moved"]
        lines += self._noise_lines()
        if self.curvature is not None:
            lines += self._curvature_lines(self.curvature)
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)]).strip()

    def to_dict(self) -> dict[str, Any]:
        own = {"kind": self.kind, "edge": self.edge, "doubling_radius": self.doubling_radius}
        own["finding"] = self.finding.to_dict() if self.finding is not None else None
        return super().to_dict() | plain(own)

    def _noise_lines(self) -> list[str]:
        rows = [
            (
                f"{100 * r.radius:.3g}%",
                figure(self.loss + r.mean),
                f"{_signed(r.mean)} ({_signed(r.low)} to {_signed(r.high)})",
            )
            if math.isfinite(r.mean)
            else (
                f"{100 * r.radius:.3g}%",
                "not finite",
                f"in {sum(not math.isfinite(e) for e in r.each)} of {len(r.each)}",
            )
            for r in self.rises
        ]
        lines = table(("noise", "loss", f"rise, {self.confidence:.0%} interval"), rows)
        if self.doubling_radius is not None:
            lines.append(f"noise of about {self.doubling_radius:.1%} of each filter's norm doubles the loss")
        return lines

    def _curvature_lines(self, found: Curvature) -> list[str]:
        lines = [
            f"curvature: largest eigenvalue {figure(found.largest)} (within {figure(found.largest_error)}), smallest "
            f"{figure(found.smallest)} (within {figure(found.smallest_error)}), after {found.iterations} "
            "Hessian-vector products"
        ]
        if self.edge is None:
            return lines
        share, name = found.largest / self.edge, "2 (1 + momentum) / lr" if self.momentum else "2 / lr"
        if share > 1:
            says = f"{share:.3g} times that: gradient descent at this rate overshoots along the steepest direction"
        elif share > NEAR_EDGE:
            says = f"{share:.0%} of that: at the edge; the steepest direction oscillates"
        else:
            says = f"{share:.0%} of that: stable"
        return [*lines, f"edge of stability: {name} = {figure(self.edge)}; the largest eigenvalue is {says}"]

    def plot(self) -> Figure:
        finite = [r for r in self.rises if math.isfinite(r.mean)]
        title = f"{self.kind.capitalize()}: " if self.kind else ""
        title += _effect(finite[-1], self.loss) if finite else "any noise breaks the loss"
        drawing = new_figure(
            title[:1].upper() + title[1:], "noise, as a share of each filter's norm", "rise of the loss"
        )
        logarithmic = bool(finite) and all(r.mean > 0 for r in finite)
        drawing.add_scatter(
            x=[r.radius for r in finite],
            y=[r.mean for r in finite],
            error_y={
                "type": "data",
                "array": [r.high - r.mean for r in finite],
                "arrayminus": [r.mean - max(r.low, 1e-3 * r.mean if logarithmic else -math.inf) for r in finite],
            },
            mode="lines+markers",
            line={"color": BLUE},
            name=f"mean and {self.confidence:.0%} interval",
        )
        if logarithmic:
            drawing.update_xaxes(LOG, tickvals=[r.radius for r in finite])
            drawing.update_yaxes(LOG)
        if self.loss > 0:
            mark_level(drawing, self.loss, "the loss doubles", GREY, "dot")
        return drawing


@unseen()
@explained
def sharpness(
    model: nn.Module,
    loader: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    step_fn: StepFn | None = None,
    radii: Sequence[float] = RADII,
    directions: int = 10,
    batches: int = 4,
    eigenvalues: bool = True,
    iterations: int = 40,
    tolerance: float = 1e-3,
    lr: float | None = None,
    momentum: float = 0.0,
    training: bool = False,
    confidence: float = 0.95,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Sharpness:
    """How much noise raises the loss of the loader's first batches, and how the loss curves where the weights are.

    `radii` are sizes of noise as shares of each filter's norm, `directions` how many are drawn. `eigenvalues=False`
    leaves out the Hessian, which is the dear part: up to `iterations` products, fewer if both ends are known to
    `tolerance`. With `lr` (and `momentum`) of plain gradient descent the edge of stability is told; it does not hold
    for Adam, which rescales directions. The model is measured in eval mode unless `training`.
    """
    if batches < 1:
        raise UsageError(f"batches is {batches}; at least 1 is needed")
    subject = Subject(model, loss_fn, step_fn=step_fn, autocast=autocast)
    return measure_sharpness(
        subject,
        first_batches(loader, batches),
        radii=radii,
        directions=directions,
        eigenvalues=eigenvalues,
        iterations=iterations,
        tolerance=tolerance,
        lr=lr,
        momentum=momentum,
        training=training,
        confidence=confidence,
        seed=seed,
        progress=progress,
    )


def measure_sharpness(
    subject: Subject,
    batches: Sequence[Any],
    *,
    radii: Sequence[float] = RADII,
    directions: int = 10,
    eigenvalues: bool = True,
    iterations: int = 40,
    tolerance: float = 1e-3,
    lr: float | None = None,
    momentum: float = 0.0,
    training: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    progress: bool = True,
) -> Sharpness:
    _check(radii, directions, iterations, lr, confidence)
    generator = torch.Generator().manual_seed(seed)
    curvature, point, finding, notes = None, None, None, []
    total = 2 * directions * len(radii) + (iterations if eigenvalues else 0)
    with untouched(*subject.parts), torch.enable_grad(), progress_bar("sharpness", total, progress) as advance:
        surface = Surface(subject, batches, training=training)
        loss = surface.loss()
        if not math.isfinite(loss):
            raise UsageError(f"the loss at these weights is {loss}; there is nothing to compare with")
        slope, weights = length_of(gradient := surface.gradient()), length_of(surface.origin)
        rises = _rises(surface, loss, sorted(radii), directions, confidence, generator, advance)
        if eigenvalues:
            curvature = measure_curvature(
                surface, gradient, iterations=iterations, tolerance=tolerance, generator=generator, advance=advance
            )
            firm = min((r for r in rises if math.isfinite(r.mean)), key=lambda r: abs(r.radius - NOISE), default=None)
            noise = (firm.radius, firm.mean) if firm is not None else (NOISE, math.inf)
            point = judge(loss, slope, weights, surface.size, curvature, noise)
            finding = _judge(subject, batches[0], loss, slope, curvature, point)
            notes += _doubts(curvature)
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in surface.parameters):
        notes.append("weights are of half precision: rises smaller than its rounding are noise")
    if all(e == 0 for r in rises for e in r.each) and weights == 0:
        notes.append("all weights are zero, and so is noise that is scaled by them")
    samples = sum(samples_in(b) or 1 for b in batches)
    return Sharpness(
        loss, rises, slope, weights, surface.size, samples, len(batches), confidence, curvature, point, lr, momentum,
        notes, finding,
    )  # fmt: skip


def _rises(
    surface: Surface,
    loss: float,
    radii: Sequence[float],
    directions: int,
    confidence: float,
    generator: torch.Generator,
    advance: Advance,
) -> list[Rise]:
    found: list[list[float]] = [[] for _ in radii]
    for _ in range(directions):
        direction = surface.random_direction(generator)
        for radius, rises in zip(radii, found, strict=True):
            both = []
            for sign in (1, -1):
                surface.move((sign * radius, direction))
                both.append(surface.loss())
                advance()
            rises.append(sum(both) / 2 - loss)
    surface.move()
    return [
        Rise(radius, float(np.mean(rises)), *mean_interval(rises, confidence), rises)
        for radius, rises in zip(radii, found, strict=True)
    ]


def _check(radii: Sequence[float], directions: int, iterations: int, lr: float | None, confidence: float) -> None:
    if not radii or min(radii) <= 0:
        raise UsageError(f"radii are {tuple(radii)}; give shares of a filter's norm above 0, such as {RADII}")
    if directions < 2 or iterations < 1:
        raise UsageError(
            f"{directions} directions and {iterations} iterations are too few; at least 2 and 1 are needed"
        )
    if lr is not None and lr <= 0:
        raise UsageError(f"lr is {lr}; it has to be above 0")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}; it lies between 0 and 1")


def _judge(
    subject: Subject, batch: Any, loss: float, slope: float, curvature: Curvature, point: CriticalPoint
) -> Finding | None:
    known = floor_of_loss(read_loss(subject, batch))
    fact = LandscapeFact(
        point.kind, point.text, loss, slope, point.gain, curvature.largest, curvature.smallest,
        known.value if known.known else None, known.guess,
    )  # fmt: skip
    said = plateau_or_saddle.detect(Run.holding(fact))
    return next((f for f in said if isinstance(f, Finding)), None)


def _doubts(curvature: Curvature) -> list[str]:
    notes = []
    if not curvature.converged:
        notes.append(
            f"the eigenvalues had not settled after {curvature.iterations} products; more iterations narrow them down"
        )
    if not curvature.exact:
        notes.append(
            "the model cannot be differentiated twice (a compiled or custom operation); curvature comes from gradients "
            "nearby"
        )
    return notes


def _effect(rise: Rise, loss: float) -> str:
    times = rise.mean / abs(loss) if loss else math.inf
    if not -10 < times < 10:
        return f"noise of {rise.radius:.0%} takes the loss from {figure(loss)} to {figure(loss + rise.mean)}"
    return f"noise of {rise.radius:.0%} {'raises' if times >= 0 else 'lowers'} the loss by {abs(times):.1%}"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "") + figure(value)
