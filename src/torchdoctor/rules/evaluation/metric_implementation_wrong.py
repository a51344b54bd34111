"""The metric that the script reports is not what its predictions give.

## What it means
The model may be fine or not: the number that is looked at does not say. Decisions taken on it (which checkpoint, when
to stop, whether it works) are wrong.

## Why it happens
- Divided by the wrong number: batches instead of samples, the training set's length, a batch size that the last batch
  does not have.
- argmax over the wrong dimension, a threshold on logits as if they were probabilities.
- Predictions of shape (N, 1) compared with labels of shape (N,): every prediction meets every label.
- Sums that are not reset between epochs, or only the last batch counted.

## How it is detected
Where a loss function is called in validation, predictions and labels are seen, and the metric is computed from them:
accuracy in its usual forms (over samples, over batches, balanced, top-k), F1, precision, recall, R2. What the script
logs through `doctor.log`, prints or writes to its log under such a name is compared, pass by pass. The finding needs at
least three passes; three quarters of them and the last three must lie apart from every form of the metric by more than
five points and four standard errors of so many samples. A constant ratio between both is told: it names the divisor.

## How to fix it
Add up hits and samples over the pass and divide once at the end; compare shapes before comparing values; check the
metric on ten samples by hand, or with scikit-learn.

## Known false alarms
Accuracies of training, language models, taggers and segmentation are not compared, nor errors in the target's own
unit (RMSE, MAE), which may be scaled back. Runs with several evaluation loaders or loss calls in evaluation are left
out. A metric over another set than the one whose loss is computed, with a very
different result, would be taken for wrong; a name without a phase that fits training is left alone.

## References
Musgrave, Belongie and Lim, "A Metric Learning Reality Check" (2020). Opitz and Burst, "Macro F1 and Macro F1" (2019).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from torchdoctor.facts import VALIDATION, LoaderFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Evidence, Finding, Fix, Proof, Severity
from torchdoctor.rules import curves, outcomes
from torchdoctor.rules.curves import Floats, figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACCURACY_TRAIN, PRINTED, USER

RULE = Rule(
    code="E011",
    name="metric-implementation-wrong",
    family="evaluation",
    needs=(SamplesFact,),
    explains=("metric-disagrees-with-loss", "stale-evaluation", "noisy-validation"),
)

APART = 0.05
SIGMAS = 4.0
"""Standard errors of the metric over so many samples: another set of the same kind would lie closer."""
LEAST_PASSES = 3
MOSTLY = 0.75
"""Share of the passes that lie apart, the last three among them: sums that are never reset are right in the first."""
SAME_RATIO = 0.01
"""Scatter of the ratio of both over the passes that makes it one number."""
PERCENT = 1.5
"""A share above this was printed as a percentage, or is none."""
FORMS = {
    "accuracy": ("accuracy", "balanced_accuracy", "batch_mean_accuracy"),
    "f1": ("f1", "macro_f1", "weighted_f1", "accuracy"),
    "recall": ("recall", "balanced_accuracy", "accuracy"),
    "precision": ("precision", "macro_precision", "weighted_precision", "accuracy", "macro_f1", "weighted_f1"),
    "r2": ("r2",),
}
_KINDS = {"accuracy": r"\bacc", "f1": r"\bf1|f-?score", "recall": r"recall", "precision": r"precision", "r2": r"\br2\b"}
_TRAINING = re.compile(r"\b(train|training|tr)\b")
_VALIDATION = re.compile(r"\b(val|valid|validation|test|testing|eval|evaluation|dev)\b")
_OTHER = re.compile(
    r"\b(top|best|micro|pos|neg|class|per|avg|average|mean|running|ema|max|min)|top\d|\bacc(uracy)?\s?\d|@|\bhits?\b"
)
_CODE = "right += (logits.argmax(1) == y).sum().item(); total += len(y)  # after the pass: accuracy = right / total"


@dataclass(frozen=True)
class Comparison:
    """One name over the passes: what was reported, and the nearest form of the metric."""

    name: str
    kind: str
    logged: bool
    steps: tuple[int, ...]
    reported: Floats
    computed: Floats
    samples: int

    @property
    def ratio(self) -> float | None:
        """Reported over computed where it is one number."""
        if (self.computed <= 0).any() or not self.reported.any() or len(self.reported) < LEAST_PASSES:
            return None
        ratios = self.reported / self.computed
        middle = float(np.median(ratios))
        same = float(np.abs(ratios / middle - 1).max()) <= SAME_RATIO
        return middle if same and np.ptp(self.computed) > SAME_RATIO * self.computed.mean() else None


def detect(run: Run) -> Iterator[Finding]:
    seen = [(s, f) for s, f in outcomes.looks(run, VALIDATION) if f.metrics and f.whole and not f.logged]
    if len(seen) < LEAST_PASSES or (seen[-1][1].task == "classes" and not outcomes.is_by_sample(run)):
        return
    if not is_one_pass(run):
        return
    seen = [(s, with_precision(run, s, f)) for s, f in seen]
    for signal in (USER, PRINTED):
        for name in run.keys(signal):
            found = compare(run, name, run.scalar(signal, name), seen, logged=signal is USER)
            if found is not None:
                yield _finding(found)
                return


def is_one_pass(run: Run) -> bool:
    """One loader and one loss call in evaluation: with several, a reported number may be that of another."""
    loaders = {f.name for f in run.facts(LoaderFact) if f.phase == VALIDATION}
    sites = {f.site for f in run.facts(SamplesFact) if f.phase == VALIDATION and not f.logged}
    return len(loaders) <= 1 and len(sites) <= 1


def with_precision(run: Run, step: int, fact: SamplesFact) -> SamplesFact:
    """The same with the means of the classes' precisions, where the counts of that pass are known."""
    counted = [f for s, f in run.facts_at(PredictionsFact) if s == step and f.phase == VALIDATION]
    if len(counted) != 1 or counted[0].samples != fact.samples or fact.task != "classes":
        return fact
    outcome = outcomes.read(step, counted[0])
    seen_C = (outcome.support > 0) | (outcome.predicted > 0)
    precision_C = outcome.correct / np.maximum(1.0, outcome.predicted)
    more = {
        "macro_precision": float(precision_C[seen_C].mean()),
        "weighted_precision": float((outcome.shares * precision_C).sum()),
    }
    return replace(fact, metrics={**more, **fact.metrics})


