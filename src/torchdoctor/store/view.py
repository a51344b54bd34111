"""From histories and facts to a Run: the one way in, for the live view and for readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchdoctor.facts import ModuleFact, ParameterFact, PhaseFact
from torchdoctor.run import Run, Seen, Trace
from torchdoctor.store.history import Order, State

Name = tuple[str, str]


def view(
    info: Mapping[str, Any], states: Mapping[Name, State], seen: Sequence[Seen], steps: int, finished: bool
) -> Run:
    """A Run over histories that are there already."""
    return lazy_view(info, frozenset(states), states.get, seen, steps, finished)


def lazy_view(
    info: Mapping[str, Any],
    available: frozenset[Name],
    find: Callable[[Name], State | None],
    seen: Sequence[Seen],
    steps: int,
    finished: bool,
) -> Run:
    """A Run over histories that are made when asked for."""
    order = forward_order(seen)

    def load(signal: str, key: str) -> Trace:
        state = find((signal, key))
        return Trace.empty() if state is None else state.trace(order)

    return Run(info, available, load, seen, count_updates(steps, seen), finished)


def count_updates(steps: int, seen: Sequence[Seen]) -> int:
    """Steps done: one less than the steps seen where a validation after the last step was written as the next."""
    phase = next((s.fact for s in reversed(seen) if isinstance(s.fact, PhaseFact)), None)
    if phase is None:
        return steps
    done = phase.updates if phase.steps is None else phase.steps
    return steps - 1 if done == steps - 1 else steps


def forward_order(seen: Sequence[Seen]) -> Order:
    """Where a parameter or module stands in the forward pass; last if that is not known."""
    places: dict[str, float] = {}
    for each in seen:
        fact = each.fact
        if isinstance(fact, ParameterFact | ModuleFact):
            places[fact.name] = float("inf") if fact.order is None else fact.order
    return lambda name: places.get(name, float("inf"))
