"""Validation samples were also trained on.

## What it means
A part of the validation set is in the training set. On those samples the model is asked what it has seen the answer
to, so validation loss and accuracy are better than what new data would give, early stopping and model selection
prefer memorising, and overfitting stays hidden.

## Why it happens
- The split was made, but the loader was given the whole dataset, or the wrong variable.
- Two datasets (one with augmentation, one without) were each split at random, with different seeds.
- Slices that overlap: `X[:800]` and `X[700:]`.
- Duplicates in the source, or oversampling and augmentation that were done before the split.

## How it is detected
By identity, in two ways. Loaders over the same stored data (Subset, SubsetRandomSampler, a wrapper around either) are
compared by their indices, exactly. And the inputs that the model gets are fingerprinted: in validation whole batches,
in training the batches that are looked at. Two equal 64-bit fingerprints are two equal samples, so a few suffice; the
share is estimated from how much of the training set was looked at. How often samples agree by chance is measured inside
batches and inside one validation, where each sample should stand once: only matches far beyond it count. Inputs of real
numbers that take too many values to agree by chance need no such allowance: equal ones are copies. Passes without
gradients that stand before every update (a teacher's) are no validation. Nor are passes that compute no loss and see
other samples each time (an agent's). Where the model makes many samples of each item (windows of a series) and none of
them agree, equal items say nothing.

## How to fix it
Split once, by indices, before anything is duplicated or augmented, and build both datasets from the same indices.
Remove duplicates first, and split by group (patient, document, user) where samples of a group resemble each other.

## Known false alarms
Evaluating the training set too, beside a real validation set, is fine: a loader that also trains, or a group that is
wholly training data while another has none, is not reported. Scripts that only ever evaluate the training set
(to print the fit) get an info at most, unless the loader or variable is called validation or test. Inputs with few
different values (short token sequences, small discrete tables) agree by chance: that is measured and allowed for.
Under 2 % are natural duplicates of many public datasets, and an info.

## References
Kaufman et al., "Leakage in Data Mining" (2012). Barz and Denzler, "Do We Train on Test Data? Purging CIFAR of
Near-Duplicates" (2020). Kapoor and Narayanan, "Leakage and the Reproducibility Crisis in Machine-Learning-Based
Science" (2023).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from torchdoctor.facts import TRAIN, VALIDATION, InputsFact, LossCallFact, MembershipFact, ModesFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.data.membership import (
    Overlap,
    by_fingerprints,
    by_indices,
    is_acting,
    loader_phases,
    validation_size,
)
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_SIZE

RULE = Rule(
    code="D010",
    name="train-validation-overlap",
    family="data",
    needs=(MembershipFact,),
    explains=("validation-better-than-training",),
)

LEAST_MATCHES = 4
BEYOND_CHANCE = 5.0
"""Matches over those expected by chance: ten or more of a Poisson mean of two come less than once in 10^4."""
NATURAL = 0.02
"""Near duplicates between the splits of public image sets are 3 to 10 % (Barz and Denzler), exact ones under 2 %."""
HARMFUL = 0.2
"""From here on the validation result is wrong rather than flattered."""
WHOLE = 0.85
"""Share above which the group is taken to be wholly training data, given that the share is an estimate."""
CLEAN_SAMPLES = 20
CUT = 3.0
"""Rows that the model takes at once over items that its loader gives: two views of an image are two."""
UNNAMED = "loader"
"""What a loader is called that no variable holds."""
MEANT = re.compile(
    r"(?<![a-z])[xy]?(val|valid|validation|test|dev|holdout)(set|loader|data|x|y)?(?![a-z])"
    r"(?!_(loss|acc|err|score|metric|r2|mse|mae|rmse|f1|auc))",
    re.I,
)
"""What people call data that must not be trained on."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    seen = by_fingerprints(run)
    all_found = merge([] if is_cut_inside(run, seen) else by_indices(run), seen)
    overlaps = [o for o in all_found if not also_trains(run, o) and not is_beside_every_step(run, o)]
    if not overlaps or is_masked(run) or is_acting(run):
        return
    found = [o for o in overlaps if is_beyond_chance(o)]
    clean = [o for o in overlaps if not is_beyond_chance(o) and o.matches == 0 and o.compared >= CLEAN_SAMPLES]
    guilty = [o for o in found if is_fault(run, o, clean)]
    if guilty:
        yield _finding(run, max(guilty, key=lambda o: (o.by_index, o.share)))
    elif clean and not found:
        compared = sum(o.compared for o in clean)
        text = f"none of {compared} validation samples that were compared is among the training samples looked at"
        yield RuledOut(RULE.name, text, "membership", 0.0)


def merge(exact: list[Overlap], seen: list[Overlap]) -> list[Overlap]:
    """Indices where they are known; else fingerprints. Indices of equal data may still hide duplicates."""
    known_exactly = {o.group for o in exact if o.matches}
    return [*(o for o in exact if o.matches), *(o for o in seen if o.group not in known_exactly)]


def is_cut_inside(run: Run, seen: list[Overlap]) -> bool:
    """The model makes many samples of each item (windows of a series), and none of validation is one of training: equal
    items are then cut in two, not trained on and validated with."""
    rows = run.scalar(BATCH_SIZE, TRAIN).values
    items = [loader.batch_size for loader in loader_phases(run).values() if loader.phase == TRAIN]
    largest = max((size for size in items if size), default=None)
    if largest is None or not len(rows) or float(np.median(rows)) < CUT * largest:
        return False
    return sum(o.compared for o in seen) >= CLEAN_SAMPLES and not any(o.matches for o in seen)


