"""Validation samples are the same each time they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.data.marks import mark
from torchdoctor.checks.data.sources import ATTRIBUTES, Source, drawing_kept, inputs_of, target_of
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.tables import listed
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.rules.data.augmentation_on_validation import CHANGED, KINDS, RULE

CHECK = Check(
    name="validation-augmentation",
    asks="validation samples come unaugmented",
    part=DATA,
    order=50,
    needs_loss=False,
    diagnoses=(RULE.name,),
)
SAMPLES, READS = 16, 3
"""A change that comes with one reading in ten is missed by all of them less than once in twenty times."""
STREAMED, BATCHES = 32, 4
"""Samples of a stream, or batches of what gives batches, that are read twice."""
DEPTH = 4
RANDOM = re.compile(
    r"^Random|Jitter|AutoAugment|RandAugment|TrivialAugment|AugMix|Cutout|CutOut|Mix[Uu]p|CutMix|Erasing|Noise"
)
"""What libraries call transforms that draw random numbers."""


@dataclass(frozen=True)
class Readings:
    """Of the same samples: how many there are, and how many came out differently."""

    samples: int
    changed: int
    reconstructs: bool
    """target and input have one shape: what is random may be the task"""
    views: bool
    """several inputs of one shape, all different each time"""
    by: str = "dataset"


def perform(bench: Bench) -> Outcome:
    if not bench.validation:
        return skipped(bench.without("validation data"))
    train, held = Source(bench.train_loader, bench.train), Source(bench.validation_loader, bench.validation)
    if isinstance(held.loader, list | tuple):
        return passed("it is a list of batches, which are the same each time")
    read = _read_items(held) if held.is_indexed else _read_stream(held)
    if isinstance(read, str):
        return skipped(read)
    share = read.changed / read.samples
    if not read.changed:
        return passed(f"{read.samples} samples were the same, bit for bit, when read again", samples=read.samples)
    if share < CHANGED:
        return replace(_augmented(read, train, held), severity=Severity.INFO, diagnosis=None)
    if read.reconstructs:
        return skipped(
            f"{share:.0%} of the samples change, and targets are computed from inputs: the noise may be meant"
        )
    return _augmented(read, train, held)


def _augmented(read: Readings, train: Source, held: Source) -> Outcome:
    share, names = read.changed / read.samples, random_transforms(held.dataset)
    told = []
    if names:
        told.append(f"random transforms of the validation set: {listed(names)}")
    if held.is_indexed and train.is_indexed and held.base[0] is train.base[0]:
        told.append("training and validation are parts of one dataset object, and share its transform")
    if read.by == "collate_fn":
        told.append("the samples are the same, what the loader's collate_fn makes of them is not")
    return failed(
        f"{read.changed} of {read.samples} validation samples come out differently when they are read again",
        RULE.name,
        Fix(
            "Give validation its own transform without random parts; split two dataset objects by the same indices.",
            "val_set = Subset(Dataset(..., transform=plain), val_indices)  # train_set keeps the augmenting transform",
        ),
        severity=Severity.INFO if read.views else Severity.WARNING,
        evidence=tuple(told),
        share=share,
    )


# -- reading twice --------------------------------------------------------------------------------


def _read_items(held: Source) -> Readings | str:
    indices = np.repeat(held.indices[held.places(SAMPLES)], READS)
    items = held.items(indices)
    items = items[: len(items) // READS * READS]
    if not items:
        return f"a single sample takes too long to be read {READS} times"
    marks = [mark(inputs_of(item)) for item in items]
    if None in marks:
        return f"samples of type {type(inputs_of(items[0])).__name__} cannot be compared"
    rows = [set(marks[at : at + READS]) for at in range(0, len(marks), READS)]
    changed = sum(len(row) > 1 for row in rows)
    if not changed and _collates_at_random(held, items[::READS]):
        return Readings(len(rows), len(rows), _is_made_of_input(items[0]), False, "collate_fn")
    return Readings(len(rows), changed, _is_made_of_input(items[0]), _is_views(items[:READS]))


def _collates_at_random(held: Source, items: list[Any]) -> bool:
    collate = getattr(held.loader, "collate_fn", None)
    if collate is None or collate is default_collate:
        return False
    with drawing_kept(held.dataset):
        try:
            marks = [mark(inputs_of(collate(list(items)))) for _ in range(READS)]
        except Exception:
            return False
    return None not in marks and len(set(marks)) > 1


def _read_stream(held: Source) -> Readings | str:
    """Twice from its beginning. Where targets are the same in the same order, so are the samples."""
    of_loader = isinstance(held.loader, DataLoader) and held.dataset is not None
    if of_loader and not held.is_stream:
        return "its samples cannot be read in this process"
    source, count = (held.dataset, STREAMED) if of_loader else (held.loader, BATCHES)
    if source is None:
        return "the validation loader is out of sight, so nothing can be read again"
    with drawing_kept(held.dataset):
        first, second = list(islice(iter(source), count)), list(islice(iter(source), count))
    inputs, targets = ([[mark(part(i)) for i in walk] for walk in (first, second)] for part in (inputs_of, target_of))
    if None in inputs[0] or not first:
        return "samples of this kind cannot be compared"
    if inputs[0] == inputs[1]:
        return Readings(len(first), 0, False, False)
    if targets[0] != targets[1] or len(set(targets[0])) < KINDS:
        return "it comes in another order each time, or is made at random"
    changed = sum(a != b for a, b in zip(*inputs, strict=True))
    return Readings(len(first), changed, _is_made_of_input(first[0]), _is_views([first[0], second[0]]))


def _is_made_of_input(item: Any) -> bool:
    shapes = {tuple(t.shape) for t in batch_tensors(inputs_of(item)) if t.dim()}
    return any(tuple(t.shape) in shapes and t.numel() > 1 for t in batch_tensors(target_of(item)))


def _is_views(readings: list[Any]) -> bool:
    """Two and more inputs of one shape, each other at every reading: pairs for a contrastive loss."""
    parts: list[list[Tensor]] = [batch_tensors(inputs_of(item)) for item in readings]
    first = parts[0]
    if len(first) < 2 or any(t.shape != first[0].shape or not t.is_floating_point() for t in first):
        return False
    return all(len({mark(part[i]) for part in parts}) > 1 for i in range(len(first)))


# -- reading the code -------------------------------------------------------------------------------


def random_transforms(thing: Any, depth: int = DEPTH) -> list[str]:
    """Names of transforms in a dataset that draw random numbers, as far as their names tell."""
    found: list[str] = []
    if depth < 0 or not hasattr(thing, "__dict__"):
        return found
    for value in list(vars(thing).values())[:ATTRIBUTES]:
        for part in value if isinstance(value, list | tuple) and len(value) <= ATTRIBUTES else [value]:
            if isinstance(part, Tensor | np.ndarray | str | int | float | type):
                continue
            name = type(part).__name__ if hasattr(part, "__dict__") else ""
            if callable(part) and RANDOM.search(name):
                found.append(name)
            else:
                found += random_transforms(part, depth - 1)
    return list(dict.fromkeys(found))
