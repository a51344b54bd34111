"""Births counted: what was named against what is planted, for torchdoctor and for anomaly mode, by the same truths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import scores
from anomaly import Named
from planted.truths import Truth
from torchdoctor.facts import BirthFact

STEPS_LATE = 1
"""A step that is named one late still counts: whether updates are counted from their beginning or end is a custom."""
GOAL = 0.95
"""Issue 4: operation, file and line are right in 95 %."""

SAME = "same"


@dataclass(frozen=True)
class Case:
    truth: Truth
    at: int
    """the update that fails, counted from 1"""
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.truth.script} at {self.at}"


@dataclass(frozen=True)
class Outcome:
    """What torchdoctor and anomaly mode made of a case."""

    case: Case
    birth: BirthFact | None = None
    step: int | None = None
    """counted from 0"""
    codes: list[str] = field(default_factory=list)
    """of the findings, in their order"""
    error: str = ""
    seconds: float = 0.0
    anomaly: Named = field(default_factory=Named)
    replayed: str | None = None
    """what the replay gave; None where it was not asked for"""

    @property
    def replayed_same(self) -> bool:
        return self.replayed == SAME

    @property
    def truth(self) -> Truth:
        return self.case.truth

    @property
    def source_right(self) -> bool:
        """Where the source is what must be named, or may be."""
        named = (self.birth.source or "") if self.birth else ""
        wanted = self.truth.source
        if wanted is None or not named:
            return False
        return named.startswith(wanted)

    @property
    def operator_right(self) -> bool:
        if self.birth is None:
            return False
        if not self.truth.operators:
            return self.source_right
        return self.birth.operator in self.truth.operators or self.source_right

    @property
    def place_right(self) -> bool:
        """File and line; for what came in from outside, the source."""
        if self.birth is None:
            return False
        if not self.truth.operators or (self.source_right and not self.birth.operator):
            return self.source_right
        file = Path(self.birth.file or "").name
        return file == self.truth.path.name and self.birth.line == self.truth.line_number

    @property
    def direction_right(self) -> bool:
        return self.birth is not None and self.birth.backward == self.truth.backward

    @property
    def samples_right(self) -> bool:
        return self.birth is not None and sorted(self.birth.samples) == sorted(self.truth.samples)

    @property
    def step_right(self) -> bool:
        return self.step is not None and 0 <= self.step - (self.case.at - 1) <= STEPS_LATE

    @property
    def right(self) -> bool:
        return self.operator_right and self.place_right and self.direction_right

    @property
    def confused(self) -> bool:
        """What was bad already was named as the origin: an operation into which something bad had gone, or a tensor
        that it had spoilt."""
        if self.birth is None or self.right:
            return False
        return bool(self.birth.source) or any(not _is_finite(value) for bounds in self.birth.inputs for value in bounds)

    @property
    def diagnosed(self) -> bool:
        return bool(self.codes) and self.codes[0] in self.truth.diagnoses

    @property
    def anomaly_operator_right(self) -> bool:
        """Autograd's name of the forward operation counts, whichever way the birth went."""
        truth = self.truth
        wanted = {truth.gradient_of} if truth.backward else {_bare(o) for o in truth.operators}
        return bool(self.anomaly.node) and _bare(self.anomaly.operator) in wanted

    @property
    def anomaly_line_right(self) -> bool:
        return self.anomaly.line is not None and self.anomaly.line == self.truth.line_number


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def summary(outcomes: Sequence[Outcome]) -> scores.Rows:
    """What was measured, torchdoctor, anomaly mode."""
    with_samples = [o for o in outcomes if o.truth.samples]
    with_code = [o for o in outcomes if o.truth.diagnoses]
    of = scores.of
    rows = [
        ["operation, file, line and direction right", _of(outcomes, "right"), _both(outcomes)],
        ["operation right", _of(outcomes, "operator_right"), _of(outcomes, "anomaly_operator_right")],
        ["file and line right", _of(outcomes, "place_right"), _of(outcomes, "anomaly_line_right")],
        ["forward or backward right", _of(outcomes, "direction_right"), ""],
        ["samples of the batch right", _of(with_samples, "samples_right"), ""],
        ["step right", _of(outcomes, "step_right"), ""],
        ["a propagator named as the producer", _of(outcomes, "confused"), ""],
        ["right diagnosis first", _of(with_code, "diagnosed"), ""],
        ["nothing named", of([o for o in outcomes if not o.birth], outcomes), of(_silent(outcomes), outcomes)],
    ]
    asked = [o for o in outcomes if o.replayed is not None]
    if asked:
        rows.append(["replay the same to the bit", _of(asked, "replayed_same"), ""])
    for at in sorted({o.case.at for o in outcomes}):
        part = [o for o in outcomes if o.case.at == at]
        rows.append(
            [f"operation, file, line and direction right, failing at update {at}", _of(part, "right"), _both(part)]
        )
    return rows


def _of(outcomes: Sequence[Outcome], what: str) -> str:
    return scores.of([o for o in outcomes if getattr(o, what)], outcomes)


def _both(outcomes: Sequence[Outcome]) -> str:
    return scores.of([o for o in outcomes if o.anomaly_operator_right and o.anomaly_line_right], outcomes)


def _silent(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if not o.anomaly.node]


def by_case(outcomes: Iterable[Outcome]) -> scores.Rows:
    return [
        [
            o.case.label,
            _wanted(o.truth),
            _marked(_told(o), o.right) + (" **propagator**" if o.confused else ""),
            _marked(o.codes[0] if o.codes else "none", o.diagnosed) if o.truth.diagnoses else "",
            _marked(_anomaly_told(o), o.anomaly_operator_right and o.anomaly_line_right),
        ]
        for o in outcomes
    ]


def _wanted(truth: Truth) -> str:
    if not truth.operators:
        return truth.source or ""
    names = " or ".join(sorted(truth.operators))
    return f"{names}{' (backward)' if truth.backward else ''}, line {truth.line_number}"


def _told(outcome: Outcome) -> str:
    birth = outcome.birth
    if birth is None:
        return outcome.error or "nothing"
    if not birth.operator:
        return birth.source or "nothing"
    return f"{birth.operator}{' (backward)' if birth.backward else ''}, line {birth.line}"


def _anomaly_told(outcome: Outcome) -> str:
    named = outcome.anomaly
    return f"{named.node}, line {named.line}" if named.node else named.error or "nothing"


def _marked(text: str, right: bool) -> str:
    return text if right else f"✗ {text}"
