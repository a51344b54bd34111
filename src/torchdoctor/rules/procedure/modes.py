"""Stretches of a run in which one model's forward passes ran in one mode, as the rules on modes read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchdoctor.facts import ModelFact, ModesFact, WiringFact
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION, LOSS_VALIDATION


@dataclass(frozen=True)
class Stretch:
    """From `start` up to, not including, `end` (steps) the model's passes of that phase ran as `modes` says."""

    modes: ModesFact
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def stretches(run: Run, phase: str) -> dict[str, list[Stretch]]:
    """By model, in order. Where modes flip within one step only the last of them has a length."""
    by_model: dict[str, list[tuple[int, ModesFact]]] = {}
    for step, fact in run.facts_at(ModesFact):
        if fact.phase == phase:
            by_model.setdefault(fact.model, []).append((step, fact))
    found: dict[str, list[Stretch]] = {}
    for model, every in by_model.items():
        seen = _without_totals(every)
        ends = [*(step for step, _ in seen[1:]), max(run.steps, seen[-1][0])]
        found[model] = [Stretch(fact, step, end) for (step, fact), end in zip(seen, ends, strict=True)]
    return found


def _without_totals(seen: list[tuple[int, ModesFact]]) -> list[tuple[int, ModesFact]]:
    """At its end a run counts the passes of every state once more; those are no new stretches."""
    last = seen[-1][0]
    states: list[ModesFact] = []
    kept = []
    for step, fact in seen:
        state = replace(fact, passes=1)
        if step < last or state not in states:
            kept.append((step, fact))
        states.append(state)
    return kept


def is_trained(run: Run, model: str) -> bool:
    """Whether an optimizer changes this model at all: a frozen backbone or a fixed critic may sit in any mode."""
    wiring = run.last_fact(WiringFact)
    names = parameters_of(run, model)
    if wiring is None or not names:
        return not any(f.name == model and f.trainable == 0 for f in run.facts(ModelFact))
    return bool(set(names) - {*wiring.frozen, *wiring.unheld})


def parameters_of(run: Run, model: str) -> list[str]:
    """With several models in a run their parameters carry the model's name in front."""
    models = {f.name for f in run.facts(ModelFact)}
    if len(models) <= 1:
        return list(run.parameters)
    return [n for n in run.parameters if n.startswith(f"{model}.")]


def validates(run: Run) -> bool:
    """Whether passes called validation really are: a loss or accuracy was taken there, or they come in phases.

    Passes without gradients inside every training step (a generator's samples for the discriminator, a mean
    teacher's targets) produce no loss of their own and recur with every update.
    """
    if run.has(LOSS_VALIDATION) or run.has(ACCURACY_VALIDATION):
        return True
    phase = run.phase
    if phase is None or phase.passes_validation == 0:
        return False
    return phase.updates_between_validations is None or phase.updates_between_validations > 1


def share(parts: Sequence[Stretch], whole: Sequence[Stretch]) -> float:
    """Share of the run's length that these stretches cover; by their number where none has a length."""
    total = sum(s.length for s in whole)
    return sum(s.length for s in parts) / total if total else len(parts) / max(len(whole), 1)


def named(modules: Sequence[str], most: int = 3) -> str:
    """A few of the names, and how many there are."""
    shown = ", ".join(m or "(root)" for m in modules[:most])
    return f"{shown} and {len(modules) - most} more" if len(modules) > most else shown


def validation_label(run: Run) -> str:
    phase = run.phase
    return f"{phase.validations} times" if phase and phase.validations > 1 else "once"
