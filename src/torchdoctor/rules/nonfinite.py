"""What became NaN or Inf, and in which order: the first of a chain is the cause, the rest carry it on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from torchdoctor.facts import MODEL_INPUT, OTHER_INPUT, TRAIN, VALIDATION, InputsFact, NonfiniteFact
from torchdoctor.findings import Evidence, Severity
from torchdoctor.rules import births, remedies
from torchdoctor.run import Run
from torchdoctor.signals import INPUT_NONFINITE, LOSS_TRAIN, LOSS_VALIDATION, TARGET_NONFINITE

SIGNALS = {"input": INPUT_NONFINITE, "target": TARGET_NONFINITE}

MOST_SAMPLES = 16
"""NonfiniteFact lists no more indices than this."""

DIVERGED = 10.0
"""The loss stood so many times above its start before it broke: what broke it was large numbers, whatever the line."""

INSIDE = ("activation", "gradient", "loss", "weight")
"""Roles in which a non-finite value has entered the network."""


class Outcome(str, Enum):
    """What a non-finite batch did."""

    BROKE = "broke"
    """the loss was finite before it, and not at it or after it"""
    PASSED = "passed"
    """the loss on record stayed finite, but the network computed with it"""
    HANDLED = "handled"
    """nothing behind the batch was touched: it is masked or replaced on the way"""
    FOLLOWED = "followed"
    """the loss had been non-finite before"""


@dataclass(frozen=True)
class Contamination:
    """Non-finite values in one part of a run's batches."""

    step: int
    phase: str
    count: int
    nan: int
    samples: tuple[int, ...]
    features: tuple[int, ...]
    rows: int | None
    """samples in the batch, where known"""
    batches: int
    """how many of the looked-at batches held any"""
    looks: int
    outcome: Outcome
    loss_step: int | None
    file: str | None = None
    line: int | None = None
    left_out: bool = False
    """the update of the step whose loss it broke was not made"""
    argument: str = ""
    """path of the tensor in the model's call, where it is not the first"""
    is_between: bool = False
    """the batch was finite when the loader handed it out, and not when a layer of the model got it"""
    made_by: str | None = None
    """the operation between loader and model that made them, where it is known"""

    @property
    def what(self) -> str:
        infinite = self.count - self.nan
        if not self.nan:
            return f"{self.count} non-finite values"
        return f"{self.nan} NaN" + (f" and {infinite} Inf" if infinite else "")

    @property
    def when(self) -> str:
        return f"{'validation at ' if self.phase == VALIDATION else ''}step {self.step}"

    @property
    def is_partial(self) -> bool:
        """Some samples of the batch are clean: a broken network's own outputs would be bad throughout."""
        return bool(self.samples) and self.rows is not None and len(self.samples) < min(self.rows, MOST_SAMPLES)

    @property
    def severity(self) -> Severity:
        if self.outcome is Outcome.BROKE:
            return Severity.WARNING if self.phase == VALIDATION else Severity.ERROR
        return Severity.INFO if self.outcome is Outcome.HANDLED else Severity.WARNING

    @property
    def confidence(self) -> float:
        if self.outcome is Outcome.BROKE and self.loss_step is not None:
            return 0.99 if self.loss_step - self.step <= 1 else 0.9
        return 0.6 if self.outcome is Outcome.FOLLOWED else 0.9

    @property
    def symptoms(self) -> tuple[str, ...]:
        if self.loss_step is None or self.outcome is not Outcome.BROKE:
            return ()
        return ("nan-at-first-step",) if self.loss_step <= 1 else ("nan-later",)

    def consequence(self, opening: str, handled: str) -> str:
        opening = f"{opening} {self.what} at {self.when}"
        if self.outcome is Outcome.BROKE and self.left_out:
            return f"{opening}, and the loss of step {self.loss_step} is not finite; its update was left out."
        if self.outcome is Outcome.BROKE and self.loss_step == self.step:
            return f"{opening}, and the loss of that same step is not finite: every gradient and weight follows."
        if self.outcome is Outcome.BROKE:
            return f"{opening}; the loss is not finite from step {self.loss_step} on."
        if self.outcome is Outcome.FOLLOWED:
            return f"{opening}; the loss was not finite before that, but such a batch is enough to cause it."
        if self.outcome is Outcome.PASSED:
            return f"{opening}. They reached the network, though the losses on record stayed finite."
        return f"{opening}, and no loss became NaN. {handled}"

    def evidence(self, signal: str) -> list[Evidence]:
        said = [Evidence(f"{self.what} at {self.when}", signal, float(self.count), 0.0)]
        if self.samples:
            of = f" of {self.rows}" if self.rows else ""
            said.append(Evidence(f"in {counted('sample', self.samples)}{of} of that batch"))
        if self.argument:
            said.append(Evidence(f"in {self.argument} of the call, which is not its first tensor"))
        if self.features:
            said.append(Evidence(f"in {counted('feature', self.features)}"))
        if self.looks > 1:
            said.append(Evidence(f"{self.batches} of {self.looks} batches looked at hold some", signal))
        if self.loss_step is not None:
            when = f"at step {self.loss_step}" if self.left_out else f"from step {self.loss_step} on"
            said.append(Evidence(f"the loss is not finite {when}", LOSS_TRAIN.name))
        return said


def listed(numbers: tuple[int, ...], most: int = 8) -> str:
    return ", ".join(map(str, numbers[:most])) + (" ..." if len(numbers) > most else "")


def counted(word: str, numbers: tuple[int, ...]) -> str:
    """sample 3, samples 3, 5"""
    return f"{word}{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def first(run: Run, *roles: str) -> tuple[int, NonfiniteFact] | None:
    """The earliest non-finite fact in one of these roles."""
    found = [(step, fact) for step, fact in run.facts_at(NonfiniteFact) if fact.role in roles]
    return min(found, key=lambda item: item[0], default=None)


