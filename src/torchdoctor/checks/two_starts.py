"""Two starts of the script, as processes, are the same training to the bit; a script that sets no seed is told so."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import torch

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.repeats.starting import Compared, compare
from torchdoctor.facts import StartsFact
from torchdoctor.facts.repeats import CONTROL, OUTSIDE, RANDOM
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.rules.reproducibility import unseeded_randomness

CHECK = Check(
    name="two-starts",
    asks="two starts of the script give the same bits",
    part=PROCEDURE,
    order=85,
    quick=False,
    needs_loss=False,
    diagnoses=("unseeded-randomness", "nondeterministic-operations"),
)
FROM_PYTHON = (OUTSIDE, CONTROL)
UPDATES = 8
SECONDS, MOST_SECONDS = 5.0, 25.0
"""A start ends at the first update that comes so long after the first; after so long in all it is given up."""
SETUP = 15.0
"""Seconds to the first update: a start that takes longer is not made again, let alone four times."""


def perform(bench: Bench) -> Outcome:
    if bench.target is None:
        return skipped("there is no script that could be started again")
    again = f"torchdoctor seeds --same 2 {shlex.join(bench.target.words)}"
    if bench.setup is not None and bench.setup > SETUP:
        return skipped(f"the script takes {bench.setup:.0f} s to its first update; without a limit: {again}")
    earlier = bench.outcomes.get("repeated-start")
    if earlier is not None and earlier.passed is False:
        return skipped("the steps do not repeat themselves in one process, so they would not in two")
    limits: dict[str, Any] = {"updates": UPDATES, "seconds": SECONDS, "timeout": MOST_SECONDS, "jobs": _jobs()}
    made = compare(bench.target, traced=bench.seeded is False, **limits)
    if made.why_not is not None:
        return skipped(f"{made.why_not}; without a limit: {again}")
    if made.fact.first_step is None:
        steps = made.fact.steps
        return passed(f"{steps} update{'s' * (steps != 1)} of two processes are equal bit for bit", steps=steps)
    return _of_difference(bench, made)


def _jobs() -> int:
    """At a time; on a device one after the other, for its memory."""
    return 1 if torch.cuda.is_initialized() else 2


def _of_difference(bench: Bench, made: Compared) -> Outcome:
    fact, (one, other) = made.fact, made.seeds or ([], [])
    moved = next((pair for pair in zip(one, other, strict=False) if pair[0]["given"] != pair[1]["given"]), None)
    at = f"{'in' if (fact.at_step or 0) < 0 else 'at'} {unseeded_randomness.when(fact)}"
    what = made.findings[0]["title"].partition(": ")[2] if made.findings else f"{fact.signal} differs"
    where = (Place(file=fact.file, line=fact.line),) if fact.file else ()
    if not one or not other:
        text = f"the script sets no seed, so no start can be repeated: two part {at}, where {what}{_place(fact)}"
        return _note(text, _seed(bench), where, fact)
    if moved is not None:
        first, second = moved
        place = Place(file=first["file"], line=first["line"])
        text = f"{first['whose']} is seeded with another number at every start"
        text += f" ({first['given']} and {second['given']}, {_name(first)}), so no start can be repeated"
        return _note(text, Fix("Choose the seed, and write it down.", unseeded_randomness.SEED_ALL), (place,), fact)
    finding = made.findings[0] if made.findings else None
    seeded = ", ".join(dict.fromkeys(call["whose"] for call in one))
    text = f"the script seeds {seeded} ({_name(one[0])}), and two starts still part {at}: {what}{_place(fact)}"
    return failed(
        text + _too_late(fact, one),
        finding["name"] if finding is not None else unseeded_randomness.RULE.name,
        _fix(finding["fix"], fact) if finding is not None else _seed(bench),
        severity=Severity(finding["severity"]) if finding is not None else Severity.WARNING,
        evidence=tuple(e["text"] for e in finding["evidence"]) if finding is not None else (),
        where=where,
        step=fact.first_step,
    )


def _fix(fix: dict[str, Any], fact: StartsFact) -> Fix:
    more = " Sets of strings are in another order in every process: sort them." if fact.cause in FROM_PYTHON else ""
    return Fix(f"{fix['text']}{more}", fix["code"])


def _note(text: str, fix: Fix, where: tuple[Place, ...], fact: StartsFact) -> Outcome:
    """Healthy scripts do so, too; it is worth knowing."""
    name = unseeded_randomness.RULE.name
    return failed(text, name, fix, severity=Severity.INFO, where=where, step=fact.first_step)


def _seed(bench: Bench) -> Fix:
    """By the script's own option, where it has one."""
    from torchdoctor.experiments.arguments import read_options
    from torchdoctor.experiments.seed_passing import NAMES

    option = read_options(bench.target).find(*NAMES) if bench.target is not None else None
    if option is not None:
        return Fix(f"Give it a seed; it has an option for that ({option}).", " ".join(option.words("0")))
    return Fix("Seed all sources of chance before anything is built.", unseeded_randomness.SEED_ALL)


def _too_late(fact: StartsFact, calls: list[dict[str, Any]]) -> str:
    """A draw that comes before the seed in the same file."""
    later = [c for c in calls if c["file"] == fact.file and c["line"] > (fact.line or 0)]
    if fact.cause != RANDOM or (fact.at_step or 0) >= 0 or len(later) < len(calls):
        return ""
    return f"; the seed is set after that, in line {later[0]['line']}"


def _place(fact: StartsFact) -> str:
    return f" ({Path(fact.file).name}:{fact.line})" if fact.file else ""


def _name(call: dict[str, Any]) -> str:
    return f"{Path(call['file']).name}:{call['line']}"
