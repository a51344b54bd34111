"""Run: what was recorded, as numpy arrays, for rules to read. No files and no torch in here.

However long the run, a rule sees at most HISTORY_ROWS rows of any signal: while there are fewer steps a row is a
step; from then on neighbours are merged and a row holds the mean, the least and the greatest of its steps. The
first and the last steps stay available one by one (`head`, `tail`). So a rule costs the same on 500 steps and
on a million, and reads the same live and afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from torchdoctor.facts import (
    Fact,
    ModuleFact,
    OptimizerFact,
    ParameterFact,
    PhaseFact,
)
from torchdoctor.signals import Scope, Signal

HISTORY_ROWS = 2048
UNREAD = "unread"
"""Entry of a run's information: what lay in its folder and was not read, as that was too much."""
RAW_ROWS = 512
"""Rows of head and of tail."""

F = TypeVar("F", bound=Fact)
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Trace:
    """One signal over steps. `values` is (S,) for a STEP signal and (S, T) for one with columns.

    `steps` holds the last step of each row, `low` and `high` the extremes inside it. With `merged == 1` every row is
    one look, and low, high and values are equal. Looks need not be evenly spaced: a governor may skip steps.
    NaN means "not measured" (or that the value was NaN: for losses `low`/`high`/`values` keep a NaN visible).
    """

    steps: Ints
    values: Floats
    low: Floats
    high: Floats
    columns: tuple[str, ...] = ()
    merged: int = 1
    head: Trace | None = None
    tail: Trace | None = None

    @classmethod
    def empty(cls, columns: Sequence[str] = ()) -> Trace:
        shape = (0, len(columns)) if columns else (0,)
        nothing = np.zeros(shape, np.float32)
        return cls(np.zeros(0, np.int64), nothing, nothing, nothing, tuple(columns))

    @classmethod
    def raw(cls, steps: Iterable[int], values: Any, columns: Sequence[str] = ()) -> Trace:
        """A trace in which every row is one step (what tests and short runs have)."""
        array = np.asarray(values)
        if not np.issubdtype(array.dtype, np.floating):
            array = array.astype(np.float64)
        return cls(np.asarray(list(steps), np.int64), array, array, array, tuple(columns))

    def __len__(self) -> int:
        return len(self.steps)

    def column(self, name: str) -> Trace:
        """One column as a trace of its own."""
        i = self.columns.index(name)
        return Trace(
            self.steps,
            self.values[:, i],
            self.low[:, i],
            self.high[:, i],
            (),
            self.merged,
            self.head.column(name) if self.head else None,
            self.tail.column(name) if self.tail else None,
        )

    def select(self, columns: Sequence[str]) -> Trace:
        """The named columns, in that order; names that are not there are left out."""
        if self.values.ndim == 1:
            return self
        index = {c: i for i, c in enumerate(self.columns)}
        keep = [c for c in columns if c in index]
        at = [index[c] for c in keep]
        return Trace(
            self.steps,
            self.values[:, at],
            self.low[:, at],
            self.high[:, at],
            tuple(keep),
            self.merged,
            self.head.select(columns) if self.head else None,
            self.tail.select(columns) if self.tail else None,
        )

    def first(self, rows: int = RAW_ROWS) -> Trace:
        """The first looks, one by one where they are known so."""
        return (self.head or self)._rows(slice(None, rows))

    def last(self, rows: int = RAW_ROWS) -> Trace:
        """The last looks, one by one where they are known so."""
        return (self.tail or self)._rows(slice(-rows, None))

    def between(self, first: int, last: int) -> Trace:
        """Rows whose step lies in first..last, both included."""
        return self._rows((self.steps >= first) & (self.steps <= last))

    def _rows(self, rows: Any) -> Trace:
        return Trace(self.steps[rows], self.values[rows], self.low[rows], self.high[rows], self.columns, self.merged)


@dataclass(frozen=True)
class Seen:
    """A fact and when it was written."""

    step: int
    fact: Fact


@dataclass(frozen=True)
class Run:
    """A read-only view of one recorded run.

    `load` gives the trace of a signal and key (an empty one where nothing was recorded); the store and the live
    recorder each bring their own. `available` holds (signal name, key) pairs that have data.
    """

    info: Mapping[str, Any]
    available: frozenset[tuple[str, str]]
    load: Callable[[str, str], Trace]
    seen: Sequence[Seen]
    steps: int = 0
    """updates done so far"""
    finished: bool = True
    """False while it still trains"""
    _cache: dict[tuple[str, str], Trace] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def holding(cls, *facts: Fact) -> Run:
        """A run of nothing but these: what an experiment found, for a rule to look at."""
        return cls({}, frozenset(), lambda _name, _key: Trace.empty(), [Seen(0, fact) for fact in facts])

    def has(self, signal: Signal) -> bool:
        return any(name == signal.name for name, _ in self.available)

    def keys(self, signal: Signal) -> list[str]:
        return sorted(key for name, key in self.available if name == signal.name)

    def scalar(self, signal: Signal, key: str = "") -> Trace:
        """A STEP signal. A signal recorded under one key only is found without naming it."""
        if signal.scope is not Scope.STEP:
            raise TypeError(f"{signal.name} has columns: read it with run.matrix")
        if (signal.name, key) not in self.available:
            keys = self.keys(signal)
            if key or len(keys) != 1:
                return Trace.empty()
            key = keys[0]
        return self._load(signal.name, key)

    def matrix(self, signal: Signal) -> Trace:
        """A PARAMETER or MODULE signal: a column for each tensor, in forward order where that is known."""
        if signal.scope is Scope.STEP:
            raise TypeError(f"{signal.name} is one number a step: read it with run.scalar")
        if (signal.name, "") not in self.available:
            return Trace.empty()
        return self._load(signal.name, "")

    def _load(self, name: str, key: str) -> Trace:
        if (name, key) not in self._cache:
            self._cache[name, key] = self.load(name, key)
        return self._cache[name, key]

    def facts(self, kind: type[F]) -> list[F]:
        """Every fact of that kind, oldest first."""
        return [s.fact for s in self.seen if isinstance(s.fact, kind)]

    def facts_at(self, kind: type[F]) -> list[tuple[int, F]]:
        """The same with the step at which each was written."""
        return [(s.step, s.fact) for s in self.seen if isinstance(s.fact, kind)]

    def last_fact(self, kind: type[F]) -> F | None:
        return next((s.fact for s in reversed(self.seen) if isinstance(s.fact, kind)), None)

    @cached_property
    def parameters(self) -> dict[str, ParameterFact]:
        """By name, in forward order; those the loss never reached come last."""
        found = {f.name: f for f in self.facts(ParameterFact)}
        current = {name: f for name, f in found.items() if not f.renamed}
        return dict(sorted(current.items(), key=lambda item: (item[1].order is None, item[1].order or 0)))

    @cached_property
    def modules(self) -> dict[str, ModuleFact]:
        """By name, in forward order."""
        found = {f.name: f for f in self.facts(ModuleFact)}
        return dict(sorted(found.items(), key=lambda item: (item[1].order is None, item[1].order or 0)))

    @cached_property
    def optimizers(self) -> dict[str, OptimizerFact]:
        return {f.key: f for f in self.facts(OptimizerFact)}

    @cached_property
    def phase(self) -> PhaseFact | None:
        return self.last_fact(PhaseFact)