def is_masked(run: Run) -> bool:
    """The loss takes fewer targets than the model takes samples: a mask tells the splits apart, as on one graph."""
    given = [f.shape[0] for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input" and f.shape]
    wanted = [c.target_shape[0] for c in run.facts(LossCallFact) if c.phase == TRAIN and c.target_shape]
    return bool(given and wanted) and max(wanted) < min(given)


def also_trains(run: Run, overlap: Overlap) -> bool:
    """The training data themselves, looked at again. Loaders made in the loop all bear one name, whatever they hold:
    then only a group that is wholly training data, and as large, may be that."""
    loader = loader_phases(run).get(overlap.group)
    if loader is None or loader.phase != TRAIN:
        return False
    return loader.name != UNNAMED or (overlap.share >= WHOLE and not is_smaller(run, overlap))


def is_smaller(run: Run, overlap: Overlap) -> bool:
    """Both by its different samples and by the passes of a validation, since either may have been watched in part."""
    size = validation_size(run)
    return size is not None and is_part(run, overlap) and is_part(run, replace(overlap, size=size))


def is_beside_every_step(run: Run, overlap: Overlap) -> bool:
    """A pass without gradients before every update is a teacher's, a target network's or a rollout: no validation."""
    between = run.phase.updates_between_validations if run.phase is not None else None
    return overlap.group.startswith("#") and between is not None and between < 2


def is_beyond_chance(overlap: Overlap) -> bool:
    enough = LEAST_MATCHES if not overlap.by_index else 1
    return overlap.matches >= enough and overlap.matches >= BEYOND_CHANCE * overlap.chance


def is_fault(run: Run, overlap: Overlap, clean: list[Overlap]) -> bool:
    """Not so where the whole group is training data and that may be meant. A line that serves a clean group, too, names
    that one: `print(loss(model(X), y), loss(model(X_val), y_val))`."""
    if overlap.share < WHOLE:
        return not (clean and overlap.group.startswith("#") and overlap.trained is None)
    shared = any(o.code == overlap.code for o in clean)
    if MEANT.search(overlap.group) or (MEANT.search(overlap.code) and not shared):
        return True
    loader = loader_phases(run).get(overlap.group)
    if loader is not None and loader.phase == TRAIN:  # a loader made in the loop over some of the training data
        return False
    return not clean and (is_part(run, overlap) or overlap.by_index)


def is_discrete(run: Run) -> bool:
    """Inputs that are ids: different samples are often equal."""
    return any("int" in f.dtype for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input")


def is_part(run: Run, overlap: Overlap) -> bool:
    """Whether the group is a part of the training set only: a check of the fit would use all of it."""
    size = overlap.size if overlap.size is not None else validation_size(run)
    return size is not None and overlap.trained is not None and size < 0.7 * overlap.trained


def severity_of(run: Run, overlap: Overlap) -> Severity:
    named = bool(MEANT.search(overlap.group) or MEANT.search(overlap.code))
    if overlap.share < NATURAL or (overlap.share >= WHOLE and not named and not is_part(run, overlap)):
        return Severity.INFO
    if not overlap.by_index and is_discrete(run):
        return Severity.INFO  # ids recur: equal bytes alone do not tell
    return Severity.ERROR if overlap.share >= HARMFUL else Severity.WARNING


def _finding(run: Run, overlap: Overlap) -> Finding:
    share = f"{overlap.share:.0%}" if overlap.share >= 0.01 else f"{overlap.share:.1%}"
    exactly = "" if overlap.by_index else "about "
    where = f" of {overlap.group}" if not overlap.group.startswith("#") else ""
    if overlap.by_index:
        text = f"{overlap.matches} of the {overlap.compared} indices{where} are indices of the training loader, too"
        if overlap.size and overlap.size > overlap.compared:
            text = f"{share} of the indices{where} are indices of the training loader, too"
    else:
        text = (
            f"{overlap.matches} of {overlap.compared} validation samples{where} are equal, bit for bit, to training "
            f"samples that were looked at; about {overlap.chance:.0f} would be by chance"
        )
    evidence = [Evidence(text, "membership", overlap.share, NATURAL)]
    if overlap.size and overlap.trained and overlap.by_index:
        evidence.append(
            Evidence(
                f"{overlap.size:.0f} samples are validated on, {overlap.trained:.0f} are trained on, from one dataset"
            )
        )
    modes = [f for f in run.facts(ModesFact) if f.phase == VALIDATION and f.file]
    return RULE.finding(
        severity=severity_of(run, overlap),
        confidence=0.98 if overlap.by_index else 0.95 if overlap.matches >= 10 else 0.85,
        proof=Proof.STRUCTURE,
        title=f"{exactly}{share} of the validation samples are training samples".capitalize(),
        summary="The same samples are in both splits, so validation measures in part what was memorised: its loss and "
        "accuracy are better than new data would give.",
        where=known(*(Place(file=f.file, line=f.line) for f in modes[:1])),
        evidence=evidence,
        fix=Fix(
            "Split once, by indices, before duplicating or augmenting anything, and build both sets from that split.",
            "order = torch.randperm(len(dataset)).tolist(); cut = int(0.8 * len(order))\n"
            "train_set, val_set = Subset(dataset, order[:cut]), Subset(dataset, order[cut:])",
        ),
        symptoms=("too-good-too-soon", "validation-above-training"),
    )