def loss_broke_at(run: Run, phase: str = TRAIN) -> int | None:
    """The first step whose loss was NaN or Inf."""
    signal = LOSS_TRAIN if phase == TRAIN else LOSS_VALIDATION
    steps = [step for step, f in run.facts_at(NonfiniteFact) if f.role == "loss" and f.phase in (phase, "unknown")]
    for key in run.keys(signal):
        trace = run.scalar(signal, key)
        for part in (trace.head, trace):
            if part is not None and len(part) and not np.isfinite(part.values).all():
                steps.append(int(part.steps[int(np.argmin(np.isfinite(part.values)))]))
    return min(steps, default=None)


def contamination(run: Run, role: str) -> Contamination | None:
    """Non-finite values in the batches' inputs or targets, and what they did; training comes before validation."""
    facts = [(step, f) for step, f in run.facts_at(NonfiniteFact) if f.role == role and not _is_target(run, step, f)]
    facts = facts or _looked(run, role) or _from_birth(run, role)
    if not facts:
        return None
    step, fact = min(facts, key=lambda item: (item[1].phase == VALIDATION, item[0]))
    born = births.first_birth(run)
    made_by = None
    if born is not None and born[1].operator and born[0] <= step:
        if born[0] == step and births.is_before_model(born[1]):
            made_by = births.words(born[1])
        elif not (born[0] == step and births.was_given_nonfinite(born[1])):
            return None  # another model's output, or a part of the network
    elif born is not None and born[0] == step and births.is_written_number(born[1]):
        made_by = f"a number that is not finite is written into the batch at {births.line(born[1])}"
    is_between = made_by is not None or fact.name.startswith(MODEL_INPUT)
    place = born[1] if born is not None and is_between and born[0] == step and born[1].module is None else fact
    loss_step = loss_broke_at(run, VALIDATION if fact.phase == VALIDATION else TRAIN)
    counts = [run.scalar(SIGNALS[role], key).values for key in run.keys(SIGNALS[role])]
    shapes = [f.shape for f in run.facts(InputsFact) if f.role == role and f.shape]
    return Contamination(
        step=step,
        phase=fact.phase,
        count=fact.count,
        nan=fact.nan,
        samples=tuple(fact.samples),
        features=tuple(fact.features),
        rows=shapes[0][0] if shapes else None,
        batches=max(1, sum(int((c > 0).sum()) for c in counts)),
        looks=max(1, sum(len(c) for c in counts)),
        outcome=_outcome(run, step, loss_step),
        loss_step=loss_step,
        file=place.file,
        line=place.line,
        left_out=loss_step is not None and remedies.was_left_out(run, loss_step),
        argument=fact.name if fact.name.startswith(OTHER_INPUT) else "",
        is_between=is_between,
        made_by=made_by,
    )


def _is_target(run: Run, step: int, fact: NonfiniteFact) -> bool:
    """A later tensor of the loader's batch that also reached the loss as its target."""
    if fact.role != "input" or fact.name == "input":
        return False
    same = (fact.count, fact.nan, fact.samples)
    others = [f for at, f in run.facts_at(NonfiniteFact) if f.role == "target" and at == step]
    return any((f.count, f.nan, f.samples) == same for f in others)


def _looked(run: Run, role: str) -> list[tuple[int, NonfiniteFact]]:
    """What the counts alone say, where no fact was written."""
    found = []
    for key in run.keys(SIGNALS[role]):
        trace = run.scalar(SIGNALS[role], key)
        for at in np.flatnonzero((trace.values > 0) & np.isfinite(trace.values))[:1]:
            count = math.ceil(trace.values[at])
            found.append((int(trace.steps[at]), NonfiniteFact(role, "", key or TRAIN, count, 0)))
    return found


def _from_birth(run: Run, role: str) -> list[tuple[int, NonfiniteFact]]:
    """What the step that was run again began with, where nothing else saw the batch."""
    born = births.first_birth(run)
    if born is None or born[1].source not in ((role, "data") if role == "input" else (role,)):
        return []
    step, fact = born
    nan = fact.count if fact.result == "nan" else 0
    return [(step, NonfiniteFact(role, role, TRAIN, fact.count, nan, fact.samples, [], fact.file, fact.line))]


def _outcome(run: Run, step: int, loss_step: int | None) -> Outcome:
    if loss_step is not None:
        return Outcome.BROKE if loss_step >= step else Outcome.FOLLOWED
    return Outcome.PASSED if first(run, *INSIDE) is not None else Outcome.HANDLED


def chain(run: Run) -> list[Evidence]:
    """Where the first was born, if that is known, and the order in which things became non-finite."""
    seen: dict[str, tuple[int, NonfiniteFact]] = {}
    for step, fact in sorted(run.facts_at(NonfiniteFact), key=lambda item: item[0]):
        seen.setdefault(fact.role, (step, fact))
    said = [*births.evidence(run), *(Evidence(text, "remedy") for text in remedies.describe(run))]
    if len(seen) < 2:
        return said
    text = ", then ".join(f"{role} at step {step}" for role, (step, _) in seen.items())
    return [*said, Evidence(f"non-finite first in: {text}")]


def has_diverged(run: Run, step: int) -> bool:
    """The loss had grown far above its start before it broke."""
    loss = run.scalar(LOSS_TRAIN).between(0, step)
    values = loss.values[np.isfinite(loss.values)]
    if len(values) < 3:
        return False
    start, last = float(np.median(np.abs(values[:3]))), float(np.abs(values[-1]))
    return last > DIVERGED * max(start, 1e-12)
