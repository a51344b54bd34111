"""The model's confidence is not its hit rate: validation loss rises, or stands too high, while accuracy holds.

## What it means
Among samples for which the model says 95 % it should be right 95 % of the time. It is not. Which class is named stays
right, so accuracy holds, but the probabilities cannot be used as such: thresholds, expected costs, ranking of cases and
averages with other models suffer, and the validation loss is worse than it need be.

## Why it happens
- Training goes on after every training sample is right: the loss can only fall by growing confidence.
- A large model without weight decay, label smoothing or augmentation.
- Too much smoothing, or a temperature in the wrong place: then it is not confident enough.

## How it is detected
At every validation pass confidences are compared with hits in 15 bins: the expected calibration error (ECE). It needs
an ECE of 0.06 (0.03 after the validation loss has risen by half, or three fifths of the error rate where that is less)
that stands clear of what the number of samples alone brings, an accuracy that holds (its best within two standard
errors, or four where one factor on all logits would undo three fifths of the loss's rise) and is good, and a reason to
care: the validation loss has risen by half since its best, or could be a sixth lower by one factor on all logits (a
temperature). It is a warning where the validation loss has risen from its best by a tenth, or where an overconfident
model could halve it by a temperature, and ten samples and more are wrong; else an info. Where training accuracy is far
above that of validation (by 15 points; 20 where the loss has risen by half and the accuracy is still the best there
was), the model is overfitted rather than overconfident, and this is only an info.

## How to fix it
Fit one temperature on the validation set after training: it repairs the probabilities and changes no prediction. An
overconfident model also gains from the checkpoint of the lowest validation loss, or from training with weight decay,
label smoothing or mixup; one that is not confident enough from less of them, or from longer training.

## Known false alarms
Class weights and label smoothing shift confidences on purpose: with either, only overconfidence is told. Where only the
ranking or the class matters, calibration need not be repaired.

## References
Guo et al., "On Calibration of Modern Neural Networks" (2017). Naeini, Cooper and Hauskrecht, "Obtaining Well Calibrated
Probabilities Using Bayesian Binning" (2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TEMPERATURES, VALIDATION, SamplesFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves, outcomes
from torchdoctor.rules.curves import figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION, CONFIDENCE_VALIDATION, LOSS_VALIDATION

RULE = Rule(
    code="E004",
    name="miscalibrated",
    family="evaluation",
    needs=(SamplesFact,),
    explains=("overfitting", "metric-disagrees-with-loss"),
)

MARKED_ERROR = 0.06
"""An ECE that matters; networks of the last decade show 0.04 to 0.15 uncorrected (Guo et al. 2017, table 1)."""
MARKED_AFTER_RISE = 0.03
"""Less is enough where the validation loss has risen."""
MARKED_SHARE = 0.6
"""Of the error rate, where that is small: an overconfident model can be off by no more than its errors."""
BEYOND_CHANCE = 2.5
"""ECE in units of what a calibrated model would show with so many samples."""
MARKED_UNDER = 0.1
SETTLED = 0.95
"""A model that still learns is unsure for good reason: lack of confidence counts where the loss no longer falls."""
LOSS_RISEN = 1.5
"""Validation loss over its best; below it the rise is what early stopping takes care of."""
GONE_UP = 1.1
"""Validation loss over its best from which on it has risen rather than scattered; only then is it a warning."""
LOSS_TO_GAIN = 1.2
"""Validation loss over what one temperature would make of it."""
FAR_TO_GAIN = 2.0
"""The same, where it need not have risen: logits that are scaled up in evaluation are off from the first pass on."""
HOLDS, HOLDS_NEARLY = 2.0, 4.0
"""Standard errors by which the accuracy may lie below its best; and where one temperature takes most of it back."""
TAKEN_BACK = 0.6
"""Share of the rise of the validation loss that one temperature undoes: confidence made it then, not the few errors
that came with it. Chosen."""
TOP = 0.9
"""Quantile of the accuracies that stands for the best: the highest of many passes is high by luck."""
GOOD = 0.5
"""Share of the way from guessing to perfect that the accuracy has gone."""
GAP = 0.15
"""Training accuracy above that of validation beyond which the model is overfitted, whatever its confidence."""
GAP_HELD = 0.2
"""The same where the loss has risen by half and the accuracy is still the best there was."""
LEAST_PASSES = 4
LEAST_SAMPLES = 100
LEAST_WRONG = 10
"""Wrong samples behind a warning: the loss of a good model hangs on them, and a handful makes it rise by chance."""


@dataclass(frozen=True)
class Calibration:
    """The last pass against the best one."""

    step: int
    error: float
    accuracy: float
    confidence: float
    loss: float
    best_loss: float
    best_step: int
    rescaled: float
    temperature: float

    @property
    def taken_back(self) -> float:
        """The share of the loss's rise over its best that one temperature undoes."""
        risen = self.loss - self.best_loss
        return (self.loss - self.rescaled) / risen if risen > 0 else 0.0

    @property
    def over(self) -> bool:
        return self.confidence > self.accuracy


