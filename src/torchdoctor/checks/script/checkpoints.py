"""A script's own saving and loading, tried on its own objects: what does a resumed training get back?"""

from __future__ import annotations

import ast
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.repeats.hidden_state import HiddenState
from torchdoctor.checks.repeats.training_state import RANDOM, SCHEDULE, WEIGHTS, State, differing, marks_of_state
from torchdoctor.checks.script.functions import find_uncalled
from torchdoctor.checks.script.loading import Load, Way, find_loads
from torchdoctor.checks.script.redirection import NotWantedError, Redirection, Saved
from torchdoctor.checks.script.save_watch import SaveWatch
from torchdoctor.checks.script.saving import Save, find_saves
from torchdoctor.checks.script.source import Scope, calls_of, resolve, scopes_of
from torchdoctor.instruments.state import Randomness, Trained

OWNERS = {
    "lightning": "Lightning",
    "pytorch_lightning": "Lightning",
    "transformers": "the Hugging Face Trainer",
    "accelerate": "Accelerate",
    "deepspeed": "DeepSpeed",
    "ignite": "Ignite",
    "composer": "Composer",
    "fastai": "fastai",
}
"""Packages whose loops and checkpoints are their own."""
MOST_BYTES = 2_000_000_000
"""Of model and optimizer: a larger checkpoint is not written for a trial."""
DERIVED = ("_last_lr",)
"""Of a schedule: told again at every step from the rest."""


@dataclass(frozen=True)
class ScriptCheckpoints:
    """What was found in the source; `owner` is the package that does it for the script."""

    saves: list[Save]
    loads: list[Load]
    owner: str | None = None
    needless: frozenset[str] = frozenset()
    """kinds of state that this training can do without"""


def find_checkpoints(frames: list[FrameType], watch: SaveWatch | None, bench: Bench) -> ScriptCheckpoints:
    """`frames`: all that stand around the training loop, the innermost first."""
    packages = {str(f.f_globals.get("__name__", "")).partition(".")[0] for f in frames}
    packages |= watch.others if watch is not None else set()
    owner = next((name for package, name in OWNERS.items() if package in packages), None)
    scopes = scopes_of(frames)
    saves = find_saves(scopes, watch)
    if owner is not None and not saves:
        return ScriptCheckpoints([], [], owner)
    loads = find_loads(scopes) or list(find_uncalled(scopes, bench))
    return ScriptCheckpoints(saves, loads, owner, frozenset([SCHEDULE] if _is_told_the_epoch(scopes) else []))


@dataclass(frozen=True)
class Trial:
    """One way to load what one of the saves wrote, into objects as they are at the start of the script."""

    save: Save
    load: Load
    holds: set[str]
    """kinds of state in what was loaded"""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """what is still as it was built, by kind"""
    same: bool = False
    """all that is compared came back to the bit"""
    again: Callable[[], object] = lambda: None
    """does it once more"""
    random: bool = False
    """torch's random state came back, too"""
    error: BaseException | None = None


