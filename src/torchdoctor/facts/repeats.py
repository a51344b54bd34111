"""What came of starting a program several times. Never recorded: `torchdoctor seeds` hands it to the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchdoctor.facts.base import Fact

RANDOM, OUTSIDE, CONTROL, OPERATION, UNSEEN = "random", "outside", "control", "operation", "unseen"
"""Why two starts part: a draw from a generator, a tensor that torch did not make, another way through the program, an
operation that makes different results of the same inputs, or what could not be seen."""


@dataclass(frozen=True)
class SeedsFact(Fact):
    """A metric over seeds: two variants pair by pair, or one and a gain that was claimed of single runs."""

    kind: ClassVar[str] = "seeds"
    metric: str
    higher_is_better: bool
    baseline: str
    means: list[float]
    """of the baseline, and of the candidate where there is one"""
    deviations: list[float]
    """standard deviations over seeds, in the same order"""
    n: int
    """pairs, or seeds where there is no candidate"""
    candidate: str | None = None
    difference: float | None = None
    """candidate minus baseline"""
    low: float | None = None
    high: float | None = None
    """95 % interval of the difference"""
    p: float | None = None
    seeds_needed: int | None = None
    claimed: float | None = None
    """a gain that was seen between two single runs"""
    noise: float | None = None
    """how far two single runs lie apart by their seeds alone, in 95 of 100 pairs"""
    chosen: int = 0
    """configurations that the candidate was picked from, as the best of them"""


@dataclass(frozen=True)
class StartsFact(Fact):
    """The same program started several times with the same seed."""

    kind: ClassVar[str] = "starts"
    starts: int
    steps: int
    """that all of them have"""
    seed: int | None = None
    """None: as the script itself sets it, or not"""
    first_step: int | None = None
    """at which a signal differs by even a bit; None if none does"""
    signal: str | None = None
    apart_step: int | None = None
    """from which on they differ beyond noise"""
    first_batch: bool = False
    """the first batch differs"""
    cause: str = UNSEEN
    operator: str | None = None
    """the first operation that differs"""
    backward: bool = False
    at_step: int | None = None
    """the step in which it runs; -1 before the first"""
    device: str | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None
    notes: list[str] = field(default_factory=list)
