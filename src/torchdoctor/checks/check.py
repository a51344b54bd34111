"""What a pre-flight check is, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchdoctor.findings import Evidence, Fix, Place, Severity

if TYPE_CHECKING:
    from torchdoctor.checks.bench import Bench

MODEL, DATA, PROCEDURE, COST = "model", "data", "procedure", "cost"
PARTS = (MODEL, DATA, PROCEDURE, COST)
"""In the order in which they are checked and shown."""


@dataclass(frozen=True)
class Check:
    """A module of this package holds one of these as CHECK, and `perform(bench) -> Outcome`."""

    name: str
    """as in `--only NAME`, and for ever"""
    asks: str
    """what is looked at, in a few words that follow a tick: "every parameter is in the optimizer" """
    part: str
    order: int = 50
    """within its part"""
    quick: bool = True
    """takes no more than a second or so: part of --quick"""
    needs_loss: bool = True
    """it has to compute losses of batches; not every script's loop can be given any"""
    diagnoses: tuple[str, ...] = ()
    """names in the catalogue that a failure may carry"""


@dataclass(frozen=True)
class Outcome:
    """`passed` is None where it could not be examined; the text says why."""

    passed: bool | None
    text: str
    """one sentence, with the numbers in it"""
    severity: Severity = Severity.ERROR
    """of a failure"""
    diagnosis: str | None = None
    """its name in the catalogue"""
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    where: tuple[Place, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)
    """plain numbers, for --json and for other checks"""
    consequence_of: str | None = None
    """the diagnosis that another check has made already, and that this failure comes of"""
    proven: bool = True
    """by an experiment or by what is there; else it is the likeliest reason"""


def passed(text: str, **figures: Any) -> Outcome:
    return Outcome(True, text, figures=figures)


def skipped(why: str, **figures: Any) -> Outcome:
    return Outcome(None, why, figures=figures)


def failed(
    text: str,
    diagnosis: str | None,
    fix: Fix,
    *,
    severity: Severity = Severity.ERROR,
    evidence: tuple[str, ...] = (),
    where: tuple[Place, ...] = (),
    consequence_of: str | None = None,
    proven: bool = True,
    **figures: Any,
) -> Outcome:
    """`evidence`: a sentence each."""
    said = tuple(map(Evidence, evidence))
    return Outcome(False, text, severity, diagnosis, said, fix, where, figures, consequence_of, proven)


def said_before(bench: Bench, diagnosis: str, least: Severity = Severity.INFO) -> tuple[str, Outcome] | None:
    """The check that has made this diagnosis already, of that severity at least, and what it said."""
    made = ((name, outcome) for name, outcome in bench.outcomes.items() if outcome.passed is False)
    return next(((n, o) for n, o in made if o.diagnosis == diagnosis and o.severity.at_least(least)), None)


@dataclass(frozen=True)
class LoadedCheck:
    check: Check
    perform: Callable[[Bench], Outcome]
