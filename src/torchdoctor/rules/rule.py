"""Rule: the metadata of one diagnosis, and how a rule file writes its findings.

A rule is a module under rules/FAMILY/ with a docstring under the fixed headings, a `RULE`, and
`detect(run) -> Iterator[Finding]`. Nothing else has to know of it: `catalogue()` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType

from torchdoctor.facts import Fact
from torchdoctor.findings import Confirm, Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.run import Run
from torchdoctor.signals import Signal

FAMILIES: tuple[str, ...] = (
    "data",
    "architecture",
    "procedure",
    "numerics",
    "hyperparameters",
    "evaluation",
    "throughput",
    "reproducibility",
)
"""In the order in which causes are searched: most failures lie in the first, and tuning hides them."""

HEADINGS: tuple[str, ...] = (
    "What it means",
    "Why it happens",
    "How it is detected",
    "How to fix it",
    "Known false alarms",
    "References",
)

Need = Signal | type[Fact]


@dataclass(frozen=True)
class Rule:
    """What a rule is called, what it reads, and which other diagnoses follow from it."""

    code: str
    name: str
    family: str
    needs: tuple[Need | tuple[Need, ...], ...]
    """Without every one of these in the run the rule is not asked, and listed as not examined. Of a tuple inside it,
    one is enough."""
    explains: tuple[str, ...] = ()
    """Diagnoses that are consequences of this one where both stand."""
    fallback: bool = False
    """What is left to say when no cause is proved (overfitting, nonfinite-parameters ...): ranks last."""
    of_code: bool = False
    """It is about how code is written, whatever the data and settings. Where that code lies in an installed package,
    the user cannot change it, and the finding is an info."""

    def finding(
        self,
        *,
        severity: Severity,
        confidence: float,
        title: str,
        summary: str,
        fix: Fix,
        evidence: Iterable[Evidence],
        proof: Proof = Proof.STATISTICS,
        where: Iterable[Place] = (),
        first_step: int | None = None,
        last_step: int | None = None,
        symptoms: Iterable[str] = (),
        confirm: Confirm | None = None,
    ) -> Finding:
        return Finding(
            name=self.name,
            code=self.code,
            family=self.family,
            severity=severity,
            confidence=confidence,
            title=title,
            summary=summary,
            fix=fix,
            proof=proof,
            where=tuple(dict.fromkeys(where)),
            first_step=first_step,
            last_step=last_step,
            evidence=tuple(evidence),
            symptoms=tuple(symptoms),
            confirm=confirm,
            docs=f"torchdoctor explain {self.name}",
        )

    def missing(self, run: Run) -> tuple[str, ...]:
        """Names of what this rule needs and the run does not have."""
        kinds = {type(s.fact) for s in run.seen}
        alternatives = [need if isinstance(need, tuple) else (need,) for need in self.needs]
        return tuple(
            name_of(needs[0])
            for needs in alternatives
            if not any(run.has(need) if isinstance(need, Signal) else need in kinds for need in needs)
        )

    @property
    def reads(self) -> tuple[Need, ...]:
        """All that it may read of the run."""
        return tuple(part for need in self.needs for part in (need if isinstance(need, tuple) else (need,)))


def name_of(need: Need) -> str:
    return need.name if isinstance(need, Signal) else need.kind


@dataclass(frozen=True)
class LoadedRule:
    """A rule together with its code and its docs."""

    rule: Rule
    detect: Callable[[Run], Iterator[Finding | RuledOut]]
    title: str
    sections: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_module(cls, module: ModuleType) -> LoadedRule:
        title, sections = parse_docs(module.__doc__ or "")
        return cls(module.RULE, module.detect, title, sections)


def parse_docs(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a rule's docstring into its title line and its sections by heading."""
    lines = [line.removeprefix("    ") for line in docstring.strip().splitlines()]
    title = lines[0].strip() if lines else ""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines[1:]:
        if line.startswith("## "):
            current = sections.setdefault(line[3:].strip(), [])
        else:
            current.append(line)
    return title, {heading: "\n".join(body).strip() for heading, body in sections.items()}
