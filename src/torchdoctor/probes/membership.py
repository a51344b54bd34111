"""Which samples were trained on and which validated, by fingerprints, in bounded memory and on looks only.

Of all fingerprints those below a threshold are kept, so that both phases keep the same samples; where they become too
many the threshold is halved. What is kept is written in portions, as `MembershipFact`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import signals, stats
from torchdoctor.attach.guard import contained
from torchdoctor.attach.loop import Loop, Pass
from torchdoctor.facts import TRAIN, UNKNOWN, VALIDATION, FeaturesFact, MembershipFact, TokensFact, ValidationBatchFact
from torchdoctor.probes.batches import count_values
from torchdoctor.probes.context import Context

SAMPLES = 256
"""Samples of a batch that are fingerprinted."""
BYTES = 1 << 23
"""A larger batch is fingerprinted in part: hashing runs at about 1 GB/s on one core."""
KEPT = 2048
"""Fingerprints kept by phase and group."""
PORTION = 512
VALIDATIONS_READ = 3
"""The first validations are fingerprinted whole (as far as they are watched), later ones by their first pass."""
POSITIONS = 2
COMPARED = 12
"""Validations of which the first batches are kept to be compared with one another."""
SAMPLES_COMPARED = 64
SPREAD_SAMPLES, SPREAD_ELEMENTS = 64, 512
BIT_ELEMENTS = 8
SAME_OBJECT = 2.0
OTHERS = 8
"""Further tensors of a call that are fingerprinted."""
DISTINCT = 0.9
"""Share of a batch's samples that differ from one another, below which equal ones come again by chance: categories,
ids, times. Such samples are compared in their order."""
GROUPS = 40
NO_SAMPLE = 0
"""In place of a fingerprint: the sample holds no finite number."""
BUCKETS, TOKENS = 64, 1 << 16

_TOP = np.uint64(1 << 63)


@dataclass
class Members:
    """The samples of one group that fell below the threshold."""

    level: int = 0
    kept: set[int] = field(default_factory=set)
    fresh: list[int] = field(default_factory=list)
    seen: int = 0
    batches: int = 0
    repeats: int = 0
    pairs: int = 0
    walk: set[int] = field(default_factory=set)
    """fingerprints of the validation or the batch now under way, which holds every sample once"""

    def add(self, marks: NDArray[np.int64]) -> None:
        self.seen += len(marks)
        self.batches += 1
        for mark in marks.tolist():
            if mark in self.walk:
                self.repeats += 1
            else:
                self.walk.add(mark)
        below = marks[(marks.view(np.uint64) >> np.uint64(64 - self.level)) == 0] if self.level else marks
        for mark in below.tolist():
            if mark not in self.kept:
                self.kept.add(mark)
                self.fresh.append(mark)
        while len(self.kept) > KEPT:
            self.level += 1
            shift = 64 - self.level
            self.kept = {m for m in self.kept if (m & 0xFFFFFFFFFFFFFFFF) >> shift == 0}
            self.fresh = [m for m in self.fresh if m in self.kept]

    def turn(self) -> None:
        """All samples so far were distinct by right; what follows may repeat them."""
        count = len(self.walk)
        self.pairs += count * (count - 1) // 2
        self.walk = set()


@dataclass
class Moments:
    """Sums of each feature and of its square, weighted by samples."""

    shape: list[int]
    sums: NDArray[np.float64]
    samples: int = 0
    fresh: bool = False

    def add(self, moments_2F: NDArray[Any], samples: int) -> None:
        self.sums = self.sums + moments_2F.astype(np.float64) * samples
        self.samples += samples
        self.fresh = True

    def fact(self, group: str) -> FeaturesFact:
        self.fresh = False
        mean, square = self.sums / self.samples
        std = np.sqrt(np.maximum(square - mean * mean, 0.0))
        rounded = [[float(v) for v in np.nan_to_num(row, posinf=0.0, neginf=0.0)] for row in (mean, std)]
        return FeaturesFact(VALIDATION, group, self.samples, self.shape, *rounded)


class MembershipProbe:
    """Collects fingerprints of looked-at passes once their phase is known."""

    def __init__(self, context: Context, loop: Loop) -> None:
        self._context = context
        self._loop = loop
        self._members: dict[tuple[str, str], Members] = {}
        self._codes: dict[tuple[str, str], str] = {}
        self._moments: dict[str, Moments] = {}
        self._tokens: dict[tuple[str, str], tuple[int, NDArray[np.int64], int]] = {}
        self._last: list[NDArray[np.int64]] = []
        self._drawn: int | None = None
        self.last_input: Callable[[], Tensor | None] = lambda: None
        """what the model got at the last look at training, if it still exists"""
        self._validation = -1
        self._position = 0

    # -- at the pass ------------------------------------------------------------------

    @contained("membership: take")
    def take(self, seen: Pass, tensor: Tensor, batch: Sequence[Tensor], others: Sequence[Tensor] = ()) -> None:
        """Fingerprints of a looked-at pass's inputs, and a mark for what came beside them from the loader.

        `others` are the call's further tensors: a batch is only the same again where all of them are.
        """
        looks = seen.data.get("inputs")
        if not looks:
            return
        first = not self._loop.in_validation
        if not seen.grad and not first and self._loop.validations > VALIDATIONS_READ:
            return
        marks = looks[0].fingerprints
        if marks is None and tensor.dim():
            marks = stats.fingerprints(part_of(tensor.detach()))
        if marks is None or not marks.numel():
            return
        seen.data["marks"] = marks = _without_gaps(marks, tensor.detach())
        if tensor.dtype in (torch.int64, torch.int32) and tensor.dim() >= 2:
            flat = tensor.detach().reshape(-1)[:TOKENS].long() % BUCKETS
            seen.data["tokens"] = (tensor.shape[0], count_values(flat, BUCKETS))
        if seen.grad:
            seen.data["spread"] = measure_spread(tensor.detach())
            seen.data["bits"] = measure_bits(tensor.detach())
            seen.data["part"] = SAME_OBJECT if self.last_input() is tensor else cut_from(tensor)
            self.last_input = weakref.ref(tensor)
            alike = [t for t in others[:OTHERS] if t.dim() and t.device == tensor.device]
            seen.data["other_marks"] = [stats.fingerprints(part_of(t.detach())) for t in alike]
            return
        if self._loop.validations <= VALIDATIONS_READ:
            seen.data["moments"] = (list(tensor.shape), measure_moments(tensor.detach()))
        beside = [t for t in batch if t.dim() and t.shape[0] == tensor.shape[0] and t.shape != tensor.shape]
        if beside and any(t.numel() == tensor.numel() for t in batch):
            self.target(seen, beside[-1])

    @contained("membership: target")
    def target(self, seen: Pass, target: Tensor | None) -> None:
        """A mark for the targets of a validation pass: the same again means the same samples."""
        if target is None or not target.dim() or "marks" not in seen.data or "target_marks" in seen.data:
            return
        if target.shape[0] >= len(seen.data["marks"]):
            seen.data["target_shape"] = list(target.shape)
            seen.data["target_marks"] = stats.fingerprints(target.detach()[:SAMPLES_COMPARED])

    # -- once the phase is known ----------------------------------------------------------

    @contained("membership: write")
    def write(self, seen: Pass) -> None:
        marks: Tensor | None = seen.data.get("marks")
        if marks is None or seen.phase == UNKNOWN:
            return
        if seen.phase == TRAIN:
            every = [marks, *seen.data.get("other_marks", ())]
            ends = np.cumsum([len(m) for m in every])[:-1]
            self._context.read(
                torch.cat(every), lambda values: self._train(np.split(values, ends), seen.step, seen.drawn)
            )
            self._write_tokens(seen, "")
            self._context.record.scalar(signals.BATCH_PART.name, seen.step, seen.data["part"], TRAIN)
            for name, found in ((signals.BATCH_SPREAD.name, "spread"), (signals.BATCH_BITS.name, "bits")):
                value: Tensor | None = seen.data.get(found)
                if value is not None:
                    self._context.read(value, lambda v, name=name: self._measured(name, float(v), seen.step))
            return
        if self._loop.validations != self._validation:
            self._validation, self._position = self._loop.validations, 0
            for (phase, _), members in self._members.items():
                if phase == VALIDATION:
                    members.turn()
        position, self._position = self._position, self._position + 1
        group = seen.loader or f"#{position}"
        place = seen.data.get("place")
        self._codes.setdefault((VALIDATION, group), place.code[:200] if place else "")
        self._context.read(marks, lambda values: self._validated(values, group))
        self._write_tokens(seen, seen.loader or "")
        if "moments" in seen.data:
            shape, moments = seen.data["moments"]
            whole = group if seen.loader else ""
            self._context.read(moments, lambda values: self._moments_arrived(values, whole, shape))
        if position < POSITIONS and self._validation <= COMPARED:
            self._compare(seen, marks, group, position)

    def _train(self, tensors: list[NDArray[np.int64]], step: int, drawn: int | None) -> None:
        tensors = [tensors[0][tensors[0] != NO_SAMPLE], *tensors[1:]]
        values = tensors[0]
        marks = set(values.tolist())
        if not marks:
            return
        record = self._context.record
        record.scalar(signals.BATCH_DISTINCT.name, step, len(marks) / len(values), TRAIN)
        # what one batch of a loader is used for by turns (two optimizers of a GAN, say) says nothing of the next batch
        if self._last and (drawn is None or drawn != self._drawn):
            record.scalar(signals.BATCH_REPEATED.name, step, share_repeated(tensors, self._last), TRAIN)
        self._last, self._drawn = tensors, drawn
        members = self._members.setdefault((TRAIN, ""), Members())
        members.add(values)
        members.turn()
        if len(members.fresh) >= PORTION:
            self._flush(TRAIN, "", step)

    def _measured(self, name: str, value: float, step: int) -> None:
        if math.isfinite(value):
            self._context.record.scalar(name, step, value, TRAIN)

    def _validated(self, values: NDArray[np.int64], group: str) -> None:
        values = values[values != NO_SAMPLE]
        if (VALIDATION, group) in self._members or len(self._members) < GROUPS:
            self._members.setdefault((VALIDATION, group), Members()).add(values)

    def _write_tokens(self, seen: Pass, group: str) -> None:
        if "tokens" not in seen.data:
            return
        samples, counts = seen.data["tokens"]
        phase, step = seen.phase, seen.step
        self._context.read(counts, lambda values: self._count_tokens(phase, group, samples, values, step))

    def _count_tokens(self, phase: str, group: str, samples: int, values: NDArray[Any], step: int) -> None:
        if (phase, group) not in self._tokens and len(self._tokens) >= GROUPS:
            return
        seen, counts, written = self._tokens.get((phase, group), (0, np.zeros(BUCKETS, np.int64), 0))
        seen, counts = seen + samples, counts + values.astype(np.int64)
        if seen >= 1.2 * written:
            written = seen
            fact = TokensFact(phase, group, seen, counts.tolist())
            self._context.record.fact(fact, step, f"{phase}/{group}")
        self._tokens[phase, group] = (seen, counts, written)

    def _moments_arrived(self, moments_2F: NDArray[Any], group: str, shape: list[int]) -> None:
        known = self._moments.get(group)
        if known is None and len(self._moments) >= GROUPS:
            return
        if known is None or known.sums.shape[1] != moments_2F.shape[1]:
            known = self._moments[group] = Moments(shape, np.zeros(moments_2F.shape))
        known.add(moments_2F, shape[0])

    def _compare(self, seen: Pass, marks: Tensor, group: str, position: int) -> None:
        targets: Tensor | None = seen.data.get("target_marks")
        found: list[list[int]] = []
        number, step = self._validation, seen.step

        def arrived(values: NDArray[Any]) -> None:
            found.append(values.tolist())
            if len(found) == 1 + (targets is not None):
                fact = ValidationBatchFact(
                    group=group,
                    number=number,
                    position=position,
                    inputs=found[0],
                    targets=found[1] if len(found) > 1 else [],
                    target_shape=seen.data.get("target_shape"),
                )
                self._context.record.fact(fact, step, f"{group}/{position}")

        self._context.read(marks[:SAMPLES_COMPARED], arrived)
        if targets is not None:
            self._context.read(targets, arrived)

    # -- writing ----------------------------------------------------------------------------

    @contained("membership: flush")
    def flush(self, step: int) -> None:
        """Write what is new, of all groups."""
        for phase, group in list(self._members):
            self._flush(phase, group, step)
        for group, moments in self._moments.items():
            if moments.fresh:
                self._context.record.fact(moments.fact(group), step, group)

    def _flush(self, phase: str, group: str, step: int) -> None:
        members = self._members[phase, group]
        if not members.fresh:
            return
        count = len(members.walk)
        fact = MembershipFact(
            phase=phase,
            group=group,
            kept=members.fresh,
            rate=2.0**-members.level,
            seen=members.seen,
            batches=members.batches,
            repeats=members.repeats,
            pairs=members.pairs + count * (count - 1) // 2,
            code=self._codes.get((phase, group), ""),
        )
        members.fresh = []
        self._context.record.fact(fact, step, f"{phase}/{group}")


def share_repeated(now: Sequence[NDArray[np.int64]], before: Sequence[NDArray[np.int64]]) -> float:
    """Share of a batch's samples that were in the batch before, by the tensor in which the fewest came again."""
    if len(now) != len(before):
        return 0.0
    return min((_share_again(a, b) for a, b in zip(now, before, strict=True) if len(a)), default=0.0)


