"""What a diagnosis says: findings, their evidence, place and fix.

The field names are those of the JSON that `--json` writes, and are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

SCHEMA = 1


class Severity(str, Enum):
    """error: broken or wrong. warning: harmed, and we would bet on it. info: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        return ("error", "warning", "info").index(self.value)

    def at_least(self, other: Severity) -> bool:
        return self.rank <= other.rank


class Proof(str, Enum):
    """How a finding is known: by the state of the program, or by statistics over it."""

    STRUCTURE = "structure"
    STATISTICS = "statistics"


@dataclass(frozen=True)
class Evidence:
    """One observation: a sentence with its number in it, and the number apart."""

    text: str
    signal: str | None = None
    value: float | None = None
    threshold: float | None = None
    spark: tuple[float, ...] = ()
    """Up to about 40 values that the terminal may draw beside the text."""


@dataclass(frozen=True)
class Place:
    """Where to look: any of these may be unknown."""

    module: str | None = None
    parameter: str | None = None
    file: str | None = None
    line: int | None = None


EXAMPLE_LEAD = "For example, with your own names:"


@dataclass(frozen=True)
class Fix:
    """What to change, and how."""

    text: str
    code: str | None = None
    """runs in the script as it stands, at the place that the finding names"""
    example: str | None = None
    """shows the change in usual names, where it could not be written in the script's own"""

    @property
    def listing(self) -> str | None:
        """The code to show: what runs in the script or, failing that, the example."""
        return self.code or self.example

    @property
    def lead(self) -> str:
        """What stands above the listing; nothing above code that runs as it stands."""
        return EXAMPLE_LEAD if self.example and not self.code else ""


@dataclass(frozen=True)
class Confirm:
    """The cheapest test that would prove the cause, and a command that exists and runs it."""

    text: str
    command: str | None = None


@dataclass(frozen=True)
class RuledOut:
    """A cause that a person would suspect, and what in the record speaks against it."""

    name: str
    text: str
    signal: str | None = None
    value: float | None = None


@dataclass(frozen=True)
class Finding:
    """One diagnosis of one run."""

    name: str
    code: str
    family: str
    severity: Severity
    confidence: float
    title: str
    summary: str
    fix: Fix
    proof: Proof = Proof.STATISTICS
    where: tuple[Place, ...] = ()
    first_step: int | None = None
    last_step: int | None = None
    evidence: tuple[Evidence, ...] = ()
    consequence_of: str | None = None
    symptoms: tuple[str, ...] = ()
    confirm: Confirm | None = None
    docs: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract (without what only ranks or draws)."""
        data = asdict(self)
        data["severity"] = self.severity.value
        data["confidence"] = round(self.confidence, 3)
        del data["proof"]
        for evidence in data["evidence"]:
            del evidence["spark"]
        data["where"] = list(data["where"])
        data["evidence"] = list(data["evidence"])
        data["symptoms"] = list(data["symptoms"])
        return data


RULE_FAILED = "rule failed"
"""Begins the entry of `NotExamined.needs` for a rule that raised."""


@dataclass(frozen=True)
class NotExamined:
    """A rule that could not look, and the signals it lacked."""

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Silenced:
    """A finding that a comment in the source allows, and where that comment stands."""

    name: str
    code: str
    title: str
    file: str
    line: int


@dataclass(frozen=True)
class Ending:
    """How a run ended and whether its loss was understood: what a verdict without a cause is worth."""

    fault: str = ""
    """what is bad about the end, as "the training loss is still 81% of a constant guess"; empty where nothing is"""
    unseen: tuple[str, ...] = ()
    """what of the loss was not understood, so that many diagnoses could not be made"""
    symptom: str = ""
    """the symptom whose causes a reader may test for, as torchdoctor explain knows it"""
    validation: str = ""
    """the last loss and accuracy of validation, as far as they are known"""

    @property
    def is_sound(self) -> bool:
        return not self.fault and not self.unseen


@dataclass(frozen=True)
class Verdict:
    """All that was concluded from one run, most important first."""

    run: Mapping[str, Any]
    findings: tuple[Finding, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    not_examined: tuple[NotExamined, ...] = ()
    examined: tuple[str, ...] = ()
    checks: tuple[Mapping[str, Any], ...] = field(default=())
    silenced: tuple[Silenced, ...] = ()
    families: Mapping[str, str] = field(default_factory=dict)
    """The family of every rule that was asked or could not be, by its name; in the order of search."""
    ending: Ending = Ending()

    @property
    def worst(self) -> Severity | None:
        return min((f.severity for f in self.findings), key=lambda s: s.rank, default=None)

    @property
    def explanation(self) -> Mapping[str, Any] | None:
        """The error that ended the script in plain words; None where there are none."""
        error = self.run.get("exception")
        told = error.get("explanation") if isinstance(error, Mapping) else None
        return told if isinstance(told, Mapping) else None

    @property
    def healthy(self) -> bool:
        """No error and no warning."""
        return self.worst in (None, Severity.INFO)

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON contract; `silenced` comes along where a comment silenced anything."""
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "run": dict(self.run),
            "findings": [f.to_dict() for f in self.findings],
            "ruled_out": [asdict(r) for r in self.ruled_out],
            "checks": [dict(c) for c in self.checks],
            "not_examined": [{"name": n.name, "needs": list(n.needs)} for n in self.not_examined],
        }
        data["ending"] = asdict(self.ending)
        if self.silenced:
            data["silenced"] = [asdict(s) for s in self.silenced]
        return data
