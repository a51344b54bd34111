"""Data loaders: which of them is walked through, what a batch holds, and when a walk comes to its end."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from torchdoctor import stats
from torchdoctor.attach import guard
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.session import Session
from torchdoctor.attach.weak import IdentityMap
from torchdoctor.facts import TRAIN, UNKNOWN, VALIDATION, LoaderFact
from torchdoctor.probes.batches import batch_tensors


class LoaderSites:
    """Handlers for DataLoader and its iterators."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.arm: Callable[[], None] = lambda: None
        self.forget_calls: Callable[[], None] = lambda: None
        self._loaders: IdentityMap[weakref.ref[Any]] = IdentityMap()
        self._walks: IdentityMap[int] = IdentityMap()
        self._serial = 0

    @guarded("loader iterator")
    def loader_iterated(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], iterator: Any) -> None:
        self._loaders[iterator] = weakref.ref(args[0])
        self._serial += 1
        self._walks[iterator] = self._serial
        if self.session.loop.loader_phases.get(self.session.registry.loader_name(args[0])) != TRAIN:
            self.arm()

    @guarded("batch wanted")
    def batch_wanted(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> tuple[float, int]:
        return perf_counter(), self._walks.get(args[0]) or id(args[0])

    @guarded("batch fetched")
    def batch_fetched(self, wanted: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], batch: Any) -> None:
        session = self.session
        seconds = perf_counter() - wanted[0] if wanted is not None else 0.0
        reference = self._loaders.get(args[0])
        loader = reference() if reference else None
        name = session.registry.loader_name(loader) if loader is not None else "loader"
        if name not in session.loaders:
            session.loaders[name] = _describe_loader(name, loader)
            session.splits.loader(name, loader)
        self.forget_calls()
        session.batch = [t for t in batch_tensors(batch) if not stats.has_own_dispatch(t)]
        walk = self._walks.get(args[0]) or id(args[0])
        session.loop.fetch(walk, name)
        session.turn()
        samples = next((int(t.shape[0]) for t in session.batch if t.dim()), 0)
        if session.loop.loader_phases.get(name) != VALIDATION and session.is_training:
            loop = session.loop
            session.step_start.fetched(batch, session.batch, loop.backwards_since_step, (name, walk), loop.backwards)
            if session.rolling.on:
                session.rolling.fetched(batch)
            elif session.rolling.undecided:
                session.rolling.not_begun()
        session.clock.fetched(seconds, samples, guard.STATE.own_seconds)

    @guarded("loader exhausted")
    def loader_exhausted(self, wanted: Any, _args: Any, _kwargs: Any, error: BaseException) -> None:
        if isinstance(error, StopIteration) and wanted is not None:
            self.session.batch = []
            if self.session.is_training:
                self.session.step_start.exhausted()
            self.session.loop.exhausted(wanted[1])
            self.session.epoch_ended(walked=True)


def _describe_loader(name: str, loader: Any) -> LoaderFact:
    dataset = getattr(loader, "dataset", None)
    batches = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):  # accelerate wraps the user's
        batches = batches.batch_sampler
    sampler = getattr(batches, "sampler", None) or getattr(loader, "sampler", None)
    return LoaderFact(
        name=name,
        phase=UNKNOWN,
        batches=_length(loader),
        samples=_length(dataset),
        batch_size=getattr(batches, "batch_size", None) or getattr(loader, "batch_size", None),
        workers=getattr(loader, "num_workers", 0) or 0,
        shuffled=_shuffles(sampler),
        dataset=type(dataset).__name__,
        pin_memory=bool(getattr(loader, "pin_memory", False)),
    )


def _shuffles(sampler: Any) -> bool | None:
    if isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)):
        return True
    return False if type(sampler) is SequentialSampler else None


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError, AttributeError):
        return None
