"""The model names one class for nearly every sample, though the labels do not.

## What it means
Whatever the input, the answer is the same class. The accuracy is the share of that class, and the loss can still fall
a little while nothing about the inputs is learned.

## Why it happens
- Class weights or `pos_weight` that are far off: counted on one batch, inverted twice, a count where a ratio belongs.
- A bias or a prior in the last layer that the inputs cannot overcome.
- The network is dead, collapsed or was thrown off (dead units, too high a rate): then that is the finding to read.
- The labels are so uneven that one answer is the cheapest: see class-imbalance.

## How it is detected
Predictions are counted by class in validation (in training where there is no validation). The finding needs one class
predicted for at least 95 % of the samples in the last passes, a share of that class among the labels that is at least
20 points smaller, and enough updates for a model to have learned more than the frequencies. Where other classes were
predicted earlier in the run, the step at which that ended is named.

## How to fix it
Look at the weights of the loss first: their ratio must be the inverse ratio of the class counts, not more. Then compare
the logits of two different inputs: if they are equal, the fault is in the network, else in the last layer's bias.

## Known false alarms
Labels of which nearly all belong to one class are left out (naming it is right), and so are language models, taggers
and segmentation.

## References
Cui et al., "Class-Balanced Loss Based on Effective Number of Samples" (2019).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.distributions.gaps import nanmean
from torchdoctor.facts import NonfiniteFact, PredictionsFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline, outcomes
from torchdoctor.rules.outcomes import Outcome
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION

RULE = Rule(
    code="E003",
    name="majority-class-collapse",
    family="evaluation",
    needs=(PredictionsFact,),
    explains=("weak-slice", "miscalibrated", "metric-disagrees-with-loss", "underfitting"),
)

ONE_ANSWER = 0.95
"""Share of the samples that get the same answer."""
UNLIKE_LABELS = 0.2
"""The class's share of the predictions above its share of the labels."""
LEAST_SAMPLES = 30
EARLY_UPDATES = 40
"""Before so many updates a model has often learned no more than the frequencies of the classes."""
PASSES = 2

BROKEN = ("loss", "weight", "buffer")
"""Where NaN or Inf makes every output NaN."""


def detect(run: Run) -> Iterator[Finding]:
    if run.steps < EARLY_UPDATES or not outcomes.is_by_sample(run):
        return
    if any(f.role in BROKEN for f in run.facts(NonfiniteFact)):
        return  # the largest of NaNs is always the first
    seen = outcomes.passes(run)
    end = outcomes.training(run, 1)
    last = seen[-PASSES:] or ([end] if end is not None else [])
    if not last or not all(is_collapsed(o) for o in last):
        return
    answers = {o.favourite[0] for o in last}
    if len(answers) > 1 and len(last[-1].support) == 2 and run.finished is False:
        return
    yield _finding(run, last[-1], seen)


def is_collapsed(outcome: Outcome) -> bool:
    """One class for nearly all samples, and far more of it than the labels have."""
    answer, share = outcome.favourite
    if outcome.samples < LEAST_SAMPLES or outcome.present < 2:
        return False
    return share >= ONE_ANSWER and share - float(outcome.shares[answer]) >= UNLIKE_LABELS


def _finding(run: Run, last: Outcome, seen: list[Outcome]) -> Finding:
    answer, share = last.favourite
    weighted = outcomes.is_weighted(run)
    onset = _onset(seen)
    call = outcomes.loss_place(run)
    because = " The loss is weighted by class: the weights are the first suspect." if weighted else ""
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9 if weighted else 0.75,
        title=f"The model answers class {answer} for {share:.0%} of the samples; {last.shares[answer]:.0%} are",
        summary=(
            f"Of {last.present} classes in the labels only one is ever named. Accuracy is {last.accuracy:.1%}, what "
            f"that one answer earns; recall of the other classes is {_others(last, answer):.0%}.{because}"
        ),
        fix=_fix(run, weighted),
        evidence=_evidence(last, seen, answer, share),
        where=[Place(file=call.file, line=call.line)] if call else [],
        first_step=onset if onset is not None else last.step,
        last_step=last.step,
        symptoms=("good-loss-bad-metric", "metric-flat-while-loss-falls", "stuck-at-chance"),
    )


def _others(last: Outcome, answer: int) -> float:
    recall = np.delete(last.recall, answer)
    return float(nanmean(recall)) if np.isfinite(recall).any() else 0.0


def _onset(seen: list[Outcome]) -> int | None:
    """The first of the passes at the end that are all collapsed."""
    onset = None
    for outcome in reversed(seen):
        if not is_collapsed(outcome):
            break
        onset = outcome.step
    return onset


def _evidence(last: Outcome, seen: list[Outcome], answer: int, share: float) -> Iterator[Evidence]:
    yield Evidence(
        f"class {answer}: {share:.1%} of {last.samples:.0f} predictions, {last.shares[answer]:.1%} of the labels",
        None,
        share,
        ONE_ANSWER,
    )
    yield Evidence(
        f"accuracy {last.accuracy:.1%}, mean recall over classes {last.balanced:.1%}",
        ACCURACY_VALIDATION.name if seen else None,
        last.balanced,
        1 / last.present,
        tuple(o.accuracy for o in seen[-40:]),
    )


def _fix(run: Run, weighted: bool) -> Fix:
    binary = any(c.function in baseline.BINARY for c in baseline.loss_calls(run))
    if weighted and binary:
        return Fix(
            "Make pos_weight the number of negatives over that of positives in the training set.",
            "pos_weight = (y_train == 0).sum() / (y_train == 1).sum()",
        )
    if weighted:
        return Fix(
            "Count the classes over the whole training set and weigh by the inverse share; first try without weights.",
            "counts = torch.bincount(y_train); weight = counts.sum() / (len(counts) * counts.clamp(min=1))",
        )
    return Fix(
        "To find out what to change, compare the logits of two different inputs: equal logits mean that the network is "
        "dead, different ones that a bias, a prior or the order of the data forces one answer.",
        "with torch.no_grad(): print(model(x[:2]), model(x[:2]).std(0))",
    )
