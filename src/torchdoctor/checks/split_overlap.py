"""The splits hold enough samples, and none in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.data.marks import Marks, compare_marks, is_same_again, is_steady, mark
from torchdoctor.checks.data.near_duplicates import Nearness, measure_nearness
from torchdoctor.checks.data.sources import Source, inputs_of
from torchdoctor.checks.model.looks import looks_of
from torchdoctor.checks.model.records import record_of, worst_of
from torchdoctor.findings import Fix, Severity
from torchdoctor.probes.splits import signature
from torchdoctor.rules import baseline
from torchdoctor.rules.data import train_validation_overlap
from torchdoctor.rules.data.membership import UNLIKELY_BITS, Overlap
from torchdoctor.rules.data.train_validation_overlap import HARMFUL, LEAST_MATCHES, NATURAL, is_beyond_chance, is_masked
from torchdoctor.rules.evaluation.noisy_validation import NORMAL_95, PLENTY, TINY

CHECK = Check(
    name="split-overlap",
    asks="training and validation share no samples, and validation has enough of them",
    part=DATA,
    needs_loss=False,
    order=30,
    diagnoses=("train-validation-overlap", "noisy-validation"),
)
NEAR_SHARE = 0.1
"""Near duplicates between the splits of public image sets are 3 to 10 % (Barz and Denzler, 2020)."""
TYPICAL = 0.8
"""An accuracy to tell an interval for."""
TRIED = 3
SPLIT = Fix(
    "Split once, by indices, before duplicating or augmenting anything, and build both sets from that split.",
    "order = torch.randperm(len(dataset)).tolist(); cut = int(0.8 * len(order))\n"
    "train_set, val_set = Subset(dataset, order[:cut]), Subset(dataset, order[cut:])",
)


def perform(bench: Bench) -> Outcome:
    if not bench.validation:
        return skipped(bench.without("validation data"))
    train, held = Source(bench.train_loader, bench.train), Source(bench.validation_loader, bench.validation)
    size = _judge_size(bench, train, held)
    exact = overlap_of_indices(train, held)
    if exact is not None and exact.matches:
        why_not = _explained(bench, held)
        return _overlapping(exact) if why_not is None else size or skipped(why_not)
    marks = compare_marks(train, held)
    if marks is None:
        return size or skipped("samples come out differently each time, and what is stored behind them is out of sight")
    overlap = overlap_of_marks(*marks)
    if overlap is not None and is_beyond_chance(overlap):
        why_not = _explained(bench, held)
        if why_not is not None:
            return size or skipped(why_not)
        found = _overlapping(overlap, named=marks[0].bits == math.inf)
    else:
        found = _judge_nearness(measure_nearness(marks[0].rows, marks[1].rows))
    return worst_of(found, size) or _pass(bench, held, overlap, marks)


# -- the same samples ------------------------------------------------------------------------------


def overlap_of_indices(train: Source, held: Source) -> Overlap | None:
    """Exact, where both draw from the same stored data; None where they do not."""
    if not (train.is_indexed and held.is_indexed):
        return None
    (base, used), (other, kept) = train.base, held.base
    if base is not other and not _holds_the_same(base, other):
        return None
    used, kept = np.unique(used), np.unique(kept)
    matches = int(np.isin(kept, used).sum())
    return Overlap("validation", matches, len(kept), matches / len(kept), 0.0, True, len(kept), len(used))


def _holds_the_same(base: Any, other: Any) -> bool:
    """Two objects over the same data: told by what they hold, and by some samples where these are not random."""
    known = signature(base)
    if not known or known != signature(other):
        return False
    try:
        pairs = [[mark(inputs_of(d[at])) for d in (base, base, other)] for at in range(min(TRIED, len(base)))]
    except Exception:
        return True
    return all(one != again or one is None or one == theirs for one, again, theirs in pairs)


def overlap_of_marks(train: Marks, held: Marks) -> Overlap | None:
    """Equal samples, and how many there would be by chance: as many as recur among those of training."""
    if not len(train.values) or not len(held.values):
        return None
    used, counts = np.unique(train.values, return_counts=True)
    kept = np.unique(held.values)
    matches = int(np.isin(kept, used).sum())
    copies = train.bits is not None and train.bits >= UNLIKELY_BITS
    recurring = 0.0 if copies else float(counts[counts > 1].sum()) / len(train.values)
    size, trained = held.size or len(held.values), train.size or len(train.values)
    share = min(1.0, matches / len(kept) / min(1.0, len(train.values) / trained))
    return Overlap("validation", matches, len(kept), share, recurring * len(kept), False, size, trained)


def _overlapping(overlap: Overlap, named: bool = False) -> Outcome:
    share = f"{overlap.share:.0%}" if overlap.share >= 0.01 else f"{overlap.share:.1%}"
    if overlap.by_index:
        text = f"{overlap.matches} of the {overlap.compared} validation samples are also in the training set ({share})"
        told = "both loaders draw from the same data, and these indices are in both"
    else:
        whole = overlap.compared >= (overlap.size or 0) and overlap.share <= overlap.matches / overlap.compared
        about = "" if whole else "about "
        how = "come from the same files as" if named else "are equal, bit for bit, to"
        text = f"{about}{share} of the validation samples {how} training samples"
        told = f"{overlap.matches} of {overlap.compared} compared; about {overlap.chance:.0f} would be by chance"
    severity = Severity.ERROR if overlap.share >= HARMFUL else Severity.WARNING
    severity = Severity.INFO if overlap.share < NATURAL or overlap.chance >= 1 else severity
    name = train_validation_overlap.RULE.name
    return failed(text, name, SPLIT, severity=severity, evidence=(told,), share=overlap.share, matches=overlap.matches)


def _explained(bench: Bench, held: Source) -> str | None:
    """Why samples may be equal without being shared."""
    if is_masked(record_of(bench)):
        return "both splits hold the same samples, and the loss takes a part of them: a mask seems to tell them apart"
    if not held.is_indexed and not is_same_again(held):
        return "validation samples are made at random as they are read, or come in another order each time"
    if held.is_indexed and not held.columns and not is_steady(held):
        return "samples are made at random as they are read"
    return None


def _judge_nearness(near: Nearness | None) -> Outcome | None:
    beyond = train_validation_overlap.BEYOND_CHANCE
    if near is None or near.near < max(LEAST_MATCHES, beyond * near.chance) or near.share < NEAR_SHARE:
        return None
    return failed(
        f"{near.near} of {near.compared} validation samples are all but equal to a training sample",
        train_validation_overlap.RULE.name,
        Fix(
            "Keep what belongs together (copies, crops, frames of one film, records of one person) in one split.",
            "train, val = next(GroupShuffleSplit(test_size=0.2).split(X, groups=groups))  # scikit-learn",
        ),
        severity=Severity.WARNING,
        evidence=(f"ten times nearer to it than to others; chance would give about {near.chance:.1f} such samples",),
        near=near.near,
    )


# -- their number -----------------------------------------------------------------------------------


def _judge_size(bench: Bench, train: Source, held: Source) -> Outcome | None:
    """Only where next to nothing is held back although there is plenty."""
    size, trained = held.size, train.size
    if size is None or size > TINY or trained is None or trained < PLENTY * size:
        return None
    return failed(
        f"validation has {size} samples: {uncertainty(bench, size)}",
        "noisy-validation",
        Fix(
            f"Hold back more than {size} of {trained + size} samples, or use cross-validation.",
            "train_set, val_set = torch.utils.data.random_split(dataset, [0.8, 0.2])",
        ),
        severity=Severity.WARNING,
        samples=size,
    )


def uncertainty(bench: Bench, samples: int) -> str:
    """What so many samples can tell, in words."""
    calls = [call.function for look in looks_of(bench).train for call in look.calls]
    if calls and all(c in (*baseline.CLASSIFICATION, *baseline.BINARY) for c in calls):
        low, high = wilson(TYPICAL, samples)
        return f"an accuracy of {TYPICAL:.0%} there means anything from {low:.0%} to {high:.0%}"
    return f"a mean over them is uncertain by {NORMAL_95 / math.sqrt(samples):.0%} of the spread of single samples"


def wilson(share: float, samples: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927)."""
    square = NORMAL_95**2 / samples
    middle = (share + square / 2) / (1 + square)
    half = NORMAL_95 * math.sqrt(share * (1 - share) / samples + square / samples / 4) / (1 + square)
    return middle - half, middle + half


def _pass(bench: Bench, held: Source, overlap: Overlap | None, marks: tuple[Marks, Marks]) -> Outcome:
    size = held.size
    counted = f"{marks[0].size or len(marks[0].values)} and {size or len(marks[1].values)} samples"
    end = f"; {uncertainty(bench, size)}" if size else ""
    if overlap is None:
        return skipped(f"{counted}; they could not be compared{end}")
    beyond = " beyond what chance gives" if overlap.matches else ""
    return passed(f"{counted}, none in common{beyond}{end}", train=marks[0].size, validation=size)
