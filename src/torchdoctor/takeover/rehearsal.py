"""A script's own first steps, recorded; then its loop is taken over, and its parts are laid out.

Loaders give a few batches of every walk, so that the script comes to its validation, its schedule and its second epoch
within seconds. What was learned on the way is put back before anything is done with them.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from time import perf_counter
from types import ModuleType
from typing import Any

from torchdoctor.attach.attachment import Attachment
from torchdoctor.facts import TRAIN, VALIDATION, OrderFact
from torchdoctor.takeover.turns import Turns

TRAIN_BATCHES, OTHER_BATCHES = 12, 6
"""Of a walk through a loader."""
KEPT = 16
"""Batches of each loader that are kept."""
WALKS = 3
"""Through the training data, after which a validation is no longer waited for."""
UPDATES, EARLY_UPDATES = 60, 4
SECONDS, QUICK_SECONDS = 15.0, 4.0


class Rehearsal:
    """`ready(rehearsal)` is called in a thread of its own, once: the script is driven from then on. `cuts`: walks are
    cut short; `early`: the loop is taken over as soon as it is known, for scripts that end within a rehearsal."""

    def __init__(
        self, attachment: Attachment, *, quick: bool, cuts: bool, early: bool, ready: Callable[[Rehearsal], None]
    ) -> None:
        self._attachment = attachment
        self._seconds = QUICK_SECONDS if quick else SECONDS
        self._cuts = cuts
        self._early = early
        self._work = threading.Thread(target=ready, args=(self,), name="torchdoctor-takeover", daemon=True)
        self._begun: float | None = None
        self._loader_of: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._given: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._walks: dict[int, int] = {}
        self._trained_on: dict[int, int] = {}
        """batches that a loader gave since the first update, validation left out"""
        self.batches: dict[int, list[Any]] = {}
        """the first that each loader gave, by its identity"""
        self.loaders: dict[int, Any] = {}
        self.schedulers: list[Any] = []
        self.is_compiled = False
        """the script compiles; that is left out, as hooks are not called in what is compiled"""
        self._fetched = 0
        """batches of training"""
        self._turns = Turns()
        self._until_update = (0, 0)
        """batches and backwards until the last update"""
        self.driver: Any = None
        self._taken: Any = None
        """the loader of the loop that is driven"""
        self._recorder: Any = None
        """listens to a loop that cannot be given batches"""
        self.tapes: list[Any] = []
        """its steps, as batches"""
        self.why_not: str | None = None
        """no loss can be asked for"""
        self.sets_rates = False
        """the loop sets learning rates as it goes, without a scheduler"""
        self._kept: list[Any] = []
        self._thread = threading.get_ident()

    @property
    def session(self) -> Any:
        return self._attachment.session

    # -- before the session attaches -------------------------------------------------------

    def prepare(self, torch: ModuleType) -> None:
        """Under the session's own sites, so that a walk that is cut short looks like one that has ended."""
        self._is_grad_enabled = torch.is_grad_enabled
        from torch.optim.lr_scheduler import LRScheduler
        from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

        iterate, following, make = DataLoader.__iter__, _BaseDataLoaderIter.__next__, LRScheduler.__init__

        def iterated(loader: Any) -> Any:
            iterator = iterate(loader)
            self._loader_of[iterator] = loader
            self._given[iterator] = 0
            return iterator

        def given(iterator: Any) -> Any:
            return self._next(iterator, following)

        def made(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            make(scheduler, *args, **kwargs)
            self.schedulers.append(scheduler)

        DataLoader.__iter__ = iterated  # type: ignore[method-assign]
        _BaseDataLoaderIter.__next__ = given  # type: ignore[method-assign]
        LRScheduler.__init__ = made  # type: ignore[method-assign]
        torch.compile = self._uncompiled(torch, torch.compile)  # type: ignore[attr-defined]

    def _uncompiled(self, torch: ModuleType, compiled: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compiled)
        def compile(*args: Any, **kwargs: Any) -> Any:
            if not self.is_compiled:
                self.is_compiled = True
                torch.compiler.set_stance("force_eager")
            return compiled(*args, **kwargs)

        return compile

    def arrange(self, _torch: ModuleType) -> None:
        """The session is in place."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(lambda *_: self._keep())
        register_optimizer_step_post_hook(lambda optimizer, *_: self._updated(optimizer))

    # -- while it rehearses ----------------------------------------------------------------

    def _next(self, iterator: Any, following: Callable[[Any], Any]) -> Any:
        if threading.get_ident() != self._thread:
            return following(iterator)
        loader = self._loader_of.get(iterator)
        phase = self._phase(loader)
        trains = phase != VALIDATION and self._is_grad_enabled()  # the loader of training may be walked to evaluate
        if trains and phase == TRAIN and self.driver is None and self.why_not is None and self._is_over():
            self._taken = loader
            self._take_over()
        if self.driver is not None and self._is_driven(loader):
            return self.driver.next_batch()
        given = self._given.get(iterator, 0)
        if self._cuts and given >= (TRAIN_BATCHES if trains else OTHER_BATCHES):
            self._walks[id(loader)] = self._walks.get(id(loader), 0) + 1
            raise StopIteration
        batch = following(iterator)
        self._given[iterator] = given + 1
        self._fetched += trains
        self._trained_on[id(loader)] = self._trained_on.get(id(loader), 0) + (trains and self._begun is not None)
        held = self.batches.setdefault(id(loader), [])
        self.loaders[id(loader)] = loader
        if len(held) < KEPT:
            held.append(batch)
        return batch

    def _is_driven(self, loader: Any) -> bool:
        """The loader that the training asks, or one that was made in its place for another epoch."""
        same = getattr(loader, "dataset", None) is self._taken.dataset
        return self._is_grad_enabled() and (loader is self._taken or (same and not self.driver.is_evaluating))

    def _phase(self, loader: Any) -> str | None:
        if loader is None or self.session is None:
            return None
        phase = self.session.loop.loader_phases.get(self.session.registry.loader_name(loader))
        return None if phase is None else str(phase)

    def _is_over(self) -> bool:
        if self._begun is None:
            return False
        train = [loader for loader in self.loaders.values() if self._phase(loader) == TRAIN]
        walks = sum(self._walks.get(id(loader), 0) for loader in train) / max(1, len(_datasets(train)))
        if self._early:
            return self.session.step_start.is_learned or walks > 0 or self.session.loop.updates >= EARLY_UPDATES
        validated = any(self._phase(loader) == VALIDATION for loader in self.loaders.values())
        spent = perf_counter() - self._begun > self._seconds or self.session.loop.updates >= UPDATES
        return spent or walks >= WALKS or (walks >= 2 and validated)

    def _keep(self) -> None:
        """Before the first update: what is to be put back."""
        if self._begun is not None:
            return
        from torchdoctor.instruments.state import Trained

        self._begun = perf_counter()
        self.session.discover([])  # the models are known from here on
        models = [model for _, model in self.session.registry.live_models()]
        optimizers = [optimizer for _, optimizer in self.session.registry.live_optimizers()]
        self._kept = [Trained(model) for model in models[1:]]
        if models:
            self._kept.append(Trained(models[0], *optimizers, *self.schedulers, *self.session.capturing.scalers))
        if len(_datasets(self.loaders.values())) != 1 and len(optimizers) == 1:
            from torchdoctor.takeover.taping import Recorder

            self._recorder = Recorder(self.roots(), KEPT)
            self._recorder.begin()

    def _updated(self, optimizer: Any) -> None:
        """A loop that takes its batches from no loader is left here, once enough of its steps are known."""
        if threading.get_ident() != self._thread:
            return
        if self.driver is None:
            self._turns.stepped(optimizer, self.session.loop.backwards)
            self._until_update = (self._fetched, self.session.loop.backwards)
        if self._recorder is not None:
            self._recorder.forget()
        if self.driver is None and self.why_not is None and not self.batches and self._is_over():
            self._take_tapes("the loop takes its batches from no DataLoader, so it cannot be given others")
            self._begin()

    # -- and then ----------------------------------------------------------------------------

    def _take_over(self) -> None:
        from torchdoctor.takeover.driving import Driver

        read = [loader for key, loader in self.loaders.items() if self._trained_on.get(key, 0) > 1]
        if len(_datasets(loader for loader in read if self._phase(loader) != VALIDATION)) > 1:
            self._take_tapes("the loop takes batches from several loaders at a time")
        elif self._turns.are_taken:
            self.why_not = "several optimizers take turns in the loop"
        else:
            self.driver = Driver(self.roots(), self.session.step_start.lead, self.accumulation())
        self._begin()

    def _take_tapes(self, reason: str) -> None:
        if len(self.optimizers()) > 1:
            self.why_not = f"{reason}, and several optimizers take turns in it"
        elif self._recorder is None or self._recorder.why_not or not self._recorder.batches:
            more = self._recorder.why_not if self._recorder is not None else None
            self.why_not = f"{reason}; {more}" if more else reason
        else:
            self.tapes = self._recorder.batches

    def _begin(self) -> None:
        from torchdoctor.attach import guard
        from torchdoctor.takeover.limits import lift_limits
        from torchdoctor.takeover.run_length import find_length

        self.run = self.session.record.run()
        self.frames = frames = _frames()
        self.length = find_length(frames)
        lift_limits(frames)
        guard.STATE.thread = guard.NOBODY  # no site of the session runs from here on
        if self._recorder is not None:
            self._recorder.end()
        reached = self._rates()
        for kept in self._kept:
            kept.put_back()
        self.sets_rates = not self.schedulers and reached != self._rates()
        self._leave_zero(reached)
        if self.driver is not None:
            self.driver.take_over(self.optimizers())
        self._work.start()
        if self.driver is None:
            self.wait()

    def _rates(self) -> list[float]:
        return [float(group["lr"]) for group in self._groups() if "lr" in group]

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers() for group in optimizer.param_groups]

    def optimizers(self) -> list[Any]:
        """Those that make the updates now: an earlier stage's may be there still."""
        live = [optimizer for _, optimizer in self.session.registry.live_optimizers()]
        if self._turns.are_taken:
            return live
        return [optimizer for optimizer in live if self._turns.is_at_work(optimizer)] or live

    def _leave_zero(self, reached: list[float]) -> None:
        """Where the loop itself warms the rate up from nothing, nothing could be learned at its first one."""
        if self.sets_rates and not any(self._rates()):
            for group, rate in zip((g for g in self._groups() if "lr" in g), reached, strict=True):
                group["lr"] = rate

    def wait(self) -> None:
        """For the work to be done: that ends the process."""
        self._work.join()

    def roots(self) -> list[Any]:
        """The models whose parameters are trained."""
        held = {id(p) for group in self._groups() for p in group["params"]}
        return [
            model for _, model in self.session.registry.live_models() if any(id(p) in held for p in model.parameters())
        ]

    def model(self) -> Any:
        """All that is trained, as one module."""
        from torch.nn import ModuleList

        roots = self.roots()
        return roots[0] if len(roots) == 1 else ModuleList(roots)

    def accumulation(self) -> int:
        """Batches an update."""
        fetched, backwards = self._until_update
        if any(fact.closure for fact in self.session.record.run().facts(OrderFact)):
            backwards = fetched - self.session.step_start.lead  # such an optimizer may ask for several losses of one
        return max(1, round(backwards / max(1, self._turns.count)))

    def loader_of(self, phase: str) -> Any:
        return next((loader for loader in self.loaders.values() if self._phase(loader) == phase), None)


def _datasets(loaders: Iterable[Any]) -> set[int]:
    """A loop may make a new loader of the same data for every epoch."""
    return {id(loader.dataset) for loader in loaders}


def _frames() -> list[Any]:
    frame, found = sys._getframe(2), []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found
