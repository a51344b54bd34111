"""The steps of a capture that lead from the state it holds to the failure, trained again by the user's own loop.

Each step gets its batches, random states and rates back. At the first loss or gradient that is not finite the process
is handed over: that step runs once more with every operation checked (probes/rerun.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torchdoctor import signals
from torchdoctor.attach.restoring import read_tensor, rebuild, set_groups
from torchdoctor.attach.snapshots import broken
from torchdoctor.probes.activations import first_tensor
from torchdoctor.probes.forking import tell
from torchdoctor.probes.rerun import Rerun
from torchdoctor.probes.second_run import serve
from torchdoctor.probes.step_start import StepStart
from torchdoctor.store.captured import Capture, open_capture


class Walk:
    """Takes the place of the session's `rolling`: told when a step is over."""

    on, undecided = True, False

    def __init__(self, session: Any, capture: Capture, pipe: int, serves: bool) -> None:
        self._session = session
        self._pipe = pipe
        self._serves = serves
        self._path = capture.path
        self._steps: list[dict[str, Any]] = capture.document["steps"]
        self._batches: list[tuple[Any, dict[str, Any]]] = []
        """still to be given, with the random states that came with them"""
        self._like: Any = None
        """a batch of the script's own, for the types that captures do not name"""
        self._first = 0
        self._at = 0
        self._backward: Callable[..., Any] = torch.autograd.backward

    def serve(self) -> None:
        """From now on loaders give the batches of the capture. What a framework had fetched ahead comes before them."""
        if self._serves:
            self._like = next(iter(self._session.step_start.batches), None)
            with open_capture(self._path) as capture:
                for step in self._steps:
                    for node, states in zip(step["batches"], step["batch_random"], strict=True):
                        self._batches.append((rebuild(capture, node, like=self._like), states))
            if not self._batches:
                tell(self._pipe, {"reason": "the capture holds no batch of these steps"})
            serve(self._session.registry, self._next)

    def begin(self, restores: bool = True) -> None:
        """The state of the capture is in place, and its first step follows."""
        self._first = self._session.context.step
        torch.autograd.backward = self._look_at_loss
        register_optimizer_step_pre_hook(self._look_at_gradients)
        self._session.rolling = self
        self._session.hunt.rest()
        if restores:
            self._set_random(self._steps[0]["random"])

    def _next(self) -> Any:
        batch, states = self._batches[0]
        if len(self._batches) > 1:
            del self._batches[0]
        self._set_random(states)
        return batch

    def _set_random(self, states: dict[str, Any]) -> None:
        with open_capture(self._path) as capture:
            if states.get("torch"):
                torch.set_rng_state(read_tensor(capture, states["torch"]))
            for index, name in (states.get("cuda") or {}).items():
                if int(index) < torch.cuda.device_count():
                    torch.cuda.set_rng_state(read_tensor(capture, name), int(index))

    # -- what the session tells --------------------------------------------------------

    def fetched(self, _batch: Any, _tensors: Any) -> None:
        """Nothing is kept here."""

    def updated(self, _optimizer: Optimizer) -> None:
        """Nothing is kept here."""

    def reach(self, _step: int) -> None:
        return None

    def stepped(self) -> None:
        self._at = self._session.context.step - self._first
        if self._at >= len(self._steps):
            tell(self._pipe, {"reason": "the steps were run again and did not break", "losses": self._losses()})
        self._set_random(self._steps[self._at]["random"])

    def _losses(self) -> list[list[float]]:
        """Those of the steps that are over, by the run's own count."""
        self._session.steady.leave()
        if torch.cuda.is_initialized():
            self._session.deferred.drain()
        trace = self._session.record.run().scalar(signals.LOSS_TRAIN)
        offset = int(self._steps[0]["step"]) - self._first
        pairs = zip(trace.steps.tolist(), trace.values.ravel().tolist(), strict=True)
        return [[step + offset, value] for step, value in pairs if step >= self._first]

    # -- the failure --------------------------------------------------------------------

    def _look_at_loss(self, *args: Any, **kwargs: Any) -> None:
        loss = first_tensor(args[0] if args else kwargs.get("tensors"))
        if torch._C._current_graph_task_id() == -1 and loss is not None and not bool(loss.detach().isfinite().all()):
            self._hand_over(None)
        self._backward(*args, **kwargs)

    def _look_at_gradients(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        node = self._steps[self._at]["groups"].get(self._session.registry.optimizer_key(optimizer))
        if node is not None:
            with open_capture(self._path) as capture:
                set_groups(capture, optimizer, node)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if broken(gradients):
            self._hand_over(optimizer)

    def _hand_over(self, optimizer: Optimizer | None) -> None:
        step = self._steps[self._at]
        known = {"failed_step": step["step"], "losses": self._losses()}
        torch.autograd.backward = self._backward
        start = StepStart()
        with open_capture(self._path) as capture:
            states = step["random"]
            start.random = read_tensor(capture, states["torch"]) if states.get("torch") else None
            start.device_random = {
                int(index): read_tensor(capture, name) for index, name in (states.get("cuda") or {}).items()
            }
            start.batches = [rebuild(capture, node, like=self._like) for node in step["batches"]]
        Rerun(self._pipe, start, self._session.registry).take_over(optimizer, self._serves, known)
