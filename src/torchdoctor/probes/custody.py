"""Who changes the parameters besides the optimizer: what an update leaves behind against what the next one finds.

Fingerprints of the beginning of each tensor are taken after an update (or where an epoch ends, before a state is
loaded) and again before the next update. It is done on structural steps and at a number of epoch ends that grows
slowly, so a long run pays for few of them. What overwrites the weights every so many updates would fall between these
looks: torch counts the writes into a tensor, and where there were more than the updates make, the next updates are
compared one by one for a while.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import stats
from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.attach.weak import IdentitySet
from torchdoctor.facts import OverwriteFact
from torchdoctor.probes.context import Context

TENSORS_KEPT = 128
BYTES_KEPT = 2048
"""Bytes at the beginning of a tensor that are compared: whoever overwrites a tensor overwrites its beginning."""
FACTS_KEPT = 64
STATES_KEPT = 64
NAMES_KEPT = 500
FIRST_BOUNDARIES = 8
GROWTH = 1.3
"""After the first epoch ends, those whose number grows by this ratio are looked at."""

SAMPLED_TENSORS, SAMPLED_ELEMENTS = 16, 64
"""Of the values, to tell how much of the way since the last overwrite is left."""
ALERT, ALERT_IN_ALL = 120, 400
"""Updates that are compared one by one after a write that nobody saw, and in the whole run."""

Marks = dict[str, int]


@dataclass
class Look:
    """What was known when the values found by an update were asked for."""

    step: int
    optimizer: str
    fresh: bool
    """this optimizer makes its first update: whatever came before, it begins here"""
    within: bool
    """one update after the other, not across the end of an epoch"""
    how: str | None
    place: Place | None
    by_update: bool = False
    sizes: dict[str, int] = field(default_factory=dict)


class CustodyProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.waiting = False
        """the next update is to be compared, although its step is not structural"""
        self._armed = False
        self._during_taken = False
        self._left: Marks = {}
        self._during: Marks | None = None
        self._history: dict[str, dict[int, int]] = {}
        self._looks: deque[Look] = deque()
        self._steppers: IdentitySet = IdentitySet()
        self._restarted = False
        self._call: tuple[str, Place | None] | None = None
        self._boundaries = 0
        self._boundary_at = 0.0
        self._boundary_updates = -1
        self._within = False
        self._sample: NDArray[Any] | None = None
        self._left_sample: NDArray[Any] | None = None
        self._by_update = False
        """what was left was taken right after an update: at an epoch's end other weights may already be swapped in"""
        self._anchor: NDArray[Any] | None = None
        """values after the last overwrite, or the first ones seen"""
        self.alert = 0
        """so many updates are still compared one by one"""
        self._alerts_left = ALERT_IN_ALL
        self._writes: tuple[int, int, int] | None = None
        """step, writes and address of one parameter when its update was done"""
        self._writes_before = 0
        self._writes_each = 0
        self._looked = {True: 0, False: 0}
        self._hits = {True: 0, False: 0}

    # -- events ---------------------------------------------------------------------

    @contained("custody: before_step")
    def before_step(self, key: str, optimizer: Optimizer, structural: bool) -> None:
        fresh = optimizer not in self._steppers or self._restarted
        self._restarted = False
        self._steppers.add(optimizer)
        self.waiting = False
        self._count_writes()
        if self._armed or structural:
            how, place = self._call or (None, None)
            look = Look(self._context.step, key, fresh or not self._armed, self._within, how, place, self._by_update)
            self._take(self._found, look)
        self._armed = self._during_taken = False
        self._call = None

    @contained("custody: after_step")
    def after_step(self) -> None:
        """On structural steps, and while on the alert: what the update leaves behind."""
        self.alert = max(0, self.alert - 1)
        self._arm(within=True)
        self._by_update = True
        parameter = self._watched() if self._writes_before >= 0 else None
        if parameter is not None:
            self._writes_each = parameter._version - self._writes_before
            self._writes = (self._context.step, parameter._version, parameter.data_ptr())

    @contained("custody: boundary")
    def boundary(self, updates: int) -> None:
        """An epoch ends, or the model's mode changes."""
        self._within = False
        if updates == self._boundary_updates or self._armed or not updates:
            return
        self._boundary_updates = updates
        self._boundaries += 1
        if self._boundaries <= FIRST_BOUNDARIES or self._boundaries >= self._boundary_at:
            self._boundary_at = self._boundaries * GROWTH
            self._arm()

    @contained("custody: changing")
    def changing(self, how: str, tensors: list[Tensor], place: Place | None) -> None:
        """A state is about to be loaded into these tensors, or they are about to be initialised."""
        if not self._steppers or not any(self._context.names.is_held(t) for t in tensors):
            return
        self._call = (how, place)
        self._within = False
        if not self._armed and self._hits[False] < FACTS_KEPT:
            self._arm()

    @contained("custody: validated")
    def validated(self) -> None:
        """A validation has come to its end."""
        if self._armed and not self._during_taken:
            self._during_taken = True
            self._take(self._evaluated, None)

    def restarted(self) -> None:
        """An optimizer's state was loaded: what it goes on from is meant as a whole."""
        self._restarted = True

    def renamed(self) -> None:
        self._history.clear()
        self._left = {}

    # -- writes that nobody saw ---------------------------------------------------------

    def _watched(self) -> Tensor | None:
        names = self._context.names
        return next((p for _, p in names.parameters() if p.requires_grad and names.is_held(p)), None)

    def _count_writes(self) -> None:
        """More writes than updates since the last look, but not one at every update: something comes now and then."""
        parameter = self._watched()
        if parameter is None:
            self._writes_before = -1
            return
        self._writes_before = parameter._version
        if self._writes is None:
            return
        step, writes, address = self._writes
        between = self._context.step - step - 1
        unseen = parameter._version - writes - between * self._writes_each
        if between < 2 or not (0 < unseen < between or (not unseen and parameter.data_ptr() != address)):
            return
        self._anchor = None
        spent = min(ALERT, 2 * between + 4, self._alerts_left)
        self._alerts_left -= spent
        self.alert = max(self.alert, spent)

    # -- marks ------------------------------------------------------------------------

    def _arm(self, within: bool = False) -> None:
        self._armed = self.waiting = True
        self._by_update = False
        self._within = within
        self._during_taken = False
        self._take(self._leave, None)

    def _take(self, use: Any, look: Look | None) -> None:
        held = self._context.names.held()
        named = [
            (n, p)
            for n, p in self._context.names.parameters()
            if id(p) in held and p.requires_grad and p.numel() and stats.unsupported(p) is None
        ][:TENSORS_KEPT]
        if not named:
            return
        named = [(n, p) for n, p in named if p.device == named[0][1].device]
        names = [n for n, _ in named]
        if look is not None:
            look.sizes = {n: p.numel() for n, p in named}
        marks = mark_beginnings([p for _, p in named])
        if len(marks) != len(names):
            return
        tensors = [p.detach().reshape(-1)[:SAMPLED_ELEMENTS].float() for _, p in named[:SAMPLED_TENSORS]]
        self._context.read(torch.cat(tensors), self._keep_sample)
        self._context.read(marks, lambda values: use(_named(names, values), look))

    def _keep_sample(self, values: NDArray[Any]) -> None:
        self._sample = np.asarray(values, np.float64)

    def _leave(self, marks: Marks, _look: Look | None) -> None:
        self._left, self._left_sample = marks, self._sample
        self._during = None
        self._remember(marks)

    def _evaluated(self, marks: Marks, _look: Look | None) -> None:
        self._during = marks

    def _remember(self, marks: Marks) -> None:
        for name, mark in marks.items():
            states = self._history.setdefault(name, {})
            if len(states) < STATES_KEPT:
                states.setdefault(mark, self._context.step)

    def _found(self, marks: Marks, look: Look) -> None:
        left, during = self._left, self._during
        self._left, self._during = {}, None
        changed = [n for n, mark in marks.items() if left.get(n, mark) != mark]
        if look.fresh:
            changed = []
        elif left:
            self._looked[look.within] += 1
        if changed:
            self._hits[look.within] += 1
            self._write(changed, marks, during, look)
        if changed or look.fresh or self._anchor is None:
            self._anchor = self._sample
        self._remember(marks)

    def _write(self, changed: list[str], marks: Marks, during: Marks | None, look: Look) -> None:
        if self._hits[look.within] > FACTS_KEPT:
            return
        earlier = {n: self._history[n][marks[n]] for n in changed if marks[n] in self._history.get(n, {})}
        owners = {mark: name for name, mark in marks.items() if name not in changed}
        total = sum(look.sizes.values())
        fact = OverwriteFact(
            optimizer=look.optimizer,
            parameters=changed[:NAMES_KEPT],
            share=sum(look.sizes[n] for n in changed) / max(total, 1),
            restored=list(earlier)[:NAMES_KEPT],
            restored_step=min(earlier.values(), default=None),
            copies={n: owners[marks[n]] for n in changed if marks[n] in owners},
            evaluated=all(during.get(n) == marks[n] for n in changed) if during is not None else None,
            kept=kept(self._anchor, self._left_sample, self._sample) if look.by_update else None,
            how=look.how,
            within=look.within,
            looks=self._looked[look.within],
            hits=self._hits[look.within],
            file=look.place.file if look.place else None,
            line=look.place.line if look.place else None,
        )
        self._context.record.fact(fact, look.step, f"{look.within}/{fact.hits}")


def kept(anchor: NDArray[Any] | None, left: NDArray[Any] | None, found: NDArray[Any] | None) -> float | None:
    """The share of the way from the anchor to what was left that is found again: 1 for a small correction, a half for
    lookahead, nothing for a restart."""
    if anchor is None or left is None or found is None or not len(anchor) == len(left) == len(found):
        return None
    way = left - anchor
    length = float(way @ way)
    return float((found - anchor) @ way) / length if length > 0 else None


def mark_beginnings(tensors: list[Tensor]) -> Tensor:
    """A fingerprint of the first bytes of each, by one pass over all of them."""
    rows = []
    for tensor in tensors:
        octets = tensor.detach().reshape(-1)[: BYTES_KEPT // tensor.element_size()].contiguous().view(torch.uint8)
        rows.append(F.pad(octets, (0, BYTES_KEPT - len(octets))) if len(octets) < BYTES_KEPT else octets)
    return stats.fingerprints(torch.stack(rows))


def _named(names: list[str], values: NDArray[Any]) -> Marks:
    return dict(zip(names, np.asarray(values).tolist(), strict=True))
