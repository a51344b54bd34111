"""The loss improves and the metric does not: what is minimised is not what is wanted.

## What it means
The loss falls, in training and validation, yet the share of right answers stays where guessing is. The optimizer does
its work; the work does not serve the task.

## Why it happens
- The loss has several parts, and one of them (a reconstruction, a penalty, an auxiliary task) outweighs the part that
  the metric judges by orders of magnitude.
- Confidence alone: smoothing, a temperature or a bias is learned, and no decision changes.
- Most targets are of one kind (zeros of a multi-label task), and getting those right is enough for the loss.
- The metric is computed wrongly: see metric-implementation-wrong, which is tested first.

## How it is detected
Training loss must have fallen by at least a third and validation loss by a tenth (where the loss has several parts, the
training loss alone counts: how validation adds them up is not known), while in every
validation pass of the second half accuracy is not above the share of the largest class and mean recall not above one
over the number of classes, by three standard errors. Where the loss is made of several calls, the part of the
classification is followed alone. Of many labels at once the F1 over all of them must stay below 0.05 in the last
half of the looks, with a loss no better than their overall rate gives. A forecast whose inputs are the past of its
target (in validation, else in training) must not have a squared error below that of naming the last value again, for
any step of its horizon taken together, and must have settled or fall too slowly to get there by as much training again.
Of many labels at once, an F1 or a share of exact hits that the script prints itself and that stays below 0.05 in the
last half counts, too, if validation loss falls. A loss that falls by a
quarter while a mediocre accuracy stands still is told as an info: often only confidence is learned then.

## How to fix it
Log every part of the loss on its own and weigh them so that their gradients are of one order at the last shared layer.
Select checkpoints by the metric that counts. With imbalanced labels judge by recall by class.

## Known false alarms
Rare labels that are only ranked (by AUC, recall at k), never named by a threshold, are reported.
A metric that reached its limit early while the loss goes on falling is sound, and only told as an info where accuracy
is far from perfect. A rising metric with a rising loss is mostly overconfidence: see miscalibrated.

## References
Kendall, Gal and Cipolla, "Multi-Task Learning Using Uncertainty to Weigh Losses" (2018). Huang et al., "Addressing the
Loss-Metric Mismatch with Adaptive Loss Alignment" (2019).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from torchdoctor.facts import TRAIN, VALIDATION, ModesFact, SamplesFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline, curves, outcomes
from torchdoctor.rules.curves import figure
from torchdoctor.rules.loss_curve import LossCurve, loss_curve
from torchdoctor.rules.outcomes import Outcome
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION, LOSS_TRAIN, LOSS_VALIDATION, PRINTED

RULE = Rule(
    code="E007",
    name="metric-disagrees-with-loss",
    family="evaluation",
    needs=(LOSS_TRAIN,),
    explains=("underfitting", "weak-slice", "majority-class-collapse"),
)

FELL_TRAIN = 0.33
"""Share of the training loss gone. Chosen: with a third of it gone the model has learned, so accuracy must have left
chance if loss and metric see the same thing."""
FELL_VALIDATION = 0.1
"""Share of the validation loss gone. Less is asked than of training, since validation need only show that what was
learned is not memorised."""
LEAST_PASSES = 4
LEAST_SAMPLES = 50
LEAST_STEPS = 60
FELL_ALONE = 0.25
"""Validation loss gone while accuracy stands still. Chosen above what growing confidence in the
same hits brings early on."""
MEDIOCRE = 0.9
FIRST = 3
"""First steps that say where the loss began: rates of labels and levels of series are learned within a few."""
RARE = 0.25
"""Share of true labels up to which naming none looks good to the loss."""
NAMED_NONE = 0.05
"""F1 over all labels that is as good as none."""
DECIDED = re.compile(r"(?<![a-z])(f1|subset|exact|jaccard|recall|acc(uracy)?)(?![a-z])")
ABOUT_IT = re.compile(r"std|gap|delta|diff|drop|change|var|err")
"""Metrics of decisions, as scripts call them, and what tells of them but is none."""
EXACT, POOR = re.compile(r"subset|exact|acc"), 0.3
"""All of many labels right at once is rare by nature, unless the F1 over them is poor, too."""
KNOWS_RATES = 0.85
"""Loss over the entropy of the labels' overall rate: knowing the rate of each label alone brings some of it."""
OF_ITSELF = 0.5
"""Error of the last value over the variance of the targets, for inputs that are the past of the target."""
NO_BETTER = 0.95
SETTLED = 0.9
"""Error over that at half as many steps, for a forecast that no longer gets better."""
STILL = 1.0
"""Standard errors by which accuracy may move and still stand."""