def compare(
    run: Run, name: str, trace: Trace, seen: list[tuple[int, SamplesFact]], *, logged: bool
) -> Comparison | None:
    """The comparison, if what was reported lies apart in every pass."""
    words = name.lower().replace("_", " ").replace("/", " ").replace("-", " ")
    kind = next((k for k, pattern in _KINDS.items() if re.search(pattern, words)), None)
    if kind is None or _TRAINING.search(words) or _OTHER.search(words):
        return None
    pairs = list(_pair(trace, seen))
    if len(pairs) < LEAST_PASSES or len({s for s, _, _ in pairs}) < len(pairs):
        return None
    reported = np.array([value for _, value, _ in pairs])
    real = float(np.median([fact.metrics.get(FORMS[kind][0], math.nan) for _, _, fact in pairs]))
    middle = float(np.median(reported))
    if middle > PERCENT and real > 0 and abs(math.log(middle / 100 / real)) < abs(math.log(middle / real)):
        reported = reported / 100
    computed, apart = [], []
    for value, (_, _, fact) in zip(reported, pairs, strict=True):
        forms = [fact.metrics[f] for f in FORMS[kind] if f in fact.metrics]
        forms += [1 - f for f in forms] if "err" in words else []
        if not forms:
            return None
        computed.append(forms[0])
        spread = math.sqrt(max(forms[0] * (1 - forms[0]), 0.01) / fact.samples) if kind != "r2" else 0.0
        apart.append(min(abs(value - f) for f in forms) > max(APART, SIGMAS * spread))
    if (
        not all(apart[-LEAST_PASSES:])
        or np.mean(apart) < MOSTLY
        or (not _VALIDATION.search(words) and _fits_training(run, reported, pairs))
    ):
        return None
    steps = tuple(s for s, _, _ in pairs)
    return Comparison(name, kind, logged, steps, reported, np.array(computed), pairs[-1][2].samples)


def _pair(trace: Trace, seen: list[tuple[int, SamplesFact]]) -> Iterator[tuple[int, float, SamplesFact]]:
    """Each pass with the one number that was reported after it and before the next."""
    steps = [s for s, _ in seen]
    for i, (step, fact) in enumerate(seen):
        until = steps[i + 1] if i + 1 < len(steps) else math.inf
        inside = (trace.steps >= step) & (trace.steps < until)
        values = trace.values[inside]
        if len(values) == 1 and math.isfinite(float(values[0])) and trace.merged == 1:
            yield step, float(values[0]), fact


def _fits_training(run: Run, reported: Floats, pairs: list[tuple[int, float, SamplesFact]]) -> bool:
    """Whether the numbers could be the training accuracy; they could where that is not known."""
    train = run.scalar(ACCURACY_TRAIN)
    if not len(train):
        return True
    nearby = np.interp([s for s, _, _ in pairs], train.steps, curves.smooth(train.values, 9))
    scatter = max(APART, 3 * curves.noise(train.values))
    return bool((np.abs(reported - nearby) <= scatter).mean() > 0.3)


def _finding(found: Comparison) -> Finding:
    ratio = found.ratio
    last = (float(found.reported[-1]), float(found.computed[-1]))
    impossible = bool((found.reported > 1).any()) and found.kind != "r2"
    why = ""
    if ratio is not None:
        why = f" It is {figure(ratio)} times the real one in every pass: the sum is divided by a wrong number."
    elif impossible:
        why = " A share above one cannot be: more hits are counted than there are samples."
    elif np.ptp(found.reported) == 0:
        why = " It is the same number in every pass, while the real one moves."
    return RULE.finding(
        severity=Severity.ERROR if ratio is not None or impossible else Severity.WARNING,
        confidence=0.95 if ratio is not None or impossible else 0.8,
        title=f"'{found.name}' is reported as {figure(last[0])}; the predictions give {figure(last[1])}",
        summary=(
            f"Over {len(found.steps)} validation passes the reported number lies apart from what the outputs and "
            f"labels of the same pass give.{why}"
        ),
        fix=Fix(
            "Count hits and samples over the whole pass and divide once; check that predictions and labels have one "
            "shape and that argmax runs over the classes.",
            _CODE if found.kind != "r2" else "r2 = 1 - ((y - prediction) ** 2).sum() / ((y - y.mean()) ** 2).sum()",
        ),
        evidence=[
            Evidence(
                f"{'logged' if found.logged else 'printed'}: "
                f"{outcomes.few([figure(float(v)) for v in found.reported[-4:]])}",
                USER.name if found.logged else PRINTED.name,
                last[0],
                last[1],
                curves.spark(found.reported),
            ),
            Evidence(
                f"{found.kind} of the same passes ({found.samples} samples): "
                f"{outcomes.few([figure(float(v)) for v in found.computed[-4:]])}",
                None,
                last[1],
                None,
                curves.spark(found.computed),
            ),
        ],
        proof=Proof.STRUCTURE if ratio is not None or impossible else Proof.STATISTICS,
        first_step=found.steps[0],
        last_step=found.steps[-1],
        symptoms=("good-loss-bad-metric", "metric-flat-while-loss-falls"),
    )
