"""The user's loop runs on, in a process that is spent on it, until one step of it has run a second time.

What the two uses share: every operation is seen by a dispatch mode, backward by `_run_backward`, loaders give the kept
batches again, random numbers are those of the step, and none of our own sites runs.
"""

from __future__ import annotations

import atexit
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data.dataloader import _BaseDataLoaderIter

from torchdoctor.attach import guard
from torchdoctor.attach.restoring import set_states
from torchdoctor.probes.context import Names
from torchdoctor.probes.forking import stay_inside, tell
from torchdoctor.probes.module_spans import ModuleSpans
from torchdoctor.probes.step_start import StepStart


def serve(names: Names, give: Callable[[], Any]) -> None:
    """From now on loaders give what `give` does, except to a loop that evaluates: it would never come to its end."""
    original = _BaseDataLoaderIter.__next__
    trained = any(model.training for _, model in names.live_models())

    def following(iterator: Any) -> Any:
        resting = trained and not any(model.training for _, model in names.live_models())
        return original(iterator) if resting or not torch.is_grad_enabled() else give()

    _BaseDataLoaderIter.__next__ = following  # type: ignore[method-assign]


class SecondRun(ABC):
    """Put in place once; it ends the process with a report."""

    def __init__(self, pipe: int, start: StepStart, names: Names, known: dict[str, Any] | None = None) -> None:
        self._pipe = pipe
        self._start = start
        self._names = names
        self._modules = ModuleSpans(names)
        self._backward = torch.autograd.backward
        self._served = 0
        self._known_before = known or {}
        """what is reported beside what this run finds"""

    def _confine(self) -> None:
        """In a forked child: what would reach beyond this process ends it."""
        sys.addaudithook(stay_inside(self._give_up))

    def _put_in_place(self, mode: TorchDispatchMode, serves: bool = True) -> None:
        """`serves`: loaders give the kept batches."""
        guard.STATE.thread = guard.NOBODY  # no site of ours runs here
        atexit.register(os._exit, 0)
        torch.compiler.set_stance("force_eager")
        torch.autograd.backward = self._run_backward
        for name in ("step", "update", "unscale_"):  # scalers insist on gradients, and there are none to be used
            setattr(torch.amp.GradScaler, name, lambda *_args, **_kwargs: None)
        if serves:
            serve(self._names, self._next)
        self._modules.watch()
        torch.set_anomaly_enabled(True, check_nan=False)
        mode.__enter__()

    def _restore(self) -> None:
        """A step begins anew."""
        self._modules.forget()
        set_states(self._start.random, self._start.device_random)

    def _next(self) -> Any:
        """The newest batch first: frameworks that fetch ahead come to the one before it."""
        batches = self._start.batches
        if not batches:
            self._give_up("the loop asked a loader for a batch that was not kept")
        self._served += 1
        return batches[-1 - (self._served - 1) % len(batches)]

    @abstractmethod
    def _run_backward(self, *args: Any, **kwargs: Any) -> None: ...

    def _failed(self) -> NoReturn:
        self._give_up("the step failed in another way when it was run again")

    def _give_up(self, reason: str, **more: Any) -> NoReturn:
        tell(self._pipe, {"reason": reason, **more} | self._known_before)
