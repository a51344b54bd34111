from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from recording import STEPS, record
from torchdoctor.cli import group
from torchdoctor.facts import OptimizerFact

LOSS = np.linspace(2.3, 0.5, STEPS)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    parted = LOSS.copy()
    parted[30:] += 2.0
    for name, loss, lr in (("good", LOSS, 0.1), ("bad", parted, 0.2)):
        optimizer = OptimizerFact("0", "SGD", [{"lr": lr}], 2)
        record(tmp_path / name, loss=loss, facts=(optimizer,), git={"commit": name, "diff": ""})
    return tmp_path


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["diff", *arguments], env={"COLUMNS": "100"})


def test_what_differs_and_from_which_step_on(pair: Path) -> None:
    result = diff("good", "bad")
    assert result.exit_code == 0
    for words in ("optimizer lr", "git commit", "loss.train", "30", "2 things changed", "environment-differs (R003)"):
        assert words in result.output


def test_equal_runs(pair: Path) -> None:
    result = diff("good", "good")
    assert result.exit_code == 0
    assert "nothing differs" in result.output
    assert "R003" not in result.output


def test_json(pair: Path) -> None:
    result = diff("good", "bad", "--json", "diff.json", "--quiet")
    assert result.output == ""
    data = json.loads((pair / "diff.json").read_text())
    assert data["changes"] == ["optimizer lr", "code"]
    assert [f["name"] for f in data["findings"]] == ["environment-differs"]
    assert {s["signal"]: s["apart_step"] for s in data["signals"]}["loss.train"] == 30


def test_a_missing_run_is_one_sentence(pair: Path) -> None:
    result = diff("good", "elsewhere")
    assert result.exit_code == 2
    assert "nothing at elsewhere" in result.output


def test_runs_by_their_names(pair: Path) -> None:
    (pair / "torchdoctor-runs").mkdir()
    for name in ("good", "bad"):
        (pair / name).rename(pair / "torchdoctor-runs" / name)
    assert "optimizer lr" in diff("good", "bad").output
    assert CliRunner().invoke(group, ["diagnose", "good", "--quiet"]).exit_code == 0


def test_findings_of_the_bad_run_alone(pair: Path) -> None:
    record(pair / "uncleared", cleared=0.0)
    output = diff("good", "uncleared").output
    assert "Found in bad and not in good" in output and "missing-zero-grad (T004)" in output
    assert "Found in bad" not in diff("uncleared", "uncleared").output
