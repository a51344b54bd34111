"""Which samples of the training set come back in validation: read from fingerprints and from loaders' indices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from torchdoctor.facts import TRAIN, VALIDATION, LoaderFact, MembershipFact, PhaseFact, SplitFact
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_BITS, BATCH_SIZE, LOSS_VALIDATION

UNSIGNED = 1 << 64
UNLIKELY_BITS = 24.0
"""Samples of so many bits do not agree by chance: 2^24 pairs would be needed for one."""

LEAST_ROUNDS = 4
OTHER_SAMPLES = 3.0
"""Different samples that a pass at the same place of its round has seen, over those that it takes at once."""


@dataclass
class Members:
    """All kept fingerprints of one phase and group."""

    kept: set[int] = field(default_factory=set)
    rate: float = 1.0
    seen: int = 0
    repeats: int = 0
    pairs: int = 0
    code: str = ""

    def below(self, rate: float) -> set[int]:
        limit = round(rate * UNSIGNED)
        return {m for m in self.kept if m % UNSIGNED < limit}


@dataclass(frozen=True)
class Overlap:
    """How much of one validation group was trained on."""

    group: str
    matches: int
    compared: int
    """validation samples that were compared"""
    share: float
    """estimated share of the group's samples that are training samples"""
    chance: float
    """matches expected because few different samples exist"""
    by_index: bool
    size: float | None
    """samples in the group, where known"""
    trained: float | None
    """samples in the training set, where known"""
    code: str = ""


def members(run: Run) -> dict[tuple[str, str], Members]:
    found: dict[tuple[str, str], Members] = {}
    for fact in run.facts(MembershipFact):
        group = found.setdefault((fact.phase, fact.group), Members())
        group.kept.update(fact.kept)
        group.rate = min(group.rate, fact.rate)
        group.seen, group.repeats, group.pairs = fact.seen, fact.repeats, fact.pairs
        group.code = group.code or fact.code
    return found


def loader_phases(run: Run) -> dict[str, LoaderFact]:
    return {f.name: f for f in run.facts(LoaderFact)}


def training_size(run: Run, train: Members) -> float | None:
    """Samples in the training set: from its loader, else from how often a sample was met again."""
    splits = {f.loader: f for f in run.facts(SplitFact)}
    loaders = [f for f in loader_phases(run).values() if f.phase == TRAIN]
    sizes = [splits[f.name].samples if f.name in splits else f.samples or 0 for f in loaders]
    if len(sizes) == 1 and sizes[0]:
        return float(sizes[0])
    distinct = len(train.kept) / train.rate
    return population(train.seen, min(distinct, train.seen), most=_between_validations(run, distinct))


def _between_validations(run: Run, least: float) -> float:
    """Samples trained on from one validation to the next, which is an epoch or more in most loops."""
    sizes, phase = run.scalar(BATCH_SIZE, TRAIN).values, run.last_fact(PhaseFact)
    if not len(sizes) or phase is None or not phase.updates_between_validations:
        return math.inf
    return max(least, float(np.mean(sizes)) * phase.updates_between_validations)


def population(draws: float, distinct: float, most: float = math.inf) -> float | None:
    """The size at which `draws` random draws meet `distinct` different samples; None where too few came again.

    Draws inside an epoch never repeat, so the estimate is too large rather than too small; `most` bounds it.
    """
    if distinct < 1 or draws - distinct < max(3.0, 0.01 * draws):
        return None if math.isinf(most) else most
    low, high = distinct, 1e4 * draws
    for _ in range(60):
        middle = math.sqrt(low * high)
        if middle * -math.expm1(-draws / middle) < distinct:
            low = middle
        else:
            high = middle
    return min(high, most)


def is_acting(run: Run) -> bool:
    """Passes without gradients that compute no loss, take no batch of a loader and see other samples each time: an
    agent acts or a chain samples, and may be trained on what it collects. The first pass of a validation sees the same
    batch again and again."""
    phase, sizes = run.phase, run.scalar(BATCH_SIZE, VALIDATION).values
    if phase is None or phase.validations < LEAST_ROUNDS or not len(sizes) or len(run.scalar(LOSS_VALIDATION).values):
        return False
    groups = {name: group for (held, name), group in members(run).items() if held == VALIDATION}
    if not groups or not all(name.startswith("#") for name in groups):
        return False
    return max(len(g.kept) / g.rate for g in groups.values()) >= OTHER_SAMPLES * float(np.median(sizes))


def by_fingerprints(run: Run) -> list[Overlap]:
    found = members(run)
    train = found.get((TRAIN, ""))
    if train is None or not train.kept:
        return []
    size = training_size(run, train)
    bits = run.scalar(BATCH_BITS, TRAIN).values
    copies = bool(len(bits)) and float(np.median(bits)) >= UNLIKELY_BITS
    overlaps = []
    for (phase, name), group in found.items():
        rate = min(train.rate, group.rate)
        trained, validated = train.below(rate), group.below(rate)
        if phase != VALIDATION or not validated:
            continue
        matches = len(trained & validated)
        coverage = min(1.0, len(trained) / rate / size) if size else 1.0
        collision = 0.0 if copies else (train.repeats + group.repeats + 0.5) / max(1.0, train.pairs + group.pairs)
        chance = len(validated) * -math.expm1(-collision * len(trained) / rate)
        share = min(1.0, matches / len(validated) / coverage)
        own = None if name.startswith("#") else len(group.kept) / group.rate
        overlaps.append(Overlap(name, matches, len(validated), share, chance, False, own, size, group.code))
    return overlaps


def by_indices(run: Run) -> list[Overlap]:
    """Exact, where training and validation loaders draw from the same stored data."""
    phases = loader_phases(run)
    splits = [f for f in run.facts(SplitFact) if f.samples and f.loader in phases]
    codes = {f.group: f.code for f in run.facts(MembershipFact) if f.phase == VALIDATION}
    training = [f for f in splits if phases[f.loader].phase == TRAIN]
    overlaps = []
    for held in splits:
        if phases[held.loader].phase != VALIDATION:
            continue
        for used in training:
            if used.base != held.base:
                continue
            every = math.lcm(used.every, held.every)
            inside = np.array(held.indices, np.int64)
            inside = np.unique(inside[inside % every == 0])
            matches = int(np.isin(inside, np.array(used.indices, np.int64)).sum())
            share = matches / max(1, len(inside))
            code = codes.get(held.loader, "")
            overlap = Overlap(held.loader, matches, len(inside), share, 0.0, True, held.samples, used.samples, code)
            overlaps.append(overlap)
    return overlaps


def validation_size(run: Run) -> float | None:
    """Samples of one whole validation, of all its groups."""
    sizes, phase = run.scalar(BATCH_SIZE, VALIDATION).values, run.last_fact(PhaseFact)
    if not len(sizes) or phase is None or not phase.validations:
        return None
    return float(np.mean(sizes)) * phase.passes_validation / phase.validations
