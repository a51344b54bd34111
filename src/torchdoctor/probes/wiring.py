"""Which parameters the loss reaches, an optimizer holds, a step changes, or something else changes."""

from __future__ import annotations

from time import thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter

from torchdoctor import stats
from torchdoctor.attach.ceiling import FINGERPRINTS, units_of
from torchdoctor.attach.guard import contained
from torchdoctor.facts import WiringFact
from torchdoctor.probes.context import Context

NAMES_KEPT = 4000
UNREGISTERED_KEPT = 20


class WiringProbe:
    """Keeps what was ever seen of each parameter, by name; compares values by fingerprints."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reached: set[str] = set()
        self._first: dict[str, int] = {}
        self._changed: set[str] = set()
        self._compared: set[str] = set()
        self._after_step: dict[str, int] = {}
        self._outside: set[str] = set()
        self._frozen_changed: set[str] = set()
        self._unregistered: dict[str, None] = {}
        self._stepped: set[str] = set()
        self._turn, self._parts = 0, 1
        """which of how many parts of the parameters are compared over the step that runs"""

    @contained("wiring: graph_reached")
    def graph_reached(self, leaves: list[Tensor], strays: dict[int, str]) -> None:
        """Leaves found in the graph; `strays` are parameters of modules called but not registered."""
        for leaf in leaves:
            name = self._context.names.name_of(leaf)
            if name is not None:
                self._reached.add(name)
            elif id(leaf) in strays and isinstance(leaf, Parameter) and len(self._unregistered) < UNREGISTERED_KEPT:
                self._unregistered[strays[id(leaf)]] = None

    @contained("wiring: gradients")
    def gradients(self) -> None:
        """After a backward: whoever has a gradient was reached."""
        for name, parameter in self._context.names.parameters():
            if parameter.grad is not None:
                self._reached.add(name)

    @contained("wiring: before_step")
    def before_step(self) -> None:
        """Take fingerprints; what differs from the last one after a step was changed by somebody else."""
        self._turn += 1
        self._parts = self._context.ceiling.parts_of(
            FINGERPRINTS, units_of(p for _, p in self._context.names.parameters())
        )
        self._fingerprint(self._compare_before)

    @contained("wiring: after_step")
    def after_step(self, key: str) -> None:
        self._stepped.add(key)
        self._fingerprint(self._compare_after)

    @contained("wiring: at_backward")
    def at_backward(self) -> None:
        """Where no optimizer steps: what differs from the first look was changed by hand."""
        self._fingerprint(self._compare_unstepped)

    def _compare_unstepped(self, names: list[str], _frozen: set[str], values: NDArray[Any]) -> None:
        for name, mark in zip(names, np.asarray(values).tolist(), strict=True):
            if self._first.setdefault(name, mark) != mark:
                self._outside.add(name)

    def _fingerprint(self, use: Any) -> None:
        if not self._parts:
            return
        start = thread_time()
        every = list(self._context.names.parameters())[self._turn % self._parts :: self._parts]
        named = [(n, p) for n, p in every if stats.unsupported(p) is None and p.numel()]
        if not named:
            return
        names = [n for n, _ in named]
        frozen = {n for n, p in named if not p.requires_grad}
        marks = stats.fingerprint_each([p.detach() for _, p in named])
        self._context.read(marks, lambda values: use(names, frozen, values))
        self._context.ceiling.learn(FINGERPRINTS, units_of(p for _, p in named), thread_time() - start)

    def _compare_before(self, names: list[str], frozen: set[str], values: NDArray[Any]) -> None:
        for name, mark in zip(names, np.asarray(values).tolist(), strict=True):
            self._first.setdefault(name, mark)
            if self._after_step.get(name, mark) != mark:
                (self._frozen_changed if name in frozen else self._outside).add(name)
        self._after_step.clear()

    def _compare_after(self, names: list[str], frozen: set[str], values: NDArray[Any]) -> None:
        for name, mark in zip(names, np.asarray(values).tolist(), strict=True):
            self._after_step[name] = mark
            if name in self._first:
                self._compared.add(name)
            if self._first.get(name, mark) != mark:
                (self._frozen_changed if name in frozen else self._changed).add(name)

    def forget_marks(self) -> None:
        """The next step is not watched: what it leaves behind is not to be compared."""
        self._after_step.clear()

    def renamed(self) -> None:
        for seen in (self._reached, self._changed, self._compared, self._outside, self._frozen_changed):
            seen.clear()
        self._first.clear()
        self._after_step.clear()

    @contained("wiring: write")
    def write(self, updates: int, loaded: set[int]) -> None:
        """The state of the wiring after so many updates; `loaded` are ids of parameters filled by load_state_dict."""
        names = self._context.names
        held = names.held()
        named = list(names.parameters())
        if not named:  # the script has let go of its model: what was written last stands
            return
        trainable = [(n, p) for n, p in named if p.requires_grad]
        unheld = [n for n, p in trainable if id(p) not in held]
        stepped = [n for n, p in trainable if held.get(id(p)) in self._stepped]
        in_use = {id(p) for _, p in named}
        stale = sum(
            1
            for _, optimizer in names.live_optimizers()
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is None and (id(p) not in in_use or (names.name_of(p) or "").startswith("optimizer"))
        )
        fact = WiringFact(
            updates=updates,
            total=len(named),
            frozen=[n for n, p in named if not p.requires_grad][:NAMES_KEPT],
            unheld=unheld[:NAMES_KEPT],
            unreached=[n for n in stepped if n not in self._reached][:NAMES_KEPT],
            used=[n for n in unheld if n in self._reached][:NAMES_KEPT],
            unregistered=list(self._unregistered),
            stale=stale,
            unchanged=[n for n in stepped if n in self._compared and n not in self._changed][:NAMES_KEPT],
            changed_outside=sorted(self._outside)[:NAMES_KEPT],
            frozen_changed=sorted(self._frozen_changed)[:NAMES_KEPT],
            loaded=[n for n, p in trainable if id(p) in loaded][:NAMES_KEPT],
            stepped=len(stepped),
            compared=sum(n in self._compared for n in stepped),
        )
        self._context.record.fact(fact, self._context.step)
