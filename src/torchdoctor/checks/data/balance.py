"""How many samples each class has, and each label of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome, failed
from torchdoctor.checks.data.sources import Source, target_of
from torchdoctor.checks.model.looks import Look, Looks, targets_of
from torchdoctor.facts import LossCallFact
from torchdoctor.findings import Fix, Severity
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.rules import baseline, outcomes
from torchdoctor.rules.data import class_imbalance
from torchdoctor.rules.data.constant_inputs import DEAD_SAMPLES
from torchdoctor.run import Run

CLASSES = (*baseline.CLASSIFICATION, *baseline.BINARY)
"""Losses whose targets are classes."""
DOMINANT = 0.95
"""Share of one class from which on naming it always looks like a good model."""
READ = 512
"""Labels that are read one by one where they are not stored together."""
LEAST_LABELS = 30


def goes_in_unchanged(look: Look, functions: tuple[str, ...] = ()) -> bool:
    """The loss gets the batch's target as it is; of several losses the first, or the first of these functions."""
    held = batch_tensors(target_of(look.batch))
    called = [c.target for c in look.calls if c.target is not None and (not functions or c.function in functions)]
    if not held or not called or held[0].numel() != called[0].numel():
        return False
    return bool((held[0].flatten().to(called[0]) == called[0].flatten()).all())


@dataclass(frozen=True)
class Labels:
    """One class for each sample, as far as it is known."""

    values: NDArray[Any]
    whole: bool
    """every sample of the training set"""
    drawn: NDArray[Any]
    """as they came in batches"""

    @property
    def counts(self) -> dict[int, int]:
        kinds, counts = np.unique(self.values.astype(np.int64), return_counts=True)
        return dict(zip(kinds.tolist(), counts.tolist(), strict=True))

    @property
    def said(self) -> str:
        return f"{len(self.values)} {'training labels' if self.whole else 'labels looked at'}"


def labels_of(bench: Bench, looks: Looks, source: Source, run: Run) -> Labels | None:
    """None where they are no classes, or there is more than one a sample."""
    calls = [c for c in baseline.loss_calls(run) if c.function in CLASSES]
    if not calls or not outcomes.is_by_sample(run) or any(is_soft(c) for c in calls):
        return None
    ignore = calls[-1].ignore_index
    drawn = [t.flatten().cpu().double().numpy() for look in looks.train for t in _classes_of(bench, look)]
    if all(len(part) > 1 and np.array_equal(part, np.arange(len(part))) for part in drawn):
        return None  # positions in the batch, of a contrastive loss
    seen = np.concatenate(drawn) if drawn else np.zeros(0)
    unchanged = goes_in_unchanged(looks.train[0], CLASSES)
    stored = source.labels_across(READ) if source.is_indexed and unchanged and source.keeps_targets else None
    whole = stored is not None and len(stored) == len(source.indices)
    values = seen if stored is None or len(stored) < len(seen) else stored.astype(np.float64)
    values, seen = (part[(part != ignore) & np.isfinite(part)] for part in (values, seen))
    return Labels(values, whole, seen) if len(values) >= LEAST_LABELS else None


def _classes_of(bench: Bench, look: Look) -> list[Tensor]:
    """What the first loss of classes got: boxes, say, may go into another before it."""
    called = [c.target for c in look.calls if c.function in CLASSES and c.target is not None]
    return (called or targets_of(bench, look))[:1]


def is_soft(call: LossCallFact) -> bool:
    """Targets are probabilities, not classes."""
    indices = call.target_dtype is not None and not call.target_dtype.startswith(("float", "bfloat"))
    return not call.target_integral or (call.function in baseline.CLASSIFICATION and not indices)


