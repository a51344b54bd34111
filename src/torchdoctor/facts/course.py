"""The run itself: its phases, pauses, waits for the device, our own health, other runs it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchdoctor.facts.base import Fact


@dataclass(frozen=True)
class PhaseFact(Fact):
    """What the loop was taken to be; the last one stands. Shown to the user so that a wrong inference shows."""

    kind: ClassVar[str] = "phase"
    updates: int
    backwards: int
    passes_train: int
    passes_validation: int
    passes_unknown: int
    validations: int
    """number of validation phases"""
    updates_between_validations: float | None
    """median"""
    loss_sites: list[str] = field(default_factory=list)
    validation_sites: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what was not understood, in words"""
    discarded: int = 0
    """times that gradients of a backward were cleared before the first update had used any"""
    steps: int | None = None
    """training steps done, also where updates are made by hand and `updates` is 0; None in older records"""


@dataclass(frozen=True)
class PauseFact(Fact):
    """Calls of one kind and place that hold the training up: saving, collecting garbage, emptying a cache."""

    kind: ClassVar[str] = "pause"
    call: str
    count: int
    seconds: float
    updates: int
    """updates made when it was last called"""
    file: str | None = None
    line: int | None = None
    library: str | None = None


@dataclass(frozen=True)
class SynchronisationFact(Fact):
    """Calls that wait for the device, in watched training steps, by place."""

    kind: ClassVar[str] = "synchronisation"
    call: str
    count: int
    steps: int
    """watched steps so far"""
    elements: int
    """elements read, on average"""
    file: str | None = None
    line: int | None = None
    code: str = ""
    library: str | None = None


@dataclass(frozen=True)
class HealthFact(Fact):
    """What torchdoctor itself dropped, switched off or does not support; and the overhead reached."""

    kind: ClassVar[str] = "own_health"
    UNNOTICED_SECONDS: ClassVar[float] = 0.25
    """of our own time are allowed once, beside a share of the step time"""
    overhead: float | None
    """share of the bare step time, after the first steps"""
    budget: float
    dropped: dict[str, int] = field(default_factory=dict)
    disabled: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """what was left out or measured in part to stay inside the budget, and how often"""
    cadence: dict[str, int] = field(default_factory=dict)
    settling_seconds: float | None = None
    """what the first steps were slowed down by, once: they are looked at closely whatever it costs"""
    own_seconds: float | None = None
    """what all steps after them were slowed down by"""
    unnoticed: float = 0.5
    """seconds that were allowed once; older runs do not say, and were allowed so many"""


@dataclass(frozen=True)
class ComparisonFact(Fact):
    """How this run differs from another one. Never recorded: `torchdoctor diff` hands it to the rules that need it."""

    kind: ClassVar[str] = "comparison"
    baseline: str
    differences: list[dict[str, Any]]
    """of the records: {"part", "name", "good", "bad"}; part is arguments, configuration, data, code, packages,
    hardware, environment (variables), seeds or other; good is the baseline's, bad this run's; "set_by" is the changed
    argument that it follows from, or None"""
    first_step: int | None = None
    """the first step at which any signal differs by even a bit"""
    apart_step: int | None = None
    """the first step from which on a signal differs beyond noise"""
    apart_signal: str | None = None


@dataclass(frozen=True)
class RemedyFact(Fact):
    """What was done about losses and gradients that are not finite, where the user asked for more than a report."""

    kind: ClassVar[str] = "remedy"
    mode: str
    """skip, halt or rollback"""
    skips: int = 0
    skipped: list[int] = field(default_factory=list)
    """steps whose update was left out, the first of them"""
    rollbacks: int = 0
    rolled_back: list[list[int]] = field(default_factory=list)
    """of the first of them, the step that broke and the step whose state was put back"""
    halted: int | None = None
    """the step before whose update the training was ended"""
    spoilt: str | None = None
    """a buffer that held NaN after an update was left out: its old values were not at hand"""


@dataclass(frozen=True)
class LibraryWarningFact(Fact):
    """A warning that a library raised during the run."""

    kind: ClassVar[str] = "library_warning"
    text: str
    category: str
    file: str
    line: int
