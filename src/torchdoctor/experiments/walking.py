"""The steps of a capture that lead from the state it holds to the failure, trained again by the user's own loop.

Loaders give the captured batches in the order in which they were given, and each step gets its random states and rates
back. The last of them is run with every operation checked (probes/rerun.py); so is one before it, once more, where a
loss or gradient is not finite already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torchdoctor import signals
from torchdoctor.attach.restoring import read_states, rebuild, set_groups, set_states
from torchdoctor.attach.snapshots import broken
from torchdoctor.probes.activations import first_tensor
from torchdoctor.probes.forking import tell
from torchdoctor.probes.rerun import Rerun
from torchdoctor.probes.second_run import serve
from torchdoctor.probes.step_start import MOST, StepStart
from torchdoctor.store.captured import open_capture

LOSSES_TOLD = 256
"""Of the last steps before the failure."""


class Walk:
    """Takes the place of the session's `rolling`: told when a step is over."""

    on, undecided = True, False

    def __init__(self, session: Any, path: Path, pipe: int, serves: bool) -> None:
        self._session = session
        self._pipe = pipe
        self._serves = serves
        self._capture = open_capture(path)  # until this process ends
        self._steps: list[dict[str, Any]] = self._capture.document["steps"]
        self._waiting: deque[tuple[dict[str, Any], dict[str, Any]]] = deque()
        """batches still to be given, with the random states that came with them"""
        self._given: deque[Any] = deque(maxlen=MOST)
        self._like: Any = None
        """a batch of the script's own, for the types that captures do not name"""
        self._states: dict[str, Any] = {}
        """that were set last"""
        self._first = 0
        self._at = 0
        self._backward: Callable[..., Any] = torch.autograd.backward
        self._backwards = self._most_backwards = 0
        """in this step, and in any"""
        self.rerun: Rerun | None = None
        """once operations are checked"""

    def serve(self) -> int:
        """From now on loaders give the batches of the capture; after how many updates they are used. Before that comes
        what the loop had fetched ahead, and what fills the update in which that is used up."""
        if not self._serves:
            return 0
        given = [pair for s in self._steps for pair in zip(s["batches"], s["batch_random"], strict=True)]
        if not given:
            tell(self._pipe, {"reason": "the capture holds no batch of these steps"})
        each = max(1, round(median(len(step["batches"]) for step in self._steps)))
        lead = self._capture.document.get("lead", 0)
        updates = ceil(lead / each)
        self._waiting.extend([given[0]] * (updates * each - lead) + given)
        self._like = next(iter(self._session.step_start.batches), None)
        serve(self._session.registry, self._next)
        return updates

    def begin(self, restores: bool = True) -> None:
        """The state of the capture is in place, and its first step follows."""
        self._first = self._session.context.step
        torch.autograd.backward = self._look_at_loss
        register_optimizer_step_pre_hook(self._look_at_gradients)
        self._session.rolling = self
        self._session.hunt.rest()
        if restores:
            self._set_random(self._steps[0]["random"])
        if len(self._steps) == 1:
            self._check_last()

    def _next(self) -> Any:
        node, states = self._waiting[0]
        if len(self._waiting) > 1:
            self._waiting.popleft()
        self._set_random(states)
        self._given.append(rebuild(self._capture, node, like=self._like))
        return self._given[-1]

    def _set_random(self, states: dict[str, Any]) -> None:
        if states:
            self._states = states
            set_states(*read_states(self._capture, states))

    # -- what the session tells --------------------------------------------------------

    def fetched(self, _batch: Any) -> None:
        """Nothing is kept here."""

    def updated(self, _optimizer: Optimizer) -> None:
        """Nothing is kept here."""

    def reach(self, _step: int) -> None:
        return None

    def close(self) -> None:
        """Nothing is kept here."""

    def stepped(self) -> None:
        self._at = self._session.context.step - self._first
        if self._at >= len(self._steps):
            found = {"reason": "the steps were run again and did not break", "unbroken": True}
            tell(self._pipe, found | {"losses": self._losses()})
        self._backwards = 0
        self._set_random(self._steps[self._at]["random"])
        if self._at == len(self._steps) - 1:
            self._check_last()

    def _losses(self) -> list[list[float]]:
        """Those of the steps that are over, by the run's own count."""
        self._session.steady.leave()
        if torch.cuda.is_initialized():
            self._session.deferred.drain()
        trace = self._session.record.run().scalar(signals.LOSS_TRAIN)
        offset = int(self._steps[0]["step"]) - self._first
        pairs = zip(trace.steps.tolist(), trace.values.ravel().tolist(), strict=True)
        return [[step + offset, value] for step, value in pairs if step >= self._first][-LOSSES_TOLD:]

    # -- the failure --------------------------------------------------------------------

    def _look_at_loss(self, *args: Any, **kwargs: Any) -> None:
        loss = first_tensor(args[0] if args else kwargs.get("tensors"))
        if torch._C._current_graph_task_id() == -1 and loss is not None and not bool(loss.detach().isfinite().all()):
            self._hand_over(None)
        self._backwards += 1
        self._most_backwards = max(self._most_backwards, self._backwards)
        self._backward(*args, **kwargs)

    def _look_at_gradients(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        node = self._steps[self._at]["groups"].get(self._session.registry.optimizer_key(optimizer))
        if node is not None:
            set_groups(self._capture, optimizer, node)
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None and float(found_inf):
            return  # its scaler leaves the update out, inside the optimizer
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if broken(gradients):
            self._hand_over(optimizer)

    def _check_last(self) -> None:
        """The step that failed begins, with its states and batches in place."""
        given = [rebuild(self._capture, node, like=self._like) for node in self._steps[-1]["batches"]]
        start = StepStart()
        start.batches = given or [None] * (self._most_backwards or MOST)
        self._begin_rerun(start).begin(serves=False, restores=False)

    def _hand_over(self, optimizer: Optimizer | None) -> None:
        """A step has failed before that one."""
        start = StepStart()
        start.random, start.device_random = read_states(self._capture, self._states)
        start.batches = list(self._given)[-max(2, len(self._steps[self._at]["batches"])) :]
        self._begin_rerun(start).take_over(optimizer, self._serves)

    def _begin_rerun(self, start: StepStart) -> Rerun:
        known = {"failed_step": self._steps[self._at]["step"], "losses": self._losses()}
        torch.autograd.backward = self._backward
        self.rerun = Rerun(self._pipe, start, self._session.registry, known=known)
        return self.rerun
