"""One class dominates, and the model leaves the rare ones out while its accuracy looks good.

## What it means
Most samples belong to one class. Naming that class always is right most of the time, so the loss and the accuracy
look fine while the classes that often matter most (the fraud, the illness, the defect) are hardly ever found.

## Why it happens
- The data is as the world is, and nothing in the training makes up for it.
- A filter, a join or a split has dropped most of one class.
- A loss or a sampler that was meant to balance is not in use.

## How it is detected
Labels and predictions are counted by class in validation (in training where there is no validation). A class is rare
if it has at most a fifth of the largest class's samples. The finding needs: rare classes whose samples are found
less than 70 % of the time, beyond what chance explains (one-sided binomial test, error rate 5 %), a frequent class
that is found nearly always, an aggregate accuracy well above the mean recall, and nothing that balances: no class
weights in the loss, no sampler that evens out the training labels. Where nothing but one class is named and that is 20
points more than its share of the labels, it is a collapse (majority-class-collapse), not this. While the run goes on it
is an info before 200 updates, and as long as the recall of the rare classes rises.

## How to fix it
Weigh the classes in the loss, or draw them evenly; judge by balanced accuracy, recall by class or the area under the
precision-recall curve, never by accuracy alone; move the decision threshold to where the costs of both errors meet.

## Known false alarms
Language models, taggers and segmentation, whose rare tokens are rare on purpose, are left out; so are runs with
class weights, `pos_weight` or a balancing sampler. A rare class that carries no signal at all is reported as well:
no training can find it, but the accuracy still hides that.

## References
He and Garcia, "Learning from Imbalanced Data" (2009). Buda, Maki and Mazurowski, "A systematic study of the class
imbalance problem in convolutional neural networks" (2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.distributions.binomial import at_most
from torchdoctor.facts import TRAIN, PredictionsFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline, outcomes
from torchdoctor.rules.outcomes import Counts, Outcome
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION

RULE = Rule(
    code="D009",
    name="class-imbalance",
    family="data",
    needs=(PredictionsFact,),
    explains=(
        "inputs-and-labels-unrelated",
        "majority-class-collapse",
        "weak-slice",
        "metric-disagrees-with-loss",
        "learning-rate-too-low",
        "underfitting",
    ),
)

RARE = 0.2
"""A class with at most a fifth of the largest one's samples (an imbalance ratio of 5)."""
FOUND_LESS = 0.7
"""Recall of the rare classes that a competent user would not leave as it is beside 0.95 of accuracy."""
FOUND_MORE = 0.8
HIDDEN = 0.15
"""Accuracy above the mean recall by this much hides what is wrong."""
ERROR_RATE = 0.05
LEAST_RARE = 8
"""Rare samples in the last pass."""
ONE_ANSWER, NO_RARITY = 0.95, 0.2
"""Share of the samples with the same answer, and how much more that is than their share of the labels: from there on
it is a collapse (majority-class-collapse)."""
BALANCED_BY = 2.0
"""Training labels this much more even than those of validation come from a sampler that balances."""
EARLY_UPDATES = 30
"""Before so many updates a model names the frequent class only, whatever it will learn."""
LIVE_UPDATES = 200
"""While a run goes on, rare classes are often found last: before so many updates it is told as an info only."""


@dataclass(frozen=True)
class Imbalance:
    """The rare classes and how they fare."""

    rare: list[int]
    frequent: int
    share: float
    support: float
    recall: float
    frequent_recall: float


def detect(run: Run) -> Iterator[Finding]:
    if run.steps < EARLY_UPDATES or outcomes.is_weighted(run) or not outcomes.is_by_sample(run):
        return
    seen = outcomes.passes(run)
    last = seen[-1] if seen else outcomes.training(run)
    if last is None or _is_balanced_by_sampler(run, last):
        return
    found = find_imbalance(last)
    if found is None or last.accuracy - last.balanced < HIDDEN or is_one_answer(last):
        return
    early = not run.finished and (run.steps < LIVE_UPDATES or is_rising(seen, found))
    yield _finding(run, last, found, seen, Severity.INFO if early else Severity.WARNING)


