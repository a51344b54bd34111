"""The zoo's twins for data, numerics, rates, evaluation and loaders, and the sound trainings, through the real tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import torchdoctor_command
from torchdoctor import zoo

DIAGNOSES = (
    "nan-in-inputs",
    "nan-in-targets",
    "unnormalized-inputs",
    "not-shuffled",
    "invalid-labels",
    "nonfinite-parameters",
    "learning-rate-too-high",
    "learning-rate-too-low",
    "clipping-too-tight",
    "overfitting",
    "input-bound",
)
CASES = [c for c in zoo.cases() if c.diagnosis in (*DIAGNOSES, zoo.NO_DIAGNOSIS)]


def diagnose(case: zoo.Case, folder: Path) -> list[dict[str, Any]]:
    report = folder / "verdict.json"
    done = torchdoctor_command(
        "run", "--out", str(folder / "runs"), "--json", str(report), "--quiet", str(case.path), cwd=folder, timeout=240
    )
    assert report.exists(), done.stderr
    return json.loads(report.read_text())["findings"]


def test_every_diagnosis_of_ours_has_twins() -> None:
    for diagnosis in DIAGNOSES:
        kinds = [(c.healthy, c.kind) for c in CASES if c.diagnosis == diagnosis]
        assert any(healthy for healthy, _ in kinds), diagnosis
        for healthy, kind in kinds:
            assert (not healthy, kind) in kinds, f"{diagnosis}/{kind} has no twin"


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if not c.healthy], ids=lambda c: c.name)
def test_the_fault_comes_first(case: zoo.Case, tmp_path: Path) -> None:
    found = diagnose(case, tmp_path)
    assert found, "nothing was found"
    assert found[0]["name"] == case.truth, [f["title"] for f in found]
    assert found[0]["severity"] in ("error", "warning")


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c.healthy], ids=lambda c: c.name)
def test_a_sound_training_stays_quiet(case: zoo.Case, tmp_path: Path) -> None:
    found = diagnose(case, tmp_path)
    assert [f["title"] for f in found if f["severity"] != "info"] == []