def _share_again(now: NDArray[np.int64], before: NDArray[np.int64]) -> float:
    distinct = np.unique(now)
    if len(distinct) >= DISTINCT * len(now):
        return float(np.isin(distinct, before).mean())
    return float((now == before).mean()) if len(now) == len(before) else 0.0


def _without_gaps(marks: Tensor, tensor: Tensor) -> Tensor:
    """Mark the samples that hold no finite number as none: all of them are equal, which says nothing of the data."""
    if not tensor.is_floating_point() or not tensor[:1].numel():
        return marks
    sound = tensor[: len(marks)].isfinite().reshape(len(marks), -1).any(1)
    return torch.where(sound, marks, NO_SAMPLE)


def part_of(tensor: Tensor) -> Tensor:
    """As many first samples as may be fingerprinted."""
    size = max(1, tensor[:1].numel() * tensor.element_size())
    return tensor[: min(SAMPLES, max(1, BYTES // size))]


def cut_from(tensor: Tensor) -> float:
    """The share of the stored samples that a batch is a view of."""
    size = tensor[:1].numel() * tensor.element_size()
    stored = tensor.untyped_storage().nbytes() // size if size else 0
    return tensor.shape[0] / stored if stored else 1.0


def measure_spread(tensor: Tensor) -> Tensor | None:
    """Standard deviation over samples, of each element, against the root mean square of all: 0 for equal samples."""
    if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.shape[0] < 2 or not tensor.numel():
        return None
    rows = tensor[:SPREAD_SAMPLES].reshape(min(SPREAD_SAMPLES, tensor.shape[0]), -1)
    rows = rows[:, :: max(1, rows.shape[1] // SPREAD_ELEMENTS)].float()
    size = rows.square().mean().sqrt()
    return torch.where(size == 0, torch.zeros_like(size), rows.var(0).mean().sqrt() / size)


def measure_bits(tensor: Tensor) -> Tensor | None:
    """Sum over a few elements of log2 of the different values they have in the batch."""
    if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.shape[0] < 2 or not tensor.numel():
        return None
    rows = tensor[:SPREAD_SAMPLES].reshape(min(SPREAD_SAMPLES, tensor.shape[0]), -1)
    every = max(1, rows.shape[1] // BIT_ELEMENTS)
    ordered = rows[:, every // 2 :: every][:, :BIT_ELEMENTS].float().sort(0).values
    return ((ordered[1:] != ordered[:-1]).sum(0) + 1).float().log2().sum()


def measure_moments(tensor: Tensor) -> Tensor:
    """(2, F) float64: mean of each feature and of its square; features as in `InputsFact`."""
    if tensor.is_floating_point() and tensor.dim() >= 2:
        features = stats.features(tensor, 1 if tensor.dim() in (2, 4, 5) else tensor.dim() - 1)
        mean, std = features[0].double(), features[1].double()
    else:
        summary = stats.batch(tensor)
        mean, std = summary[0:1].double(), summary[1:2].double()
    return torch.stack([mean, mean * mean + std * std])
