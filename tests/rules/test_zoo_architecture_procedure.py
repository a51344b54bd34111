"""The zoo's twins for architecture and procedure, through the real tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import torchdoctor_command
from torchdoctor import zoo
from torchdoctor.rules import catalogue

CASES = [
    case
    for case in zoo.cases()
    if any(r.rule.name == case.diagnosis and r.rule.family in ("architecture", "procedure") for r in catalogue())
]


def diagnose(case: zoo.Case, folder: Path) -> list[dict[str, Any]]:
    report = folder / "verdict.json"
    done = torchdoctor_command(
        "run", "--out", str(folder / "runs"), "--json", str(report), "--quiet", str(case.path), cwd=folder, timeout=240
    )
    assert report.exists(), done.stderr
    return json.loads(report.read_text())["findings"]


def test_every_rule_has_twins() -> None:
    for loaded in catalogue():
        if loaded.rule.family not in ("architecture", "procedure"):
            continue
        kinds = {(c.healthy, c.kind) for c in CASES if c.diagnosis == loaded.rule.name}
        assert kinds, loaded.rule.name
        for healthy, kind in kinds:
            assert (not healthy, kind) in kinds, f"{loaded.rule.name}/{kind} has no twin"


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if not c.healthy], ids=lambda c: c.name)
def test_the_fault_comes_first(case: zoo.Case, tmp_path: Path) -> None:
    found = diagnose(case, tmp_path)
    assert found, "nothing was found"
    assert found[0]["name"] == case.truth, [f["title"] for f in found]
    assert found[0]["severity"] in ("error", "warning")
    assert all(f["consequence_of"] or f["severity"] == "info" for f in found[1:]), [f["title"] for f in found]


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c.healthy], ids=lambda c: c.name)
def test_a_sound_training_stays_quiet(case: zoo.Case, tmp_path: Path) -> None:
    found = diagnose(case, tmp_path)
    assert [f["title"] for f in found if f["severity"] != "info"] == []
