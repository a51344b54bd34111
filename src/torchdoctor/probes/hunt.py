"""Where the first NaN or Inf was born: when one shows, the step is run again by a forked child (rerun.py).

The watch costs nothing that is not done already but for one look, before an update, at the smallest gradient near the
model's input: whatever goes wrong in the backward pass behind it ends there.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor.attach.guard import contained
from torchdoctor.facts import BirthFact
from torchdoctor.interruptions import let_through
from torchdoctor.probes.context import Context
from torchdoctor.probes.forking import Errand, tell, unfit, unsafe
from torchdoctor.probes.rerun import Rerun
from torchdoctor.probes.step_start import StepStart
from torchdoctor.stats.support import PLAIN_TYPES

HUNTS = 2
"""The first NaN matters; a second chance where the first step could not be run again."""
SECONDS = 60.0
"""A child that is not done by then is given up."""
PATIENCE = 20.0
"""How long the end of a run waits for one."""
EARLY = 0.34
"""Part of the model, from its input on, in which the watched gradient is looked for."""
LARGEST_WATCHED = 4096

_item = Tensor.item
_sum = Tensor.sum


class Hunt:
    def __init__(self, context: Context, start: StepStart) -> None:
        self._context = context
        self._start = start
        self._left = HUNTS
        self._wanted: str | None = None
        self._roles: dict[int, str] = {}
        self._errand = Errand()
        self._step = 0
        self._watched: weakref.ref[Tensor] | None = None
        self.found: BirthFact | None = None

    # -- the watch ----------------------------------------------------------------------

    @contained("hunt: choose")
    def choose(self, orders: dict[str, int]) -> None:
        """Which gradient is looked at before every update."""
        held = self._context.names.parameters()
        named = sorted(
            ((orders[n], p) for n, p in held if n in orders and type(p) in PLAIN_TYPES and p.is_cpu),
            key=lambda item: item[0],
        )
        early = [p for _, p in named[: max(2, int(EARLY * len(named)))] if p.requires_grad]
        best = min(early, key=lambda p: p.numel(), default=None)
        self._watched = weakref.ref(best) if best is not None and best.numel() <= LARGEST_WATCHED else None

    @contained("hunt: watch")
    def watch(self) -> bool:
        """The same as a site of its own."""
        return self.is_broken()

    def is_broken(self) -> bool:
        """The watched gradient is not finite. A few microseconds."""
        parameter = self._watched() if self._watched is not None else None
        gradient = parameter.grad if parameter is not None else None
        if gradient is None:
            return False
        value = _item(_sum(gradient, dtype=torch.float32 if gradient.dtype == torch.float16 else None))
        return value - value != 0.0

    def rest(self) -> None:
        """Nothing is looked for any more."""
        self._left, self._watched = 0, None

    # -- the hunt -----------------------------------------------------------------------

    def loss_broke(self, inputs: list[Tensor], targets: list[Tensor]) -> None:
        """A loss is not finite; `begin` follows when the site that noticed it has done the rest."""
        self._ask("loss")
        self._roles = {t.untyped_storage().data_ptr(): "input" for t in inputs}
        self._roles |= {t.untyped_storage().data_ptr(): "target" for t in targets}

    def gradient_broke(self) -> None:
        self._ask("gradient")

    def _ask(self, noticed: str) -> None:
        if self._left and not self._errand.under_way:
            self._wanted = noticed

    @contained("hunt: begin")
    def begin(self, optimizer: Optimizer | None = None) -> None:
        """Fork, if it was asked for. Returns in both processes: in the child the user's loop is being run again."""
        if self._wanted is None:
            return
        self._wanted = None
        self._left -= 1
        reason = unfit() or self._shares() or unsafe(threads=True)
        if reason is not None:
            self._context.unsupported["birth"] = reason
            return
        self._step = self._context.step
        try:
            pipe = self._errand.send(SECONDS)
        except OSError as error:
            let_through(error)
            self._context.unsupported["birth"] = f"the process cannot be forked ({error.strerror})"
            return
        if pipe is None:
            return
        try:
            Rerun(pipe, self._start, self._context.names, self._roles).begin_in_child(optimizer)
        except BaseException as error:
            tell(pipe, {"reason": f"the step could not be run again ({type(error).__name__})"})

    def _shares(self) -> str | None:
        shared = any(p.is_shared() for _, p in self._context.names.parameters())
        return "the weights are shared with other processes" if shared else None

    @contained("hunt: poll")
    def poll(self, patience: float = 0.0) -> None:
        """Take what the child has found, if it has."""
        report = self._errand.report(patience)
        if report is not None:
            self._write(report)

    def _write(self, report: dict[str, Any]) -> None:
        if "reason" in report:
            self._context.unsupported["birth"] = report["reason"]
            return
        fact = BirthFact(**report["birth"])
        if fact.source in self._weights() and "birth" in self._context.unsupported:
            return  # the step that spoilt it was seen, and could not be run again
        self._left = 0
        self._context.unsupported.pop("birth", None)
        self.found = fact
        self._context.record.fact(fact, self._step)
        self._context.on_nonfinite()

    def _weights(self) -> set[str]:
        return {name for name, _ in self._context.names.parameters()}

    @contained("hunt: close")
    def close(self, abrupt: bool = False) -> None:
        """The run ends: wait for a child that is at work, unless it was broken off."""
        self.poll(0.0 if abrupt else PATIENCE)
        if self._errand.give_up():
            self._context.unsupported["birth"] = "the step that was run again took too long"
        self._errand.bury()