def detect(run: Run) -> Iterator[Finding]:
    seen = [
        (s, f) for s, f in outcomes.looks(run, VALIDATION, "classes") if f.ece is not None and f.correct is not None
    ]
    if len(seen) < LEAST_PASSES or seen[-1][1].samples < LEAST_SAMPLES:
        return
    found = read(seen)
    shifted = outcomes.is_weighted(run) or any((c.label_smoothing or 0) > 0 for c in baseline.loss_calls(run))
    risen = found.loss >= LOSS_RISEN * found.best_loss and found.best_step < found.step
    after_rise = min(MARKED_AFTER_RISE, MARKED_SHARE * (1 - found.accuracy))
    if not is_marked(seen, found, after_rise if risen else MARKED_ERROR) or (shifted and not found.over):
        return
    if not (risen or found.loss >= LOSS_TO_GAIN * found.rescaled):
        return
    if not found.over and (found.error < MARKED_UNDER or found.loss < SETTLED * seen[-3][1].loss):
        return
    train = outcomes.training(run, 1)
    gap = train.accuracy - found.accuracy if train is not None else 0.0
    gone_up = found.loss >= GONE_UP * found.best_loss and found.best_step < found.step
    grave = gone_up or (found.over and found.loss >= FAR_TO_GAIN * found.rescaled)
    wrong = seen[-1][1].samples - (seen[-1][1].correct or 0)
    limit = GAP_HELD if risen and is_held(seen) else GAP
    yield _finding(found, seen, gone_up, grave=grave and gap <= limit and wrong >= LEAST_WRONG)


def is_held(seen: list[tuple[int, SamplesFact]]) -> bool:
    """Not one standard error of accuracy was lost since any pass: all that went wrong is confidence."""
    shares = [(f.correct or 0) / f.samples for _, f in seen]
    best = max(shares)
    return shares[-1] >= best - math.sqrt(max(best * (1 - best), 1e-4) / seen[-1][1].samples)


def read(seen: list[tuple[int, SamplesFact]]) -> Calibration:
    step, last = seen[-1]
    losses = [f.loss for _, f in seen]
    best = int(np.argmin(losses))
    rescaled = min(zip(last.rescaled, TEMPERATURES, strict=False), default=(last.loss, 1.0))
    count = np.array([b[0] for b in last.bins])
    confidence = float((count * np.array([b[1] for b in last.bins])).sum() / max(1, count.sum()))
    return Calibration(
        step,
        last.ece or 0.0,
        (last.correct or 0) / last.samples,
        confidence,
        last.loss,
        losses[best],
        seen[best][0],
        rescaled[0],
        rescaled[1],
    )


def is_marked(seen: list[tuple[int, SamplesFact]], found: Calibration, least: float) -> bool:
    """The error is large and beyond chance in the last two passes, and the accuracy is good and holds."""
    for _, fact in seen[-2:]:
        if (fact.ece or 0) < max(least, BEYOND_CHANCE * by_chance(fact)):
            return False
    last = seen[-1][1]
    best = float(np.quantile([(f.correct or 0) / f.samples for _, f in seen], TOP))
    spread = math.sqrt(max(best * (1 - best), 1e-4) / last.samples)
    guess = 1 / max(2, last.classes or 2)
    may_lose = HOLDS_NEARLY if found.taken_back >= TAKEN_BACK else HOLDS
    return found.accuracy >= best - may_lose * spread and found.accuracy >= guess + GOOD * (1 - guess)


def by_chance(fact: SamplesFact) -> float:
    """The ECE that a calibrated model would show on average with so few samples a bin."""
    total = 0.0
    for count, _, share in fact.bins:
        if count:
            total += count * math.sqrt(2 / math.pi * max(share * (1 - share), 0.0) / count)
    return total / fact.samples


def _fix(found: Calibration) -> Fix:
    text = "Divide the logits by a temperature fitted on the validation set; or "
    if not found.over:
        text += "train longer, with less regularisation."
    elif found.best_step < found.step:
        text += (
            f"keep the checkpoint of the lowest validation loss (step {found.best_step}), with weight decay or label "
            "smoothing from the start."
        )
    else:
        text += "train with weight decay or label smoothing from the start."
    return Fix(text, f"probabilities = torch.softmax(logits / {found.temperature:g}, dim=1)")


def _finding(found: Calibration, seen: list[tuple[int, SamplesFact]], risen: bool, grave: bool) -> Finding:
    word = "overconfident" if found.over else "not confident enough"
    losses = [f.loss for _, f in seen]
    course = (
        f"validation loss rose from {figure(found.best_loss)} at step {found.best_step} to {figure(found.loss)}"
        if risen
        else f"validation loss {figure(found.loss)}"
    )
    return RULE.finding(
        severity=Severity.WARNING if grave else Severity.INFO,
        confidence=0.8 if risen else 0.7,
        title=f"The model is {word}: {found.confidence:.0%} sure on average, {found.accuracy:.0%} right",
        summary=(
            f"The accuracy holds, but its confidence is off by {found.error:.1%} on average (ECE); {course}. One "
            f"temperature of {found.temperature:g} on the logits would bring the loss to {figure(found.rescaled)} "
            "without changing a prediction."
        ),
        fix=_fix(found),
        evidence=[
            Evidence(
                f"expected calibration error {found.error:.3f} over 15 bins",
                CONFIDENCE_VALIDATION.name,
                found.error,
                MARKED_ERROR,
                tuple(f.ece or 0.0 for _, f in seen[-40:]),
            ),
            Evidence(course, LOSS_VALIDATION.name, found.loss, LOSS_RISEN * found.best_loss, curves.spark(losses)),
            Evidence(
                f"validation accuracy {found.accuracy:.1%}, "
                f"{max((f.correct or 0) / f.samples for _, f in seen):.1%} at best",
                ACCURACY_VALIDATION.name,
                found.accuracy,
                None,
                tuple((f.correct or 0) / f.samples for _, f in seen[-40:]),
            ),
        ],
        first_step=found.best_step if risen else seen[0][0],
        last_step=found.step,
        symptoms=("train-down-validation-up", "high-accuracy-fails-in-use"),
    )
