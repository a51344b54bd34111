"""How often the first and the second label of a case agree, and what agreement guessing would reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from field.programs import Case
from field.projects import COUNTED
from field.scoring import estimate
from field.second_labels import Label, draw_third, first_label, read_labels
from scores import table


@dataclass(frozen=True)
class Pair:
    """Both labels of one case."""

    label: str
    project: str
    half: str
    first: Label
    second: Label

    @property
    def is_agreement(self) -> bool:
        return self.first.agrees_with(self.second)


def pairs_of(cases: Sequence[Case], second: dict[str, Label]) -> list[Pair]:
    """Return the cases that have both labels."""
    return [
        Pair(case.label, case.project.name, case.project.half, first_label(case), second[case.label])
        for case in cases
        if case.label in second
    ]


def kappa(pairs: Sequence[Pair]) -> float:
    """Return the agreement beyond chance: 0 for second labels dealt out at random, 1 for full agreement.

    A label is a set of names, so chance is the mean agreement of every first label with every second one.
    """
    if not pairs:
        return float("nan")
    observed = sum(pair.is_agreement for pair in pairs) / len(pairs)
    by_chance = sum(a.first.agrees_with(b.second) for a in pairs for b in pairs) / len(pairs) ** 2
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 else float("nan")


def report(cases: Sequence[Case], halves: Sequence[str]) -> str:
    """Return the agreement on each half, and every disagreement on a case that may be read."""
    rows: list[list[str]] = []
    disagreements: list[Pair] = []
    for half in halves:
        drawn = draw_third([case for case in cases if case.project.half == half])
        pairs = pairs_of(drawn, read_labels(half))
        rows.append(_row(half, pairs, len(drawn)))
        disagreements += [pair for pair in pairs if not pair.is_agreement]
    parts = [
        "## The field: agreement of two labellers",
        "",
        "A random third of the cases was labelled a second time by somebody who did not know the first label",
        "(`python benchmarks/field/run.py --agreement`). Two labels of a fault agree if they share a diagnosis.",
        "A fault is shown with the change that makes it, a healthy program alone: labellers can tell them apart.",
        "Intervals hold 90% of the draws of a bootstrap over projects; a kappa of 0 is what chance gives.",
        "",
    ]
    head = ["half", "labelled twice", "healthy programs agree", "faults agree", "kappa of the faults"]
    return "\n".join([*parts, table(head, rows), *_listed(disagreements)])


def _row(half: str, pairs: Sequence[Pair], drawn: int) -> list[str]:
    healthy, faults = ([p for p in pairs if p.first.is_healthy == is_healthy] for is_healthy in (True, False))
    shares = (estimate(group, lambda pair: pair.is_agreement).percent() for group in (healthy, faults))
    return [half, f"{len(pairs)} of {drawn} drawn", *shares, f"{kappa(faults):.2f}" if faults else "-"]


def _listed(disagreements: Sequence[Pair]) -> list[str]:
    shown = [pair for pair in disagreements if pair.half != COUNTED]
    lines = [f"- {pair.label}: first {pair.first}, second {pair.second}{_remark(pair.second)}" for pair in shown]
    return ["", "### Disagreements of the learning half", "", *lines] if lines else []


def _remark(label: Label) -> str:
    return f" ({label.remark})" if label.remark else ""
