"""The zoo through the real tool: the planted fault comes first, and sound trainings stay quiet.

One sick kind of each diagnosis and every fifteenth sound training run by default; `pytest -m sweep` runs the rest, and
`make bench-diagnosis` all of them over seeds and grades.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from processes import preloaded_torchdoctor
from torchdoctor import zoo
from torchdoctor.rules import catalogue

CASES = zoo.cases()
COMPARES_RUNS = {
    *("environment-differs", "within-seed-noise", "unseeded-randomness", "nondeterministic-operations"),
    *("training-serving-skew", "plateau-or-saddle"),
}
"""Need several runs, samples from use or an experiment, so they have no twins; `torchdoctor diff`, `torchdoctor seeds`,
`torchdoctor skew` and `torchdoctor.sharpness` are tested on their own."""
EVERY = 15
UNSTEADY = {"memory-growth"}
"""The memory of a machine that does other things, too, hides it at times."""
INFO_ONLY = {"clipping-by-value"}
"""Never more than an info, by the catalogue."""


def parameters(cases: Iterable[zoo.Case], default: Callable[[int, bool], bool]) -> list[Any]:
    """Those that `default` picks, by number and by being the first of a diagnosis, as they are; the rest as a sweep."""
    chosen = []
    seen: set[str] = set()
    for number, case in enumerate(sorted(cases, key=lambda c: c.name)):
        wanted = default(number, case.diagnosis not in seen) and case.diagnosis not in UNSTEADY
        marks = [] if wanted else [pytest.mark.sweep]
        seen.add(case.diagnosis)
        if case.needs_cuda:
            marks.append(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))
        chosen.append(pytest.param(case, id=case.name, marks=marks))
    return chosen


def diagnose(case: zoo.Case, folder: Path) -> list[dict[str, Any]]:
    report = folder / "verdict.json"
    done = preloaded_torchdoctor(
        "run", "--out", str(folder / "runs"), "--json", str(report), "--quiet", str(case.path), cwd=folder, timeout=240
    )
    assert report.exists(), done.stderr
    return json.loads(report.read_text())["findings"]


def test_every_rule_has_twins() -> None:
    for loaded in catalogue():
        if loaded.rule.name in COMPARES_RUNS:
            continue
        kinds = {(c.healthy, c.kind) for c in CASES if c.diagnosis == loaded.rule.name}
        assert kinds, loaded.rule.name
        for healthy, kind in kinds:
            assert (not healthy, kind) in kinds, f"{loaded.rule.name}/{kind} has no twin"


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters((c for c in CASES if not c.healthy), lambda _, first: first))
def test_the_fault_comes_first(case: zoo.Case, tmp_path: Path) -> None:
    found = diagnose(case, tmp_path)
    assert found, "nothing was found"
    assert found[0]["name"] == case.truth, [f["title"] for f in found]
    assert found[0]["severity"] in ("error", "warning") or case.truth in INFO_ONLY


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters((c for c in CASES if c.healthy), lambda number, _: number % EVERY == 0))
def test_a_sound_training_stays_quiet(case: zoo.Case, tmp_path: Path) -> None:
    found = diagnose(case, tmp_path)
    assert [f["title"] for f in found if f["severity"] != "info"] == []
