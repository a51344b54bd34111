"""torchdoctor check on unmodified scripts: the list, the JSON and the exit status."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from processes import preloaded_torchdoctor
from torchdoctor.report.checklist import shortfall
from torchdoctor.store.checked import find_check

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(640, 12)
y = x[:, :4].argmax(1)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4){head})
opt = torch.optim.Adam(model.parameters(){left_out}, 1e-3)
train = DataLoader(TensorDataset(x[:512], y[:512]), 16, shuffle=True)
val = DataLoader(TensorDataset(x[512:], y[512:]), 16)
for epoch in range(20):
    model.train()
    for a, b in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        print(sum(nn.functional.cross_entropy(model(a), b).item() for a, b in val))
    torch.save(model.state_dict(), "last.pt")
"""
HEALTHY = SCRIPT.format(head="", left_out="")


def check(script: str, folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    (folder / "train.py").write_text(script)
    done = preloaded_torchdoctor("check", "--quick", "--json", "told.json", *options, "train.py", cwd=folder)
    told = folder / "told.json"
    return done.returncode, json.loads(told.read_text()) if told.exists() else {}, done.stdout + done.stderr


def test_a_healthy_script_passes_and_nothing_that_it_writes_stays(tmp_path: Path) -> None:
    status, told, text = check(HEALTHY, tmp_path)
    assert status == 0, text
    assert told["findings"] == []
    made = {c["name"]: c["passed"] for c in told["checks"]}
    assert made["optimizer-coverage"] is True and made["first-loss"] is True
    assert False not in made.values()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["told.json", "train.py"]
    assert "torchdoctor run train.py" in text


SOFTMAX = SCRIPT.format(head=", nn.Softmax(1)", left_out="")
LEFT_OUT = SCRIPT.format(head="", left_out="[:2]").replace("model.parameters()[", "list(model.parameters())[")


@pytest.mark.parametrize(
    ("script", "name"),
    [(SOFTMAX, "softmax-before-cross-entropy"), (LEFT_OUT, "parameters-not-optimized")],
    ids=["softmax", "left-out"],
)
def test_a_fault_is_named_before_training(script: str, name: str, tmp_path: Path) -> None:
    status, told, text = check(script, tmp_path, "--out", "runs")
    assert status == 3, text
    assert told["findings"][0]["name"] == name
    assert f"torchdoctor explain {name}" in text
    kept = find_check(tmp_path / "runs", {"argv": ["train.py"], "cwd": str(tmp_path)})
    assert kept is not None and kept.digest == hashlib.sha256(script.encode()).hexdigest()
    assert {c.name: c.passed for c in kept.checks} == {c["name"]: c["passed"] for c in told["checks"]}


def test_a_script_that_does_not_train(tmp_path: Path) -> None:
    status, told, text = check("print('nothing')", tmp_path)
    assert status == 1
    assert "no optimizer made an update" in told["problem"] and "no optimizer made an update" in text


def test_a_script_that_fails_says_how(tmp_path: Path) -> None:
    status, _, text = check(HEALTHY.replace("nn.Linear(32, 4)", "nn.Linear(31, 4)"), tmp_path)
    assert status == 1
    assert "RuntimeError" in text and "shapes cannot be multiplied" in text


def test_a_script_that_breaks_at_its_first_batch_gets_its_diagnosis(tmp_path: Path) -> None:
    status, told, text = check(HEALTHY.replace("argmax(1)", "argmax(1) + 1"), tmp_path)
    assert status == 3, text
    assert [f["name"] for f in told["findings"]] == ["invalid-labels"]
    assert "out of bounds" in told["problem"] and "This is why" in text and "Traceback" not in text


def test_one_check_alone_and_names_that_are_none(tmp_path: Path) -> None:
    status, told, _ = check(HEALTHY, tmp_path, "--only", "optimizer-coverage")
    assert status == 0
    assert [c["name"] for c in told["checks"]] == ["optimizer-coverage"]
    status, _, text = check(HEALTHY, tmp_path, "--only", "no-such-check")
    assert status == 2
    assert "no-such-check" in text


def test_the_list_and_the_missing_script(tmp_path: Path) -> None:
    done = preloaded_torchdoctor("check", "--list", cwd=tmp_path)
    assert "optimizer-coverage" in done.stdout
    done = preloaded_torchdoctor("check", cwd=tmp_path)
    assert done.returncode == 2 and "which script" in done.stderr


SHORT = (
    HEALTHY.partition("for epoch")[0]
    + """
batches = iter(train)
for step in range(30):
    a, b = next(batches)
    opt.zero_grad()
    nn.functional.cross_entropy(model(a), b).backward()
    opt.step()
"""
)


def test_a_loop_that_ends_under_the_checks_is_begun_again(tmp_path: Path) -> None:
    """A few batches are soon used up; each process goes on with the checks that are left."""
    names = ["gradients-reach", "head-and-loss", "loss-falls"]
    status, told, text = check(SHORT, tmp_path, *(word for name in names for word in ("--only", name)))
    assert status == 0, text
    assert sorted(c["name"] for c in told["checks"] if c["passed"]) == names, text


def test_a_wrong_name_is_refused_before_the_script_starts(tmp_path: Path) -> None:
    status, _, text = check("raise SystemExit('started')", tmp_path, "--only", "first-los")
    assert status == 2 and "first-los" in text and "started" not in text


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    done = preloaded_torchdoctor("check", "-m", "no_such_module", cwd=tmp_path)
    assert done.returncode == 1
    assert "No module named" in done.stdout and "Traceback" not in done.stdout + done.stderr


IN_TURNS = (
    HEALTHY.partition("for epoch")[0]
    + """
other = torch.optim.SGD(model.parameters(), 1e-3)
for epoch in range(20):
    for step, (a, b) in enumerate(train):
        each = (opt, other)[step % 2]
        each.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        each.step()
"""
)


def test_what_cannot_be_checked_is_not_called_well(tmp_path: Path) -> None:
    """The verdict says so, nobody is sent on to the run, and the status is that of no result."""
    names = ["first-loss", "loss-falls", "gradients-reach"]
    status, told, text = check(IN_TURNS, tmp_path, *(word for name in names for word in ("--only", name)))
    assert status == 1, text
    assert "None of 3 checks could be made" in text and "several optimizers" in text
    assert "torchdoctor run" not in text
    assert "none of 3 checks" in told["problem"]


def test_a_list_that_the_time_cut_short_says_so() -> None:
    made, left = {"passed": True, "text": "well"}, {"passed": None, "text": "no validation data was handed over"}
    assert shortfall([made, made, left]) is None
    assert shortfall([made, left, left]) == (
        "only 1 of 3 checks could be made, so this says little of the training: no validation data was handed over"
    )
    assert shortfall([made, made, left], "the 9 s of --timeout were over") == (
        "only 2 of 3 checks could be made: the 9 s of --timeout were over"
    )