def judge_balance(labels: Labels | None, run: Run) -> Outcome | None:
    if labels is None:
        return None
    counts = labels.counts
    frequent = max(counts, key=lambda c: counts[c])
    share = counts[frequent] / sum(counts.values())
    if len(counts) == 1:
        sure = labels.whole or len(labels.values) > len(labels.drawn)
        text = f"all {labels.said} are class {frequent}: there is nothing to tell apart"
        fix = Fix(
            "Look at how labels are made" + (", or whether the data comes sorted by class." if not sure else "."),
            "print(torch.unique(y, return_counts=True))",
        )
        return failed(text, class_imbalance.RULE.name, fix, severity=Severity.ERROR if sure else Severity.WARNING)
    if share < DOMINANT or outcomes.is_weighted(run) or _is_evened_out(labels):
        return None
    if any(c.reduction == "none" for c in baseline.loss_calls(run)):
        return _note_imbalance(labels, frequent, share)
    binary = all(c.function in baseline.BINARY for c in baseline.loss_calls(run))
    ratio = counts[frequent] / (sum(counts.values()) - counts[frequent])
    code = (
        f"criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor({ratio:.3g}))"
        if binary and frequent == 0
        else "counts = torch.bincount(y_train).float()\n"
        "criterion = nn.CrossEntropyLoss(weight=counts.sum() / (len(counts) * counts.clamp(min=1)))"
    )
    return failed(
        f"{share:.1%} of the {labels.said} are class {frequent}, and nothing makes up for it: "
        f"naming it always is {share:.1%} accurate",
        class_imbalance.RULE.name,
        Fix(
            "Weigh the classes in the loss or draw them evenly (WeightedRandomSampler), and judge by recall by class "
            "rather than by accuracy.",
            code,
        ),
        severity=Severity.WARNING,
        share=share,
    )


def _note_imbalance(labels: Labels, frequent: int, share: float) -> Outcome:
    """Of a loss that gives one number a sample: what makes one of them, a focal loss say, may make up for it."""
    return failed(
        f"{share:.1%} of the {labels.said} are class {frequent}: naming it always is {share:.1%} accurate",
        class_imbalance.RULE.name,
        Fix(
            "Judge by recall by class rather than by accuracy.",
            "recall = torch.stack([(predicted[y == c] == c).float().mean() for c in y.unique()])",
        ),
        severity=Severity.INFO,
        share=share,
    )


def _is_evened_out(labels: Labels) -> bool:
    """A sampler brings the rare classes more often than they are stored."""
    if len(labels.drawn) < LEAST_LABELS:
        return False
    stored = max(labels.counts.values()) / len(labels.values)
    drawn = np.unique(labels.drawn, return_counts=True)[1].max() / len(labels.drawn)
    return bool(1 - drawn > class_imbalance.BALANCED_BY * (1 - stored))


def judge_many(bench: Bench, looks: Looks, source: Source, run: Run) -> Outcome | None:
    """Several labels of 0 and 1 a sample: one that never changes cannot be learned."""
    calls = baseline.loss_calls(run)
    rows = [
        t.reshape(len(t), -1).cpu().float() for look in looks.train for t in targets_of(bench, look)[:1] if t.dim() > 1
    ]
    if not calls or any(c.function not in baseline.BINARY for c in calls) or not rows or rows[0].shape[1] < 2:
        return None
    width = rows[0].shape[1]
    if any(t.dim() > 2 for look in looks.train for t in targets_of(bench, look)) or any(
        r.shape[1] != width for r in rows
    ):
        return None
    column = source.stored_target if goes_in_unchanged(looks.train[0]) else None
    parts = [values.float() for values, _ in column.portions()] if column is not None else rows
    if any(bool(((p != 0) & (p != 1)).any()) for p in parts):
        return None  # no labels: what an autoencoder rebuilds
    low, high = (np.min([p.amin(0).numpy() for p in parts], 0), np.max([p.amax(0).numpy() for p in parts], 0))
    samples, constant = sum(map(len, parts)), np.flatnonzero(low == high)
    if samples < DEAD_SAMPLES or not len(constant):
        return None
    first = int(constant[0])
    what = "never positive" if high[first] == 0 else "always positive"
    others = f", and {len(constant) - 1} more never change" if len(constant) > 1 else ""
    return failed(
        f"label {first} of {width} is {what} in {samples} samples{others}: it cannot be learned",
        class_imbalance.RULE.name,
        Fix("Drop the label, or find what lost its samples.", "print(y.float().mean(0))"),
        severity=Severity.WARNING if column is not None else Severity.INFO,
        constant=len(constant),
    )
