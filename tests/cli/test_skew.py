from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from processes import torchdoctor_command
from recording import record
from torchdoctor.cli import group
from torchdoctor.facts import InputsFact

COLUMNS = 5


def rows(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, COLUMNS)) * 3 + 10


def looks() -> tuple[InputsFact, ...]:
    found = []
    for seed in range(20):
        batch = rows(seed, 32).astype(np.float32)
        whole = [float(f(batch)) for f in (np.mean, np.std, np.min, np.max)]
        by_feature = [f(batch, axis=0).tolist() for f in (np.mean, np.std, np.min, np.max)]
        marks = [32 * seed + i for i in range(32)]
        found.append(InputsFact("train", "input", [32, COLUMNS], "float32", *whole, 0, 1, *by_feature, marks))
    return tuple(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "torchdoctor-runs" / "good", facts=looks())
    record(tmp_path / "bare")
    np.save("same.npy", rows(99, 200))
    np.save("raw.npy", rows(99, 200) * 255)
    moved = rows(99, 200)
    moved[:, 3] += 5
    np.savetxt("moved.csv", moved, delimiter=",", header="a,b,c,d,e", comments="")
    return tmp_path


def skew(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["skew", *arguments], env={"COLUMNS": "100"})


def test_samples_that_fit(folder: Path) -> None:
    result = skew("good", "same.npy", "--fail-on", "info")
    assert result.exit_code == 0
    assert result.output.startswith("No skew found: none of 5 columns")


def test_samples_that_do_not(folder: Path) -> None:
    result = skew("torchdoctor-runs/good", "raw.npy")
    assert result.exit_code == 0
    assert "ERROR  training-serving-skew (D016)" in result.output
    assert "255 times as large as in training" in result.output


@pytest.mark.parametrize(("severity", "status"), [("error", 0), ("warning", 3), ("info", 3)])
def test_fail_on(folder: Path, severity: str, status: int) -> None:
    assert skew("good", "moved.csv", "--fail-on", severity, "--quiet").exit_code == status


def test_json(folder: Path) -> None:
    result = skew("good", "moved.csv", "--json", "out.json", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    data = json.loads((folder / "out.json").read_text())
    assert data["schema"] == 1 and data["findings"][0]["code"] == "D016"
    assert data["skew"]["samples"] == 200
    assert [f["name"] for f in data["skew"]["features"] if f["shifted"]] == ["d"]
    printed = skew("good", "moved.csv", "--json", "-", "-q")
    assert json.loads(printed.stdout)["findings"][0]["name"] == "training-serving-skew"


def test_columns_of_a_table(folder: Path) -> None:
    table = np.concatenate([np.arange(60)[:, None], rows(98, 60)], 1)
    np.savetxt("ids.csv", table, delimiter=",", header="id,a,b,c,d,e", comments="")
    wrong = skew("good", "ids.csv")
    assert wrong.exit_code == 2 and "--drop id,label" in wrong.output
    for option in (("--drop", "id"), ("--columns", "a,b,c,d,e"), ("--columns", "a,b", "--columns", "c,d,e")):
        assert "No skew found" in skew("good", "ids.csv", *option).output


def test_settings(folder: Path) -> None:
    assert skew("good", "moved.csv", "--threshold", "training-serving-skew.far=100", "--fail-on", "info").exit_code == 3
    limits = [f"training-serving-skew.{name}=1000" for name in ("far", "outside")]
    lenient = skew("good", "moved.csv", "--threshold", limits[0], "--threshold", limits[1], "--fail-on", "info")
    assert lenient.exit_code == 0 and "settings leave out what was found" in lenient.output
    (folder / "pyproject.toml").write_text("[tool.torchdoctor]\nfail-on = 'warning'\n")
    assert skew("good", "moved.csv", "-q").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("good", "missing.npy"), "there is no file missing.npy"),
        (("elsewhere", "same.npy"), "nothing at elsewhere"),
        (("bare", "same.npy"), "no look at training inputs"),
        (("good", "same.npy", "--drop", "a"), "no columns with names"),
    ],
)
def test_what_cannot_be_is_one_sentence(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    result = skew(*arguments)
    assert result.exit_code == 2
    assert said in result.output and len(result.output.splitlines()) == 1


def test_names_in_a_file_cannot_move_the_cursor(folder: Path) -> None:
    np.savetxt("odd.csv", rows(97, 50) + 50, delimiter=",", header="a\x1b[2J,b,c,d,e", comments="")
    assert "\x1b" not in skew("good", "odd.csv").output


def test_it_is_a_command_and_needs_no_torch(folder: Path) -> None:
    done = torchdoctor_command("skew", "good", "same.npy", cwd=folder)
    assert done.returncode == 0 and "No skew found" in done.stdout and done.stderr == ""
    code = "import sys, torchdoctor.cli.skew; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
