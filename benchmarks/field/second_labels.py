"""Second labels: a random third of a half, labelled again by somebody who does not see the first label.

The labeller knows a case by its number alone. Labels are written to second_labels.json in the folder of the half.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from field.blind import describe
from field.programs import Case, read_cases
from field.projects import HERE
from torchdoctor.rules import catalogue

SHARE = 3
"""One case in so many is labelled a second time."""
HEALTHY, NO_NAME = "healthy", "none"
NAMES_WITHOUT_RULE = frozenset(
    (
        *("padding-in-loss", "unsupervised-samples", "signal-lost-in-depth", "samples-mixed"),
        *("ranks-out-of-sync", "inplace-breaks-backward", "shared-by-mistake", "labels-shifted-twice"),
    )
)
"""Diagnoses of CATALOG.md that torchdoctor cannot make yet."""


class AnswerError(Exception):
    """An answer names an unknown case or an unknown diagnosis."""


@dataclass(frozen=True)
class Label:
    """What is wrong with a program."""

    is_healthy: bool
    names: tuple[str, ...] = ()
    """accepted diagnoses; empty for a healthy program, and where the catalogue has no name for the fault"""
    remark: str = ""

    def agrees_with(self, other: Label) -> bool:
        """Return whether both say healthy, share a diagnosis, or both find a fault without a name."""
        if self.is_healthy or other.is_healthy:
            return self.is_healthy and other.is_healthy
        return bool(set(self.names) & set(other.names)) or not (self.names or other.names)

    def __str__(self) -> str:
        return HEALTHY if self.is_healthy else " or ".join(self.names) or "no name"


def first_label(case: Case) -> Label:
    """Return the label that the case was written with."""
    return Label(is_healthy=True) if case.fault is None else Label(False, case.fault.accepted)


def draw_third(cases: Sequence[Case]) -> list[Case]:
    """Return a third of the faults and a third of the healthy programs, in the order of their numbers.

    The hash of its label decides on each case, so the draw stays nearly the same when cases are added.
    """
    drawn = []
    for is_healthy in (True, False):
        group = sorted((case for case in cases if (case.fault is None) == is_healthy), key=_rank)
        drawn += group[: -(-len(group) // SHARE)]
    return sorted(drawn, key=_rank)


def _rank(case: Case) -> str:
    return hashlib.sha256(case.label.encode()).hexdigest()


def parse_answer(words: Sequence[str], count: int) -> tuple[int, Label]:
    """Read a case's number, the diagnoses separated by commas (or `healthy` or `none`), and a remark."""
    if len(words) < 2 or not words[0].isdigit() or not 1 <= int(words[0]) <= count:
        raise AnswerError(f"{' '.join(words)!r} is not a number from 1 to {count} and an answer")
    number, answer, remark = int(words[0]), words[1], " ".join(words[2:])
    if answer in (HEALTHY, NO_NAME):
        return number, Label(answer == HEALTHY, remark=remark)
    names = tuple(answer.split(","))
    known = NAMES_WITHOUT_RULE | {loaded.rule.name for loaded in catalogue()}
    if unknown := [name for name in names if name not in known]:
        raise AnswerError(f"the catalogue has no {', '.join(unknown)} (case {number})")
    return number, Label(False, names, remark)


def session(half: str, numbers: range, answers: Sequence[Sequence[str]]) -> int:
    """Store answers, then show the cases with these numbers. Return the exit status."""
    cases = draw_third(read_cases(half))
    try:
        store(cases, answers, half)
    except AnswerError as error:
        print(error, file=sys.stderr)
        return 1
    for number, case in enumerate(cases, 1):
        if number in numbers:
            print(describe(case, number), end="\n\n")
    known = read_labels(half)
    print(f"{sum(case.label in known for case in cases)} of {len(cases)} cases have a second label")
    return 0


def store(cases: Sequence[Case], answers: Sequence[Sequence[str]], half: str) -> None:
    """Write answers about drawn cases. Nothing is written where one of the answers cannot be read."""
    if not answers:
        return
    parsed = [parse_answer(words, len(cases)) for words in answers]
    labels = read_labels(half)
    labels.update({cases[number - 1].label: label for number, label in parsed})
    path = _path(half)
    path.write_text(json.dumps({key: asdict(labels[key]) for key in sorted(labels)}, indent=1) + "\n")


def read_labels(half: str) -> dict[str, Label]:
    """Return the second labels of a half, by the label of the case."""
    path = _path(half)
    known = json.loads(path.read_text()) if path.exists() else {}
    return {key: Label(data["is_healthy"], tuple(data["names"]), data["remark"]) for key, data in known.items()}


def _path(half: str) -> Path:
    return HERE / half / "second_labels.json"