@dataclass(frozen=True)
class Part:
    """The classification's own loss over the passes, where the whole loss has other parts."""

    first: float
    last: float
    calls: int

    @property
    def fell(self) -> float:
        return (self.first - self.last) / max(abs(self.first), 1e-12)


def detect(run: Run) -> Iterator[Finding]:
    loss = loss_curve(run)
    if loss is None or run.steps < LEAST_STEPS or loss.broke_at is not None:
        return
    whole = replace(loss, begin=curves.level(loss.curve.values[:FIRST], 1.0, end=False))
    if whole.fell >= FELL_TRAIN:
        labels = _labels(run, whole) or _printed(run, whole)
        yield from (f for f in (labels, _repeats(run, whole)) if f is not None)
    seen = outcomes.passes(run)
    if len(seen) < LEAST_PASSES or seen[-1].samples < LEAST_SAMPLES or not outcomes.is_by_sample(run):
        return
    validation = curves.read(run.scalar(LOSS_VALIDATION), closely=False)
    gone = _gone(validation)
    at_chance = not any(outcomes.beats_chance(o) for o in seen[len(seen) // 2 :])
    if at_chance and loss.fell >= FELL_TRAIN and (read_part(run) is not None or gone >= FELL_VALIDATION):
        yield _finding(run, loss, seen, gone, validation)
    elif not at_chance and gone >= FELL_ALONE and _stands_still(seen):
        yield _told(seen, gone, validation)


def _labels(run: Run, loss: LossCurve) -> Finding | None:
    """Of many labels hardly one is ever named, and the loss is that of knowing how frequent they are."""
    for phase in (VALIDATION, TRAIN):
        seen = [(s, f) for s, f in outcomes.looks(run, phase, "multilabel") if "micro_f1" in f.metrics]
        if len(seen) >= LEAST_PASSES and seen[-1][1].samples >= LEAST_SAMPLES:
            break
    else:
        return None
    late = [f for _, f in seen[len(seen) // 2 :]]
    rate = sum(f.metrics["positives"] for f in late) / len(late)
    scored, level = max(f.metrics["micro_f1"] for f in late), late[-1].loss
    if outcomes.is_weighted(run) or not 0 < rate < RARE or scored > NAMED_NONE or level < KNOWS_RATES * _entropy(rate):
        return None
    share = late[-1].metrics["named"]
    return _judged(
        run,
        loss,
        f"The loss fell by {loss.fell:.0%}, yet hardly a label is ever named (F1 {scored:.2f})",
        f"Only {rate:.1%} of the labels are true, so naming none is right nearly always: the loss fell to "
        f"{figure(level)}, where knowing the overall rate gives {figure(_entropy(rate))}. What is in the inputs has "
        "not been learned.",
        Evidence(
            f"{share:.2%} of the labels are named where {rate:.1%} are true; micro F1 at most {scored:.3f} in the last "
            f"{len(late)} looks",
            "samples",
            scored,
            NAMED_NONE,
            tuple(f.metrics["micro_f1"] for _, f in seen[-40:]),
        ),
        Fix(
            "Weigh the true labels up, judge by recall and F1 over the true labels, and lower the threshold.",
            f"criterion = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor({(1 - rate) / rate:.0f}.0))",
        ),
        seen,
    )


def _printed(run: Run, loss: LossCurve) -> Finding | None:
    """Of many labels: what the script itself prints of its decisions stays at nothing, while validation loss falls."""
    seen = [(s, f) for s, f in outcomes.looks(run, VALIDATION, "multilabel") if "micro_f1" in f.metrics]
    gone = _gone(curves.read(run.scalar(LOSS_VALIDATION), closely=False))
    if len(seen) < LEAST_PASSES or not gone >= FELL_VALIDATION:
        return None
    for name in run.keys(PRINTED):
        values = run.scalar(PRINTED, name).values
        late = values[len(values) // 2 :]
        told = DECIDED.search(name) and not ABOUT_IT.search(name) and not name.startswith("tr")
        hard = EXACT.search(name) and seen[-1][1].metrics["micro_f1"] >= POOR
        if not told or hard or len(values) < LEAST_PASSES or not (late >= 0).all() or float(late.max()) > NAMED_NONE:
            continue
        least = seen[-1][1].metrics
        return _judged(
            run,
            loss,
            f"The loss fell by {loss.fell:.0%}, yet {name} is still {figure(float(late[-1]))}",
            f"Validation loss fell by {gone:.0%}; the labels at a threshold of one half have an F1 of "
            f"{least['micro_f1']:.2f}. What is printed does not follow: the threshold, or what the loss averages over, "
            "does not fit it.",
            Evidence(
                f"{name}: at most {figure(float(late.max()))} in the last {len(late)} of {len(values)} times it was "
                "printed",
                PRINTED.name,
                float(late.max()),
                NAMED_NONE,
                curves.spark(values),
            ),
            Fix(
                "Compare thresholded probabilities with the labels by hand for a few samples; choose the threshold on "
                "validation data, and weigh rare labels up.",
                "named = torch.sigmoid(logits) > 0.5",
            ),
            seen,
        )
    return None


def _entropy(rate: float) -> float:
    return -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)


def _repeats(run: Run, loss: LossCurve) -> Finding | None:
    """A forecast that has stopped getting better and is no better than naming the last value again."""
    for phase in (VALIDATION, TRAIN):
        every = outcomes.looks(run, phase, "regression")
        seen = [(s, f) for s, f in every if "last_value_mse" in f.metrics and f.samples >= LEAST_SAMPLES]
        disturbed = phase == TRAIN and any(m.dropout_training for m in run.facts(ModesFact) if m.phase == TRAIN)
        if len(seen) >= LEAST_PASSES and not disturbed:
            break
    else:
        return None
    late = [f for _, f in seen[len(seen) // 2 :]]
    skills = [f.metrics["mse"] / max(f.metrics["last_value_mse"], 1e-30) for f in late]
    errors = [f.metrics["mse"] for f in late]
    last = late[-1].metrics
    if last["last_value_mse"] >= OF_ITSELF * last["variance"] or min(skills) < NO_BETTER:
        return None
    if _gets_there(errors, skills):
        return None
    return _judged(
        run,
        loss,
        f"The loss fell by {loss.fell:.0%}, yet the forecast is no better than the last value",
        "The level of the series makes nearly all of the loss, and the last value gives it away: what remains, the "
        "change, is not predicted.",
        Evidence(
            f"squared error {figure(last['mse'])} in the last look at {phase}, naming the last value again gives "
            f"{figure(last['last_value_mse'])}",
            "samples",
            skills[-1],
            NO_BETTER,
            tuple(f.metrics["mse"] for _, f in seen[-40:]),
        ),
        Fix("Predict the change from the last value instead of the level, and judge by the error over that guess."),
        seen,
    )


def _gets_there(errors: list[float], skills: list[float]) -> bool:
    """Whether the error still falls so fast that as much training again may beat the last value. Errors fall by about
    the same factor with every doubling of the steps, and from one half of the last looks to the other is half a
    doubling."""
    half = len(errors) // 2
    fell = float(np.median(errors[:half] or errors) / max(float(np.median(errors[half:])), 1e-30))
    return fell**2 > 1 / SETTLED and fell**2 >= float(np.median(skills[half:])) / NO_BETTER


def _judged(
    run: Run,
    loss: LossCurve,
    title: str,
    summary: str,
    evidence: Evidence,
    fix: Fix,
    seen: list[tuple[int, SamplesFact]],
) -> Finding:
    place = outcomes.loss_place(run)
    fell = f"training loss from {figure(loss.begin)} to {figure(loss.end)}"
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.8,
        title=title,
        summary=summary,
        evidence=[Evidence(fell, LOSS_TRAIN.name, loss.fell, FELL_TRAIN, loss.spark), evidence],
        fix=fix,
        where=[Place(file=place.file, line=place.line)] if place is not None else [],
        first_step=seen[0][0],
        last_step=seen[-1][0],
        symptoms=("metric-flat-while-loss-falls", "good-loss-bad-metric"),
    )


def _gone(validation: curves.Curve) -> float:
    if len(validation) < LEAST_PASSES:
        return math.nan
    first, last = float(validation.values[0]), curves.level(validation.values)
    return (first - last) / max(abs(first), 1e-12)


def _stands_still(seen: list[Outcome]) -> bool:
    """Accuracy never rose above its first pass by more than its standard error, and is far from perfect."""
    first = seen[0].accuracy
    error = math.sqrt(max(first * (1 - first), 1e-4) / seen[0].samples)
    return seen[-1].accuracy < MEDIOCRE and max(o.accuracy for o in seen) <= first + STILL * error


def read_part(run: Run) -> Part | None:
    """The loss of the classifying call alone, if the loss has other calls beside it."""
    facts = [f for f in run.facts(SamplesFact) if f.phase == VALIDATION and f.task == "classes"]
    calls = {(c.function, c.file, c.line) for c in baseline.loss_calls(run)}
    if len(facts) < LEAST_PASSES or len(calls) < 2:
        return None
    return Part(facts[0].loss, curves.level(_array(f.loss for f in facts)), len(calls))


def _array(values: Iterator[float]) -> curves.Floats:
    return np.array(list(values))


def _finding(run: Run, loss: LossCurve, seen: list[Outcome], gone: float, validation: curves.Curve) -> Finding:
    part, last = read_part(run), seen[-1]
    call = next((c for c in reversed(baseline.loss_calls(run)) if c.classes or c.function in baseline.BINARY), None)
    why = (
        f" The loss has {part.calls} parts: that of the classification went from {figure(part.first)} to "
        f"{figure(part.last)}, the others outweigh it."
        if part is not None
        else ""
    )
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85 if part is not None else 0.7,
        title=f"The loss fell by {loss.fell:.0%}, accuracy is still that of a guess ({last.accuracy:.1%})",
        summary=(
            f"Always naming the most frequent class scores {last.majority:.1%}. The optimizer lowers the loss without "
            f"learning what the metric judges.{why}"
        ),
        fix=Fix(
            "Log the parts of the loss one by one and weigh them so that the classification counts.",
            "loss = classification + weight * other  # weight: such that both gradients are of one size",
        )
        if part is not None
        else Fix("Find out what lowers the loss: print its parts and the logits of a few samples before and after."),
        evidence=[
            Evidence(
                f"training loss from {figure(loss.begin)} to {figure(loss.end)}",
                LOSS_TRAIN.name,
                loss.fell,
                FELL_TRAIN,
                loss.spark,
            ),
            Evidence(
                f"validation accuracy {last.accuracy:.1%} in the last of {len(seen)} passes, a constant guess scores "
                f"{last.majority:.1%}",
                ACCURACY_VALIDATION.name,
                last.accuracy,
                last.majority,
                tuple(o.accuracy for o in seen[-40:]),
            ),
            *(
                [
                    Evidence(
                        f"validation loss fell by {gone:.0%}",
                        LOSS_VALIDATION.name,
                        gone,
                        FELL_VALIDATION,
                        curves.spark(validation.values),
                    )
                ]
                if gone >= FELL_VALIDATION
                else []
            ),
        ],
        where=[Place(file=call.file, line=call.line)] if call and call.file else [],
        first_step=seen[0].step,
        last_step=last.step,
        symptoms=("metric-flat-while-loss-falls", "good-loss-bad-metric"),
    )


def _told(seen: list[Outcome], gone: float, validation: curves.Curve) -> Finding:
    return RULE.finding(
        severity=Severity.INFO,
        confidence=0.5,
        title=f"Validation loss fell by {gone:.0%} while accuracy stayed at {seen[-1].accuracy:.1%}",
        summary="What is learned since the first pass is confidence: hardly any decision has changed.",
        fix=Fix("Judge by the metric that counts; if it has reached its limit, nothing is wrong."),
        evidence=[
            Evidence(
                f"validation loss fell by {gone:.0%}",
                LOSS_VALIDATION.name,
                gone,
                FELL_ALONE,
                curves.spark(validation.values),
            ),
            Evidence(
                f"accuracy {seen[0].accuracy:.1%} in the first pass, {seen[-1].accuracy:.1%} in the last",
                ACCURACY_VALIDATION.name,
                seen[-1].accuracy,
                seen[0].accuracy,
                tuple(o.accuracy for o in seen[-40:]),
            ),
        ],
        first_step=seen[0].step,
        last_step=seen[-1].step,
        symptoms=("metric-flat-while-loss-falls",),
    )
