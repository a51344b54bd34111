"""Checkpoints: what was loaded before an optimizer's first update, and what of the training's state was not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor import stats
from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.attach.weak import IdentitySet
from torchdoctor.facts import ResumeFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.optimizers import number

DEPTH = 3
ENTRIES_KEPT = 20_000
FACTS_KEPT = 16
PATHS_KEPT = 256
STARTS_KEPT = 1024
MARKED_TENSORS = 4
MARKED_ELEMENTS = 4096
PROGRESS = ("epoch", "step", "global_step", "iteration", "iter", "epochs", "steps", "iterations")


@dataclass
class Checkpoint:
    """What a file that was read held."""

    path: str | None
    pointers: set[int] = field(default_factory=set)
    """where its tensors lie: they stay there when the script renames their keys"""
    optimizer: bool = False
    rates: list[float] = field(default_factory=list)
    initial_rates: list[float] = field(default_factory=list)
    scheduler: bool = False
    progress: str | None = None


@dataclass
class Loading:
    """A state that went into a module, until an optimizer's first update on it."""

    parameters: set[int]
    checkpoint: Checkpoint | None
    start: bool
    place: Place | None


class ResumingProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.waiting = False
        """an optimizer has yet to make its first update"""
        self._checkpoints: list[Checkpoint] = []
        self._loadings: list[Loading] = []
        self._written_paths: set[str] = set()
        self._stepped: IdentitySet = IdentitySet()
        self._rates: dict[str, list[float]] = {}
        self._last: tuple[str, str] | None = None
        self._starts: set[tuple[int, ...]] = set()
        self._optimizer_loaded = False
        self._scheduler_loaded = False
        self._state_asked = False
        self._facts = 0

    # -- files --------------------------------------------------------------------------

    @contained("resuming: read")
    def read(self, source: Any, content: Any) -> None:
        checkpoint = Checkpoint(_path(source))
        for mapping in _mappings(content):
            if "param_groups" in mapping and "state" in mapping:
                if not checkpoint.optimizer:
                    checkpoint.rates = _rates(mapping["param_groups"])
                    checkpoint.initial_rates = _rates(mapping["param_groups"], "initial_lr")
                checkpoint.optimizer = True
            elif "last_epoch" in mapping and ("base_lrs" in mapping or "_step_count" in mapping):
                checkpoint.scheduler = True
            else:
                tensors = [v for v in list(mapping.values())[:ENTRIES_KEPT] if isinstance(v, Tensor)]
                checkpoint.pointers.update(t.data_ptr() for t in tensors if t.numel())
        if isinstance(content, Mapping):
            for name in PROGRESS:
                value = content.get(name)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    checkpoint.progress = f"{name} = {value}"
                    break
        self._checkpoints = [*self._checkpoints[-3:], checkpoint]

    @contained("resuming: written")
    def written(self, target: Any) -> None:
        path = _path(target)
        if path is not None and len(self._written_paths) < PATHS_KEPT:
            self._written_paths.add(path)

    # -- state -----------------------------------------------------------------------------

    @contained("resuming: module_loaded")
    def module_loaded(self, module: nn.Module, state: Any, place: Place | None) -> None:
        parameters = list(module.parameters())
        pointers = (
            {v.data_ptr() for v in state.values() if isinstance(v, Tensor)} if hasattr(state, "values") else set()
        )
        source = next((c for c in reversed(self._checkpoints) if c.pointers & pointers), None)
        mark = self._mark(parameters)
        start = mark in self._starts
        self._begin_at(mark)
        loading = Loading({id(p) for p in parameters}, source, start, place)
        self._loadings = [*self._loadings[-7:], loading]

    def optimizer_loaded(self) -> None:
        self._optimizer_loaded = True

    def scheduler_loaded(self) -> None:
        self._scheduler_loaded = True

    def state_asked(self) -> None:
        self._state_asked = True

    def created(self) -> None:
        self.waiting = True

    # -- updates ----------------------------------------------------------------------------

    @contained("resuming: before_step")
    def before_step(self, key: str, optimizer: Optimizer) -> None:
        """An optimizer's update: its first is where a resumed training goes on."""
        self.waiting = False
        if optimizer in self._stepped:
            return
        self._stepped.add(optimizer)
        held = [p for group in optimizer.param_groups for p in group["params"]]
        identities = {id(p) for p in held}
        loading = next((x for x in reversed(self._loadings) if x.parameters & identities), None)
        if loading is None:
            mark = self._mark(held)
            self._begin_at(mark)
        elif self._facts < FACTS_KEPT:
            self._facts += 1
            self._write(key, optimizer, held, loading)
        self._loadings = []
        self._optimizer_loaded = self._scheduler_loaded = False
        self._last = (key, type(optimizer).__name__)
        self._rates[key] = _rates(optimizer.param_groups)

    def _write(self, key: str, optimizer: Optimizer, held: list[Tensor], loading: Loading) -> None:
        checkpoint = loading.checkpoint
        total = sum(p.numel() for p in held)
        earlier = self._last[0] if self._last and self._last[1] == type(optimizer).__name__ else None
        fact = ResumeFact(
            optimizer=key,
            share=sum(p.numel() for p in held if id(p) in loading.parameters) / max(total, 1),
            empty=not optimizer.state,
            loaded=self._optimizer_loaded,
            start=loading.start,
            saved_optimizer=bool(checkpoint and checkpoint.optimizer) or (earlier is not None and self._state_asked),
            saved_scheduler=bool(checkpoint and checkpoint.scheduler),
            saved_progress=checkpoint.progress if checkpoint else None,
            file_written=bool(checkpoint and (checkpoint.path is None or checkpoint.path in self._written_paths)),
            saved_rates=checkpoint.rates if checkpoint else [],
            saved_initial_rates=(checkpoint.initial_rates if checkpoint else [])
            or (self._rates[earlier] if earlier is not None else []),
            rates=_rates(optimizer.param_groups),
            earlier=earlier,
            scheduler_loaded=self._scheduler_loaded,
            file=loading.place.file if loading.place else None,
            line=loading.place.line if loading.place else None,
        )
        self._context.record.fact(fact, self._context.step, f"{key}/{self._facts}")

    def _begin_at(self, mark: tuple[int, ...] | None) -> None:
        if mark is not None and len(self._starts) < STARTS_KEPT:
            self._starts.add(mark)

    def _mark(self, parameters: list[Tensor]) -> tuple[int, ...] | None:
        """Fingerprints of a few tensors on the host; on a device they are not waited for."""
        usable = [p for p in parameters if p.dim() > 1 and stats.unsupported(p) is None and p.device.type == "cpu"]
        if not usable:
            return None
        parts = [p.detach().reshape(-1)[:MARKED_ELEMENTS].reshape(1, -1) for p in usable[:MARKED_TENSORS]]
        return tuple(np.concatenate([stats.fingerprints(part).numpy() for part in parts]).tolist())


def _mappings(content: Any, depth: int = DEPTH) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, Mapping) and depth:
        yield content
        if "param_groups" in content and "state" in content:
            return
        for value in list(content.values())[:ENTRIES_KEPT]:
            if isinstance(value, Mapping):
                yield from _mappings(value, depth - 1)
            elif isinstance(value, (list, tuple)) and len(value) <= 8:
                for part in value:
                    yield from _mappings(part, depth - 1)


def _rates(groups: Any, name: str = "lr") -> list[float]:
    found = [number(g.get(name)) for g in groups if isinstance(g, Mapping)]
    return [rate for rate in found if rate is not None]


def _path(source: Any) -> str | None:
    try:
        return os.path.realpath(os.fspath(source))
    except TypeError:
        return None