def find_imbalance(last: Outcome) -> Imbalance | None:
    """The rare classes, if they are missed while the frequent one is found."""
    support_C = last.support
    frequent = int(support_C.argmax())
    rare_C = (support_C > 0) & (support_C <= RARE * support_C[frequent])
    support = float(support_C[rare_C].sum())
    if support < LEAST_RARE or last.recall[frequent] < FOUND_MORE:
        return None
    correct = float(last.correct[rare_C].sum())
    if correct / support >= FOUND_LESS or not _is_below(correct, support):
        return None
    return Imbalance(
        rare=[int(c) for c in np.flatnonzero(rare_C)],
        frequent=frequent,
        share=float(last.shares[frequent]),
        support=support,
        recall=correct / support,
        frequent_recall=float(last.recall[frequent]),
    )


def is_one_answer(last: Outcome) -> bool:
    """Nothing but the frequent class is named although the others are no rarity: imbalance alone does not do that."""
    answer, share = last.favourite
    return share >= ONE_ANSWER and share - float(last.shares[answer]) >= NO_RARITY


def is_rising(seen: list[Outcome], found: Imbalance) -> bool:
    """The rare classes are found more often than two passes ago, by a standard error."""
    if len(seen) < 3:
        return False
    before = seen[-3]
    support = float(before.support[found.rare].sum())
    recall = float(before.correct[found.rare].sum()) / max(1.0, support)
    error = math.sqrt(max(found.recall * (1 - found.recall), 1 / found.support) / found.support)
    return found.recall > recall + error


def _is_below(correct: float, support: float) -> bool:
    """Whether so few hits are unlikely if enough were found."""
    return at_most(correct, support, FOUND_LESS) < ERROR_RATE


def _is_balanced_by_sampler(run: Run, last: Outcome) -> bool:
    """Training labels far more even than those of validation: the rarest class comes much more often."""
    if last.phase == TRAIN:
        return False
    train = outcomes.training(run, 1000)
    if train is None or len(train.support) != len(last.support):
        return False
    return _evenness(train.support) > BALANCED_BY * _evenness(last.support)


def _evenness(support_C: Counts) -> float:
    present = support_C[support_C > 0]
    return float(present.min() / present.max()) if len(present) > 1 else 0.0


def _finding(run: Run, last: Outcome, found: Imbalance, seen: list[Outcome], severity: Severity) -> Finding:
    call = outcomes.loss_place(run)
    where = "validation" if seen else "training"
    names = f"class {found.rare[0]}" if len(found.rare) == 1 else f"classes {outcomes.few(found.rare)}"
    return RULE.finding(
        severity=severity,
        confidence=0.9 if found.recall < 0.3 else 0.8 if found.recall < 0.5 else 0.65,
        title=f"{found.share:.0%} of samples are class {found.frequent}; {found.recall:.0%} of {names} are found",
        summary=(
            f"The accuracy of {last.accuracy:.1%} hides it: always naming class {found.frequent} scores "
            f"{last.majority:.1%}, and the mean recall over classes is {last.balanced:.1%}. Nothing in the loss or the "
            "sampling makes up for the rare classes."
        ),
        fix=_fix(run, last),
        evidence=[
            Evidence(
                f"recall in {where}: {found.frequent_recall:.0%} for class {found.frequent}, {found.recall:.0%} for "
                f"{names} ({found.support:.0f} samples)",
                None,
                found.recall,
                FOUND_LESS,
            ),
            Evidence(
                f"accuracy {last.accuracy:.1%} against {last.majority:.1%} for always naming class {found.frequent}; "
                f"balanced accuracy {last.balanced:.1%}",
                ACCURACY_VALIDATION.name if seen else None,
                last.accuracy,
                last.majority,
            ),
        ],
        where=[Place(file=call.file, line=call.line)] if call else [],
        first_step=seen[0].step if seen else last.step,
        last_step=last.step,
        symptoms=("high-accuracy-fails-in-use", "good-loss-bad-metric"),
    )


def _fix(run: Run, last: Outcome) -> Fix:
    binary = any(c.function in baseline.BINARY for c in baseline.loss_calls(run))
    share_C = last.shares
    if binary and len(share_C) == 2 and share_C[1]:
        ratio = share_C[0] / share_C[1]
        code = f"criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor({ratio:.3g}))"
    else:
        code = "criterion = nn.CrossEntropyLoss(weight=counts.sum() / (len(counts) * counts.clamp(min=1)))"
        code = f"counts = torch.bincount(y_train, minlength={len(share_C)}).float(); {code}"
    return Fix(
        "Weigh the classes in the loss (or draw them evenly with a WeightedRandomSampler), and judge by recall by "
        "class or balanced accuracy.",
        code,
    )
