"""Numbers that grow beyond what float32 holds within one pass: an operation on its own result, again and again."""

from __future__ import annotations

from torchdoctor.facts import BirthFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import births
from torchdoctor.rules.nonfinite import chain, has_diverged
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

REPEATING = ("cumprod", "prod", "matrix_power", "linalg_matrix_power", "pow")
"""Operations that multiply many times by themselves."""


def within_one_pass(run: Run) -> tuple[int, BirthFact] | None:
    """The step and the operation; None where training had diverged before, or the operation ran but once."""
    born = births.first_birth(run)
    if born is None or births.trouble_of(born[1]) != births.OVERFLOW or has_diverged(run, born[0]):
        return None
    fact = born[1]
    again = sum(link == fact.chain[0] for link in fact.chain) > 1 if fact.chain else False
    return born if again or births.plain(fact.operator) in REPEATING else None


def finding(run: Run, rule: Rule, step: int, fact: BirthFact) -> Finding:
    name = births.forward_name(fact)
    way = "gradients" if fact.backward else "values"
    at = f" at line {fact.line}" if fact.line else ""
    return rule.finding(
        severity=Severity.ERROR,
        confidence=0.9,
        title=f"{way} grew beyond float32 at step {step} ({name}{at})",
        summary=f"{name} is applied to its own result over and over. On this batch each time made the {way} larger, "
        "until they were infinite; the losses before it were of usual size, so no learning rate led there.",
        where=known(Place(module=fact.module, file=fact.file, line=fact.line)),
        first_step=step,
        evidence=[Evidence(f"step {step}: {fact.count} of {fact.total} values are infinite", "birth"), *chain(run)],
        fix=Fix(
            "Keep the size of what is carried on: normalise or bound it at each repetition, compute products as sums "
            "of logarithms, and look at the samples of that batch.",
            "state = state / state.norm(dim=-1, keepdim=True).clamp_min(1.0)",
        ),
        proof=Proof.STRUCTURE,
        symptoms=("nan-at-first-step",) if step <= 1 else ("nan-later",),
    )