class Trials:
    """Stands where the checkpoint is saved; what the bench holds now is what the script would save."""

    def __init__(self, bench: Bench, start: Moment, folder: Path) -> None:
        self._bench, self._start, self._folder = bench, start, folder
        self.now = Moment(bench)
        self.saved = marks_of_state(bench)
        self._schedulers = list(bench.schedulers)
        self._needless: set[str] = set()

    def perform(self, found: ScriptCheckpoints) -> list[Trial]:
        self._needless |= found.needless
        written = [(save, files) for number, save in enumerate(found.saves) if (files := self._write(save, number))]
        trials: list[Trial] = []
        for load in found.loads:
            tried = [self._try(save, load, files, n) for save, files in written for n in range(len(files))]
            best = sorted(filter(None, tried), key=lambda t: (t.error is not None, len(t.lost), -len(t.holds)))
            trials += best[:1]
        self.now.put_back()
        return trials

    def _write(self, save: Save, number: int) -> list[Saved]:
        folder = self._folder / str(number)
        folder.mkdir()
        redirection = Redirection(folder)
        try:
            with redirection.active():
                save.perform(redirection)
        except (Exception, NotWantedError, SystemExit):
            return []
        finally:
            self._tidy()
        return redirection.files

    def _try(self, save: Save, load: Load, files: list[Saved], number: int) -> Trial | None:
        error: BaseException | None = None
        holds: set[str] = set()
        for way in load.ways:
            redirection = Redirection(self._folder, list(files), number)
            raised = self._raised(way, redirection)
            error = error or raised
            holds = set().union(*(saved.holds for saved in redirection.read)) or holds
            loaded = marks_of_state(self._bench)
            if raised is not None or not redirection.read or loaded[WEIGHTS] == self._start.marks[WEIGHTS]:
                continue  # the last: another model than the one that is trained
            other = _without_derived(differing(self.saved, loaded), redirection.made | self._needless)
            return Trial(
                save,
                load,
                holds,
                lost=_left_as_built(other, self._start.marks, loaded),
                same=not other and not redirection.made,
                again=functools.partial(self.load, way, replace(redirection, read=[])),
                random=self.saved[RANDOM]["torch"] == loaded[RANDOM]["torch"],
            )
        return Trial(save, load, holds, error=error) if error is not None else None

    def _raised(self, way: Way, redirection: Redirection) -> BaseException | None:
        try:
            self.load(way, redirection)
        except (Exception, NotWantedError, SystemExit) as raised:
            return raised
        return None

    def load(self, way: Way, redirection: Redirection) -> None:
        """Into objects as a new process would have made them."""
        self._start.put_back()
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        try:
            with redirection.active():
                way(redirection)
        finally:
            self._tidy()

    def _tidy(self) -> None:
        self._bench.schedulers[:] = self._schedulers  # those that were made meanwhile are nobody's


class Moment:
    """All that the bench holds, as it is now."""

    def __init__(self, bench: Bench) -> None:
        self._trained = Trained(bench.model, *bench.optimizers, *bench.schedulers, *bench.scalers)
        self._hidden, self._random = HiddenState(bench), Randomness()
        self.marks: State = marks_of_state(bench)

    def put_back(self) -> None:
        self._trained.put_back()
        self._hidden.put_back()
        self._random.put_back()

    def put_back_random(self) -> None:
        self._random.put_back()


def is_too_large(bench: Bench) -> bool:
    tensors = [*bench.model.parameters(), *bench.model.buffers()]
    held = [v for o in bench.optimizers for s in o.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in (*tensors, *held)) > MOST_BYTES


def _without_derived(other: dict[str, list[str]], needless: set[str]) -> dict[str, list[str]]:
    """The random state is told of apart."""
    kept = {k: [n for n in names if k != SCHEDULE or n.rpartition(".")[2] not in DERIVED] for k, names in other.items()}
    return {kind: names for kind, names in kept.items() if names and kind != RANDOM and kind not in needless}


def _left_as_built(other: dict[str, list[str]], start: State, loaded: State) -> dict[str, list[str]]:
    """Of what differs, what the load did not touch: a schedule may also be brought back by a count of epochs."""
    left = {kind: [n for n in names if loaded[kind].get(n) == start[kind].get(n)] for kind, names in other.items()}
    if len(left.get(SCHEDULE, ())) < len(other.get(SCHEDULE, ())):
        del left[SCHEDULE]
    return {kind: names for kind, names in left.items() if names}


def _is_told_the_epoch(scopes: list[Scope]) -> bool:
    """`scheduler.step(epoch)`: such a schedule keeps nothing by itself."""
    calls = [(c, s.names) for s in scopes for node in s.body for c in calls_of(node) if c.args]
    held = [resolve(c.func.value, n) for c, n in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "step"]
    return any(isinstance(h, LRScheduler) and not isinstance(h, ReduceLROnPlateau) for h in held)
