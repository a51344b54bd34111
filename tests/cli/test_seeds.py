"""`torchdoctor seeds` from the command line to the verdict, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from processes import run_python
from torchdoctor.cli import group
from torchdoctor.cli.seeds import command

TRAIN = """
import argparse
import torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()
x = torch.linspace(-1, 1, 64)[:, None]
torch.manual_seed(args.seed)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for step in range(12):
    loss = (model(x) - x**2).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "last.pt")
model.load_state_dict(torch.load("last.pt"))
print(f"val score: {-(model(x) - x**2).square().mean().item():.6f}")
"""

FIXED = """
import random
import torch
from torch import nn
torch.manual_seed(0)
x = torch.tensor([[random.random()] for _ in range(32)])
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of two variants."""
    folder = tmp_path_factory.mktemp("seeds")
    (folder / "train.py").write_text(TRAIN)
    return folder


def seeds(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["seeds", *arguments], env={"COLUMNS": "100", "OMP_NUM_THREADS": "1"})


@pytest.mark.slow
def test_two_variants_pair_by_pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    asked = ("--metric", "val score", "--json", "told.json", "--plot", "seeds.html", "--fail-on", "warning")
    result = seeds("-n", "2", "--jobs", "2", *asked, "train.py", "--with", "lr=0.051")
    told = json.loads((folder / "told.json").read_text())
    assert result.exit_code == (3 if told["findings"] else 0), result.output
    for words in ("--seed (argparse, train.py:6)", "--lr=0.051 (argparse)", "paired t test", "95 % interval"):
        assert words in result.output
    first, second = told["variants"]
    assert (first["name"], second["name"], first["seeds"]) == ("train.py", "lr=0.051", [0, 1])
    assert len({*first["values"], *second["values"]}) == 4
    assert told["metric"] == "val score" and told["higher_is_better"]
    assert {f.name for f in (folder / "torchdoctor-runs").iterdir()} == {
        *("train-seed-0", "train-seed-1", "train-lr=0.051-seed-0", "train-lr=0.051-seed-1", "files")
    }
    assert not (folder / "last.pt").exists()
    assert (folder / "torchdoctor-runs" / "train-seed-0" / "output.log").read_text().startswith("val score")
    assert "Plotly.newPlot" in (folder / "seeds.html").read_text()

    again = seeds("--seeds", "0,1", "--reuse", "--quiet", "train.py", "--with", "lr=0.051", "--json", "-")
    reread = json.loads(again.stdout)
    assert reread["metric"] == "loss.train" and reread["seconds"] == 0
    assert len(list((folder / "torchdoctor-runs").iterdir())) == 5
    assert "torch.optim" not in again.output


@pytest.mark.slow
def test_two_starts_and_the_line_that_parts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixed.py").write_text(FIXED)
    result = seeds("--same", "2", "--jobs", "2", "fixed.py", "--json", "told.json", "--fail-on", "warning")
    told = json.loads((tmp_path / "told.json").read_text())
    assert result.exit_code == 3, result.output
    (finding,) = told["findings"]
    assert (finding["code"], told["equal"], told["fact"]["cause"]) == ("R001", False, "outside")
    assert finding["where"][0]["line"] == 6 and "random.random()" in result.output
    assert "left as the script has it" in result.output


def test_a_script_that_fails_is_told_by_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    result = seeds("-n", "3", "broken.py")
    assert result.exit_code == 2
    assert "no run has finished: seed 0 failed" in result.output
    assert "No module named 'nothing_of_that_name'" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-n", "3"), "no script was given"),
        (("nowhere.py",), "there is no file"),
        (("--same", "2", "--sweep", "lr=1", "train.py"), "different experiments"),
        (("--trials", "3", "train.py"), "belongs to --sweep"),
        (("--seeds", "1,x", "train.py"), "whole numbers"),
        (("--seeds", "1", "-n", "3", "train.py"), "not both"),
        (("--seeds", "-1", "train.py"), "from 0 to"),
        (("train.py", "--with", "depth=3"), "has no argument for depth=3"),
        (("train.py", "--sweep", "lr"), "--sweep takes"),
        (("train.py", "--compare", "other.py"), "there is no file 'other.py'"),
        (("train.py", "--fail-on", "never"), "error, warning or info"),
        (("train.py", "--plot", "seeds.png"), "name it seeds.html"),
        (("named.py", "--name", "a"), "write ours before the script"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    arguments: tuple[str, ...], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "named.py").write_text("parser.add_argument('--name')")
    result = seeds(*arguments)
    assert result.exit_code == 2 and said in result.output


@pytest.mark.parametrize(
    ("given", "ours", "script", "after_dashes"),
    [
        ("-n 3 train.py --epochs 2 --with lr=1", "-n 3 --with lr=1", "train.py --epochs 2", False),
        ("train.py -n 3 --json=a.json --flag", "--json=a.json", "train.py -n 3 --flag", False),
        ("--quiet train.py -- --with lr=1", "--quiet", "train.py --with lr=1", False),
        ("-n 2 -m pkg.train --lr 1", "-n 2", "-m pkg.train --lr 1", False),
        ("--seed-arg s -- torchrun train.py", "--seed-arg s", "torchrun train.py", True),
    ],
)
def test_whose_words_are_whose(given: str, ours: str, script: str, after_dashes: bool) -> None:
    found, words = command.take_apart(given.split())  # type: ignore[attr-defined]
    assert (found, words.script, words.after_dashes) == (ours.split(), script.split(), after_dashes)


def test_help_and_the_parent_never_import_torch(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit(3)")
    code = """
import sys
from torchdoctor.cli import main
for arguments in (["seeds", "--help"], ["seeds", "-n", "1", "broken.py"]):
    try:
        main(arguments)
    except SystemExit as end:
        print(end.code, "torch" in sys.modules)
"""
    done = run_python("-c", code, cwd=tmp_path)
    assert [line for line in done.stdout.splitlines() if line.endswith(("True", "False"))] == ["0 False", "2 False"]
