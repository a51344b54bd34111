"""Two runs that are compared differ in more than what was meant to be compared.

## What it means
Beside the arguments that were changed on purpose, the two runs differ in code, package versions, hardware, data, seeds
or batch size. Any of these can move a result by more than the change under test, so the comparison proves little.

## Why it happens
The code was edited between the runs or holds changes that were never committed. A package was updated, another machine
or device was used, the data set grew, a smaller card forced a smaller batch, or the seed was not fixed.

## How it is detected
`torchdoctor diff GOOD BAD` puts both runs' records beside each other: git commit and uncommitted changes, versions of
Python and packages, hardware, seeds, loaders, the first batch, hyperparameters. It is a warning if the runs also part
beyond their noise, and worth knowing if they do not. One run alone has nothing to be compared with, so this is never
examined there.

## How to fix it
Change one thing at a time: go back to the first run's commit, packages and machine, keep seed and batch size, and
repeat the second run. The diff lists what to put back; a run's `run.json` holds the commit, the uncommitted changes and
the versions.

## Known false alarms
Changes that cannot matter, such as an edited comment or a package that the training never uses. Runs that were meant to
compare two machines or two versions.

## References
Bouthillier et al., "Accounting for Variance in Machine Learning Benchmarks", 2021. PyTorch documentation,
"Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchdoctor.facts import ComparisonFact
from torchdoctor.findings import Evidence, Finding, Fix, Proof, Severity
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(code="R003", name="environment-differs", family="reproducibility", needs=(ComparisonFact,))

ENVIRONMENT = ("code", "data", "packages", "hardware", "environment", "seeds")
"""Parts of the record that nobody sets in order to compare them; arguments and configuration are."""
BATCH_SIZE = "batch size"
"""Set by hand, and yet mostly by what fits into memory: it changes noise and the number of updates."""
NUMERIC = ("torch", "numpy", "triton", "nvidia", "cuda", "cudnn", "lightning", "transformers", "accelerate", "python")
"""Packages whose version is known to change results; others seldom do."""
CONFIDENT, DOUBTFUL = 0.9, 0.6
SHOWN = 8


def detect(run: Run) -> Iterator[Finding]:
    comparison = run.last_fact(ComparisonFact)
    if comparison is None:
        return
    unmeant = [d for d in comparison.differences if d["part"] in ENVIRONMENT and not d.get("set_by")]
    sizes = [d for d in comparison.differences if BATCH_SIZE in d["name"]]
    differing = [d for d in comparison.differences if d in unmeant or d in sizes]
    if not differing:
        return
    parts = list(dict.fromkeys(BATCH_SIZE if BATCH_SIZE in d["name"] else str(d["part"]) for d in differing))
    apart = comparison.apart_step is not None
    effect = (
        f"they part at step {comparison.apart_step} ({comparison.apart_signal})"
        if apart
        else "they stay within each other's noise"
    )
    yield RULE.finding(
        severity=Severity.WARNING if apart else Severity.INFO,
        confidence=CONFIDENT if any(map(_matters, differing)) else DOUBTFUL,
        proof=Proof.STRUCTURE,
        title=f"the runs differ in {' and '.join(parts)}",
        summary=f"Beside what was changed on purpose the runs differ in {', '.join(parts)}, and {effect}: "
        "what is compared is not only what was meant to be.",
        first_step=comparison.apart_step,
        evidence=[Evidence(_words(d)) for d in differing[:SHOWN]],
        fix=Fix(f"Repeat the run with {', '.join(parts)} as in {comparison.baseline}, and change one thing at a time."),
        symptoms=("runs-differ",),
    )


def _matters(difference: dict[str, Any]) -> bool:
    return difference["part"] != "packages" or str(difference["name"]).lower().startswith(NUMERIC)


def _words(difference: dict[str, Any]) -> str:
    good, bad = ("absent" if difference[k] is None else difference[k] for k in ("good", "bad"))
    return f"{difference['part']}: {difference['name']} was {good}, now {bad}"
