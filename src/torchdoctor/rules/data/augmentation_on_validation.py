"""Validation samples change from one validation to the next.

## What it means
The same validation samples come with other inputs each time: a random crop, flip, mask or noise is applied to them.
The metric measures the model on distorted data and jumps with the random numbers, so that runs and epochs cannot be
compared, and the best checkpoint is partly a matter of luck.

## Why it happens
- Both splits are cut from one dataset object whose transform augments (`random_split(ImageFolder(root, augment))`).
- The transform for training is passed to both datasets, or a collate function augments whatever it gets.
- The augmentation sits in the training step or the model and is not switched off for evaluation.

## How it is detected
The first batches of each validation are fingerprinted, inputs and targets apart. Where the targets are the same as the
time before, sample by sample, and inputs are not, the same samples were changed. (Where a loader keeps the order and
no targets can be seen, its order takes their place.) At least a tenth of the samples must change.

## How to fix it
Give validation a transform of its own, without random parts: two dataset objects over the same files, split by the
same indices; or switch augmentation by `model.training`.

## Known false alarms
Denoising, masked and generative models put noise into the input on purpose: where the target has the shape of the
input, nothing is reported. Nor where targets change as well: then other samples were drawn. Nor where a loss without a
target weighs samples against each other (triplets, pairs): which ones are drawn is the task. Averaging predictions over
random crops (test-time augmentation) is reported as a warning if each pass is new.

## References
Shorten and Khoshgoftaar, "A survey on Image Data Augmentation for Deep Learning" (2019), on test-time use. PyTorch
tutorials, "Transfer Learning for Computer Vision": separate transforms for train and val.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from torchdoctor.facts import (
    VALIDATION,
    InputsFact,
    LoaderFact,
    LossCallFact,
    ModesFact,
    SplitFact,
    ValidationBatchFact,
)
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="D013",
    name="augmentation-on-validation",
    family="data",
    needs=(ValidationBatchFact,),
    explains=("noisy-validation", "train-validation-mismatch"),
)

LEAST_SAMPLES = 8
LEAST_PAIRS = 2
"""Pairs of validations that must show it, so three validations (or two batches of two)."""
CHANGED = 0.1
"""Share of samples that change; a flip with probability one half changes half of them."""
KINDS = 2
"""Different targets among those compared, so that equal targets mean equal samples."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    if reconstructs(run) or weighs_samples(run):
        return
    shares, groups = changed_shares(run)
    if len(shares) < LEAST_PAIRS:
        return
    share = float(np.median(shares))
    if share >= CHANGED:
        yield _finding(run, share, len(shares), groups)
    elif not np.any(shares):
        text = "the validation samples were the same, bit for bit, in every validation"
        yield RuledOut(RULE.name, text, ValidationBatchFact.kind, 0.0)


def reconstructs(run: Run) -> bool:
    """Whether the target has the shape of the input: denoising, masking, autoencoding."""
    shapes = {tuple(f.shape[1:]) for f in run.facts(InputsFact) if f.role == "input" and len(f.shape) > 1}
    targets = {tuple(f.target_shape[1:]) for f in run.facts(LossCallFact) if f.target_shape and len(f.target_shape) > 1}
    return any(t in shapes and len(t) >= 1 and np.prod(t) > 1 for t in targets)


def weighs_samples(run: Run) -> bool:
    """Whether outputs are held against each other and not against a target."""
    losses = run.facts(LossCallFact)
    seen = any(fact.targets for fact in run.facts(ValidationBatchFact))
    return bool(losses) and not seen and all(fact.target_shape is None for fact in losses)


def changed_shares(run: Run) -> tuple[list[float], list[str]]:
    """Of each pair of successive validations of the same samples: the share whose inputs differ."""
    keeps_order = ordered_loaders(run)
    series: dict[tuple[str, int], list[ValidationBatchFact]] = {}
    for fact in run.facts(ValidationBatchFact):
        series.setdefault((fact.group, fact.position), []).append(fact)
    shares: list[float] = []
    groups: dict[str, None] = {}
    for (group, _), batches in series.items():
        for before, after in pairwise(batches):
            if len(before.inputs) != len(after.inputs) or len(before.inputs) < LEAST_SAMPLES:
                continue
            if same_samples(before, after, group in keeps_order):
                differ = sum(a != b for a, b in zip(before.inputs, after.inputs, strict=True))
                shares.append(differ / len(before.inputs))
                if differ:
                    groups.setdefault(group)
    return shares, list(groups)


def same_samples(before: ValidationBatchFact, after: ValidationBatchFact, in_order: bool) -> bool:
    if not before.targets or not after.targets:
        return in_order
    if before.targets != after.targets:
        return False
    return in_order or len(set(before.targets)) >= KINDS


def ordered_loaders(run: Run) -> set[str]:
    """Loaders that go through an indexed dataset in its order."""
    indexed = {f.loader for f in run.facts(SplitFact) if f.samples and not f.iterable}
    return {f.name for f in run.facts(LoaderFact) if f.shuffled is False and f.name in indexed}


def _by_what(run: Run) -> str:
    """The samples are known to be the same."""
    seen = any(fact.targets for fact in run.facts(ValidationBatchFact))
    return "targets equal and in order" if seen else "a loader that keeps its order"


def _finding(run: Run, share: float, pairs: int, groups: list[str]) -> Finding:
    loader = next((g for g in groups if not g.startswith("#")), None)
    modes = [f for f in run.facts(ModesFact) if f.phase == VALIDATION and f.file]
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.95 if share > 0.3 else 0.85,
        proof=Proof.STRUCTURE,
        title=f"{share:.0%} of the validation samples change from one validation to the next",
        summary="The same samples come with other inputs each time, so a random augmentation is applied to them: "
        "validation measures distorted data, and jumps with the random numbers.",
        where=known(*(Place(file=f.file, line=f.line) for f in modes[:1])),
        evidence=[
            Evidence(
                f"{_by_what(run)}, inputs of {share:.0%} of the samples different, over {pairs} comparisons"
                + (f" of batches from {loader}" if loader else ""),
                ValidationBatchFact.kind,
                share,
                CHANGED,
            )
        ],
        fix=Fix(
            "Give validation its own transform without random parts; split two dataset objects by the same indices.",
            "val_set = Subset(Dataset(..., transform=plain), val_indices)  # train_set keeps the augmenting transform",
        ),
        symptoms=("validation-jumps",),
    )
