"""A script that dies of autograd's in-place error: its own traceback stays, and both lines are named beside it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from processes import preloaded_torchdoctor, run_python, torchdoctor_command
from torchdoctor.probes.clash import MARK

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(4, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
"""

RELU = """
for _ in range(5):
    h = torch.relu(first(torch.randn(8, 4)))  # kept
    h.mul_(2)  # changed
    loss = second(h).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

EXP = """
def forward(x):
    h = torch.exp(first(x))  # kept
    h += 1  # changed
    return second(h)

class Trainer:
    def step(self, x):
        optimizer.zero_grad()
        forward(x).pow(2).mean().backward()
        optimizer.step()

trainer = Trainer()
for x in torch.randn(5, 8, 4):
    trainer.step(x)
"""

UPDATE = """
other = torch.optim.Adam(second.parameters(), lr=0.01)
for _ in range(5):
    score = second(torch.tanh(first(torch.randn(8, 4))))  # kept
    one, two = score.mean(), score.pow(2).mean()
    other.zero_grad()
    one.backward(retain_graph=True)
    other.step()  # changed
    optimizer.zero_grad()
    two.backward()
    optimizer.step()
"""

ASSIGNMENT = """
cell = nn.Linear(8, 8)
for _ in range(5):
    x, h = torch.randn(8, 6, 4), torch.zeros(8, 7, 8)
    for t in range(6):
        h[:, t + 1] = torch.tanh(cell(h[:, t]) + first(x[:, t]))  # kept and changed
    loss = second(h[:, -1]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LATE = """
for number in range(200):
    h = torch.sigmoid(first(torch.randn(8, 4)))  # kept
    if number > 150:
        h.clamp_(max=0.6)  # changed
    loss = second(h).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LAYER = """
model = nn.Sequential(first, nn.Sigmoid(), nn.ReLU(inplace=True), second)
for _ in range(5):
    loss = model(torch.randn(8, 4)).pow(2).mean()  # kept and changed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CLOSURE = """
for x in torch.randn(5, 8, 4):
    def closure():
        optimizer.zero_grad()
        h = torch.tanh(first(x))  # kept
        h -= h.mean()  # changed
        loss = second(h).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
"""

CARRIED = """
cell = nn.GRUCell(4, 8)
optimizer.add_param_group({"params": cell.parameters()})
h = torch.zeros(8, 8)
for _ in range(5):
    h = cell(torch.randn(8, 4), h)  # kept
    loss = second(h).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
"""


def line_of(script: Path, mark: str) -> int:
    return next(n for n, line in enumerate(script.read_text().splitlines(), 1) if "#" in line and mark in line)


def explained(body: str, folder: Path) -> tuple[Path, dict[str, Any], dict[str, Any], str]:
    """The script, its explanation, the whole verdict and what was printed."""
    script, report = folder / "train.py", folder / "verdict.json"
    script.write_text(HEAD + textwrap.dedent(body))
    done = preloaded_torchdoctor("run", "--json", str(report), str(script), cwd=folder)
    assert done.returncode == 1
    verdict = json.loads(report.read_text())
    return script, verdict["run"]["exception"]["explanation"], verdict, done.stderr


@pytest.mark.parametrize(
    ("body", "kept", "changed"),
    [
        (RELU, "relu", "mul_"),
        (EXP, "exp", "add_"),
        (ASSIGNMENT, "linear layer", "copy_"),
        (LATE, "sigmoid", "clamp_"),
        (LAYER, "sigmoid", "relu_"),
        (CLOSURE, "tanh", "sub_"),
    ],
    ids=["relu", "exp", "assignment", "late", "layer", "closure"],
)
def test_both_lines_are_named(body: str, kept: str, changed: str, tmp_path: Path) -> None:
    script, told, _, _ = explained(body, tmp_path)
    assert (told["kept"]["operation"], told["kept"]["line"]) == (kept, line_of(script, "kept"))
    assert (told["changed"]["operation"], told["changed"]["line"]) == (changed, line_of(script, "changed"))
    assert told["changed"]["file"] == str(script)
    assert "optimizer's step" not in told["text"]


def test_a_line_is_shown_as_it_could_be_written(tmp_path: Path) -> None:
    assert explained(EXP, tmp_path)[1]["code"] == "h = h + 1"


def test_an_update_between_two_backwards(tmp_path: Path) -> None:
    script, told, verdict, _ = explained(UPDATE, tmp_path)
    assert told["kept"]["line"] == line_of(script, "kept")
    assert told["changed"]["line"] == line_of(script, "changed")
    assert told["parameter"].endswith("weight")
    assert "optimizer's step" in told["text"]
    assert [f["name"] for f in verdict["findings"] if f["severity"] == "error"] == []


def test_a_state_that_is_carried_over_is_told_as_one(tmp_path: Path) -> None:
    _, told, verdict, _ = explained(CARRIED, tmp_path)
    assert told["earlier_step"] is True
    assert "detach" in told["code"]
    assert verdict["findings"][0]["name"] == "graph-kept-alive"


def test_the_layer_that_works_in_place_is_named(tmp_path: Path) -> None:
    told = explained(LAYER, tmp_path)[1]
    assert told["changed"]["module"] == "2"
    assert "inplace=True" in told["instead"]


def test_the_scripts_own_error_stays(tmp_path: Path) -> None:
    script, told, verdict, printed = explained(RELU, tmp_path)
    plain = run_python(str(script), cwd=tmp_path).stderr.splitlines()
    assert plain[-1] in printed.splitlines()
    assert f'File "{script}", line {verdict["run"]["exception"]["line"]}, in <module>' in printed
    assert MARK in verdict["run"]["exception"]["message"]
    assert printed.index(MARK) < printed.index("THE ERROR EXPLAINED")
    assert f"train.py:{told['changed']['line']}" in printed


def test_a_script_that_catches_it_runs_on_as_before(tmp_path: Path) -> None:
    body = RELU.replace("    loss.backward()", "    try:\n        loss.backward()\n    except RuntimeError as error:\n"
                        "        print(type(error).__name__)\n        h = None")  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text(HEAD + body + "print(first.weight.sum().item())\n")
    plain, watched = run_python(str(script), cwd=tmp_path), torchdoctor_command("run", str(script), cwd=tmp_path)
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    assert "THE ERROR EXPLAINED" not in watched.stderr


def test_without_a_loop_the_operation_that_kept_it_is_named(tmp_path: Path) -> None:
    body = "h = torch.exp(first(torch.randn(8, 4)))  # kept\nh += 1\nsecond(h).sum().backward()\n"
    script, told, _, _ = explained(body, tmp_path)
    assert told["kept"]["line"] == line_of(script, "kept")
    assert "changed" not in told
    assert told["reason"]
