"""Gradient clipping cuts nearly every step far down.

## What it means
Clipping is a safety net for rare, large gradients. Here the threshold lies so far below the usual gradient norm that
nearly every step is scaled down, most of them tenfold or more. With plain SGD the threshold then replaces the
gradient's size: every step has the same length, learning rate times threshold, whether the model is far from a good
place or close to it, and that length is a fraction of the one the rate was chosen for. Training is slow, and raising
the learning rate seems to do nothing.

## Why it happens
- A threshold copied from another model. 1.0 is usual for large language models with AdamW, whose norms are below 1;
  other models have norms of 10 or 1000.
- The loss is a sum over the batch, or its scale has changed, and the threshold did not follow.
- The threshold was lowered to stop a divergence whose cause was the learning rate.
- Gradients are clipped before a gradient scaler has unscaled them: then all norms are thousands of times too large.

## How it is detected
Every call that clips by norm gives the norm before it and the threshold. The finding needs at least 90 % of the steps
clipped and a typical norm ten times the threshold or more, after the first steps. It is a warning where the weights
hardly move (less than half a thousandth of their size a step), or where they move no faster than fast trainings do and
the loss has lost less than three quarters of its start and either has not fallen by a twentieth or falls to the very
end. Else clipping merely normalises the gradient and the rate makes up for it: then it is an info, as it always is for
optimizers such as Adam that divide the gradient's size out anyway. A threshold that never acts on a run that is stuck
is told as an info as well.

## How to fix it
Log the norms (`clip_grad_norm_` returns them) for a few hundred steps without clipping and set the threshold at their
90th to 95th percentile, so that only the exceptional steps are cut. The evidence names that number for this run.

## Known false alarms
Normalised gradient descent by choice, with a rate that is chosen for it. Recurrent language models with SGD use rates
of 20 and more together with thresholds of 0.25: their weights move, so no warning is given.

## References
Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (2013). Zhang et al., "Why
gradient clipping accelerates training" (2020). PyTorch documentation, "torch.nn.utils.clip_grad_norm_".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import ClipFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import curves, movement
from torchdoctor.rules.curves import Floats, figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import CLIP_NORM, CLIP_THRESHOLD, LOSS_TRAIN, UPDATE_RATIO

RULE = Rule(
    code="H006",
    name="clipping-too-tight",
    family="hyperparameters",
    needs=(CLIP_NORM, CLIP_THRESHOLD),
    explains=(
        *("capacity-too-low", "learning-rate-too-low", "underfitting", "majority-class-collapse", "plateau-or-saddle"),
    ),
)

MOST_CLIPPED = 0.9
"""A net that catches nine steps of ten is no net."""
FAR_BELOW = 10.0
"""Typical norm over threshold: the step is then a tenth of what the rate was chosen for."""
SLOW = 5e-4
"""Relative update of the weights, half of the usual: below it the cut steps hold training back."""
PUBLISHED = 0.1
"""Least of the thresholds that published trainings use with Adam (DETR 0.1; language models 0.5 to 1)."""
FAST = 4e-3
"""Relative update, four times the usual, from which on a step is long, however much of it was cut."""
POOR = 0.25
"""End over start: a run that clips on purpose, with a rate to match, gets below it."""
STILL_FALLING = 3.0
"""Standard errors of the slope over the last third."""
SUGGESTED = 95.0
"""Percentile of the norms at which a threshold only cuts the exceptional."""
SKIPPED = 0.1
"""Share of first steps left out: norms fall fast from a fresh start."""
LEAST_STEPS = 20


@dataclass(frozen=True)
class Clipping:
    """Norms before clipping, against the threshold at their step."""

    steps: Floats
    norms: Floats
    thresholds: Floats

    @property
    def share(self) -> float:
        return float((self.norms > self.thresholds * (1 + 1e-6)).mean())

    @property
    def excess(self) -> float:
        """The typical norm in units of the threshold."""
        return float(np.median(self.norms / self.thresholds))

    @property
    def suggested(self) -> float:
        return float(np.percentile(self.norms, SUGGESTED))


def detect(run: Run) -> Iterator[Finding]:
    for key in run.keys(CLIP_NORM):
        clipping = read(run, key)
        if clipping is None:
            continue
        if clipping.share >= MOST_CLIPPED and clipping.excess >= FAR_BELOW:
            yield _too_tight(run, clipping)
            return
        if clipping.share == 0 and _is_stuck(run):
            yield _never_acts(clipping)
            return


def read(run: Run, key: str) -> Clipping | None:
    """Norms and thresholds at the same steps, without the first tenth and without what is not finite."""
    norms, thresholds = run.scalar(CLIP_NORM, key), run.scalar(CLIP_THRESHOLD, key)
    if not len(norms) or not len(thresholds):
        return None
    threshold_S = np.interp(norms.steps, thresholds.steps, thresholds.values)
    keep = np.isfinite(norms.values) & np.isfinite(threshold_S) & (threshold_S > 0)
    keep[: int(SKIPPED * len(keep))] = False
    if keep.sum() < LEAST_STEPS:
        return None
    return Clipping(norms.steps[keep], norms.values[keep].astype(np.float64), threshold_S[keep])


def _is_stuck(run: Run) -> bool:
    """The loss has neither fallen nor is there any sign that it will: half of it and more is left of the start."""
    curve = curves.read(run.scalar(LOSS_TRAIN), closely=False)
    if len(curve) < 2 * LEAST_STEPS or curve.values.min() < 0:
        return False
    start, end = curves.level(curve.values, 0.1, end=False), curves.level(curve.values)
    return end > 0.95 * start and abs(curves.trend(curve.values).sigmas) < 3


def _is_slow(run: Run) -> bool:
    """Far from what it could reach, and not for lack of a way down: at its end the loss falls, or never fell."""
    loss = loss_curve(run)
    if loss is None or len(loss.curve) < 2 * LEAST_STEPS or loss.curve.values.min() < 0 or loss.end < POOR * loss.begin:
        return False
    values = loss.curve.values[2 * len(loss.curve) // 3 :]
    return loss.stuck or curves.trend(values).sigmas < -STILL_FALLING


def _is_published(run: Run, threshold: float) -> bool:
    """Return whether training goes on with a threshold in common use and an optimizer to which the norm is nothing."""
    loss = loss_curve(run)
    return movement.is_scale_free(run) and threshold >= PUBLISHED and loss is not None and not loss.stuck


def _too_tight(run: Run, clipping: Clipping) -> Finding:
    moved = movement.read(run)
    ratio = curves.median(moved.typical()) if moved is not None and moved.measured else None
    harmless = movement.is_scale_free(run) or (
        ratio is not None and ratio >= SLOW and not (ratio < FAST and _is_slow(run))
    )
    threshold, typical = float(np.median(clipping.thresholds)), float(np.median(clipping.norms))
    if ratio is not None and ratio < SLOW / 10 and not _is_published(run, threshold):
        harmless = False
    fact = run.last_fact(ClipFact)
    evidence = [
        Evidence(
            f"{clipping.share:.0%} of the steps were clipped; typical norm {figure(typical)}, "
            f"threshold {figure(threshold)}",
            CLIP_NORM.name,
            clipping.excess,
            FAR_BELOW,
            curves.spark(clipping.norms),
        ),
        Evidence(f"95 % of the norms are below {figure(clipping.suggested)}", CLIP_NORM.name, clipping.suggested),
    ]
    if ratio is not None:
        evidence.append(
            Evidence(f"a step changes the weights by {figure(ratio)} of their size", UPDATE_RATIO.name, ratio, SLOW)
        )
    return RULE.finding(
        severity=Severity.INFO if harmless else Severity.WARNING,
        confidence=0.6 if harmless else 0.88,
        title=f"Gradients are clipped to {figure(threshold)}, {figure(clipping.excess)} times below their usual norm",
        summary=(
            f"{clipping.share:.0%} of the steps are cut, the typical one from {figure(typical)} to "
            f"{figure(threshold)}. "
            + (
                "The weights still move as usual, so this mostly normalises the gradient."
                if harmless
                else "What is left of each step is too short to get anywhere soon."
            )
        ),
        fix=Fix(
            "Raise the threshold to where only exceptional gradients are cut.",
            f"torch.nn.utils.clip_grad_norm_(model.parameters(), {figure(clipping.suggested).replace(',', '')})",
        ),
        evidence=evidence,
        where=[Place(file=fact.file, line=fact.line)] if fact and fact.file else [],
        first_step=int(clipping.steps[0]),
        last_step=int(clipping.steps[-1]),
        symptoms=() if harmless else ("slow-descent",),
    )


def _never_acts(clipping: Clipping) -> Finding:
    threshold, largest = float(np.median(clipping.thresholds)), float(clipping.norms.max())
    return RULE.finding(
        severity=Severity.INFO,
        confidence=0.5,
        title=f"Clipping at {figure(threshold)} never acts: the largest norm was {figure(largest)}",
        summary="The loss is stuck, and clipping is not what holds it: no gradient ever reached the threshold.",
        fix=Fix("Nothing to change about clipping; look at the other findings for what holds the loss."),
        evidence=[Evidence(f"0 of {len(clipping.norms)} steps were clipped", CLIP_NORM.name, largest, threshold)],
        first_step=int(clipping.steps[0]),
    )
