"""Which operation a NaN or Inf came from: by the graph of the loss that broke, or by what its gradient must have given.

Forward: the loss is not finite, and in its graph the first bad result of good numbers is known. Backward: the loss was
finite, then gradients or weights were not, and an operation had been seen at a value where its gradient is infinite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchdoctor.facts import BirthFact, NonfiniteFact, OperationFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import births
from torchdoctor.rules.nonfinite import chain, counted, has_diverged, loss_broke_at
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

CONSEQUENCES = (
    *("nonfinite-parameters", "exploding-gradients", "vanishing-gradients", "learning-rate-too-high"),
    *("learning-rate-too-low", "no-parameter-update", "loss-scale-collapse", "bad-initialization-scale"),
    *("dead-relu", "saturated-activations", "learning-rate-oscillation", "weight-norm-growth", "underfitting"),
    *("majority-class-collapse", "representation-collapse", "stale-evaluation", "plateau-or-saddle"),
    "nan-in-inputs",  # where the operation stands between the loader and the model
)
"""What follows where a NaN has gone through the network."""

SURE, LIKELY = 0.97, 0.85
NEAR_BREAK = 1
"""Steps between a bad gradient and the loss that shows it."""


@dataclass(frozen=True)
class Birth:
    """The operation, when, and on which way."""

    step: int
    operator: str
    """as the user wrote it"""
    backward: bool
    checked: bool
    """seen as it happened, in the step that was run again"""
    fact: OperationFact | BirthFact
    value: float | None
    """what went in, where it broke"""

    @property
    def source_line(self) -> str | None:
        """The script's line that made it, where the record holds it."""
        return self.fact.code if isinstance(self.fact, BirthFact) else None

    @property
    def at(self) -> str:
        given = "in" if self.checked else "fed by"
        layer = f", {given} {self.fact.module}" if self.fact.module else ""
        line = f" at line {self.fact.line}" if self.fact.line else ""
        return f"{self.operator}{line}{layer}"


def find_birth(run: Run, trouble: str) -> Birth | None:
    """The birth of the first NaN or Inf, if it lies in an operation of that kind."""
    seen = births.first_birth(run)
    if seen is not None:
        step, found = seen
        if births.trouble_of(found) != trouble:
            return None
        value = next((v for v in reversed(found.at) if v is not None), None)
        return Birth(step, births.called(found), found.backward, True, found, value)
    broke = loss_broke_at(run)
    facts = run.facts_at(OperationFact)
    born = [(step, f) for step, f in facts if f.born]
    if born:
        step, fact = min(born, key=lambda item: item[0])
        return _from_graph(step, fact, backward=False) if fact.trouble == trouble else None
    bad = _first_inside(run)
    if bad is None or _batch_was_bad(run):
        return None
    over = [(step, f) for step, f in facts if f.over and f.trouble == trouble and step <= bad]
    if not over:
        return None
    _, fact = over[-1]
    step = max(bad - NEAR_BREAK, 0) if broke is not None and bad >= broke else bad
    return _from_graph(step, fact, backward=True)


def _from_graph(step: int, fact: OperationFact, backward: bool) -> Birth:
    return Birth(step, fact.operator.lower(), backward, False, fact, fact.low)


def _first_inside(run: Run) -> int | None:
    """The first step at which a gradient or weight was seen to be NaN."""
    steps = [step for step, f in run.facts_at(NonfiniteFact) if f.role in ("gradient", "weight")]
    return min(steps, default=None)


def _batch_was_bad(run: Run) -> bool:
    return any(f.role in ("input", "target") for f in run.facts(NonfiniteFact))


def tell(
    run: Run,
    rule: Rule,
    birth: Birth,
    *,
    what: str,
    edge: str,
    fix: Fix,
    unit: str = "smallest value that went in",
    more: Sequence[Evidence] = (),
) -> Iterator[Finding]:
    """The finding: `what` happens, at which `edge`, and how to write it instead; `more` stands behind the birth."""
    fact = birth.fact
    diverged = has_diverged(run, birth.step)
    way = "its gradient is not finite there" if birth.backward else "the loss is not finite from that step on"
    evidence = [
        Evidence(f"step {birth.step}: {fact.count} of {fact.total} values {edge}", "operation", float(fact.count), 0.0),
    ]
    if birth.value is not None and not birth.checked:
        evidence.append(Evidence(f"{unit}: {birth.value:.3g} ({fact.dtype})", "operation", birth.value))
    if fact.samples and not birth.checked:
        evidence.append(Evidence(f"in {counted('sample', tuple(fact.samples))} of that batch"))
    if birth.backward:
        evidence.append(Evidence("the loss itself was finite: the NaN was born in the backward pass"))
    if diverged:
        evidence.append(Evidence("the loss had grown far above its start before: look for what made it diverge, too"))
    told = chain(run)
    evidence += [*told[:1], *more, *told[1:]]
    proved = birth.checked or not birth.backward
    yield rule.finding(
        severity=Severity.WARNING if diverged else Severity.ERROR,
        confidence=0.6 if diverged else SURE if proved else LIKELY,
        title=f"{what} at step {birth.step} ({birth.at})",
        summary=f"In {birth.operator}, {fact.count} of {fact.total} values {edge}, and {way}. "
        "Every gradient and weight that it reaches follows.",
        fix=fix,
        evidence=evidence,
        proof=Proof.STRUCTURE if proved and not diverged else Proof.STATISTICS,
        where=known(Place(module=fact.module, file=fact.file, line=fact.line)),
        first_step=birth.step,
        symptoms=("nan-at-first-step",) if birth.step <= 1 else ("nan-later",),
    )
