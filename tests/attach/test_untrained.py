"""Scripts that end before a backward pass, or need none: their record, their JSON, their exit status, and a NaN."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from processes import preloaded_torchdoctor, torchdoctor_command
from torchdoctor.attach.last_words import find_unused_loss
from torchdoctor.attach.unused_losses import _PRINTED

MODEL = """
import os, sys, torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
"""
NAN_INPUT = "x[3, 1] = float('nan')\n"
FUNCTIONAL = """
from torch.func import functional_call, grad_and_value
values = {name: p.detach() for name, p in model.named_parameters()}
for step in range(5):
    slopes, loss = grad_and_value(lambda p: F.cross_entropy(functional_call(model, p, (x,)), y))(values)
    values = {name: value - 0.1 * slopes[name] for name, value in values.items()}
"""

ENDINGS = {
    "without torch": ("print('done')", 0, "finished", None),
    "import of torch not reached": ("import nowhere_to_be_found", 1, "crashed", "ModuleNotFoundError"),
    "exit with a number": (f"{MODEL}sys.exit(4)", 4, "crashed", None),
    "interrupted": (f"{MODEL}raise KeyboardInterrupt", 130, "interrupted", "KeyboardInterrupt"),
    "first batch": (
        f"{MODEL}for _ in torch.utils.data.DataLoader(range(3), collate_fn=lambda _: 1 / 0): pass",
        1,
        "crashed",
        "ZeroDivisionError",
    ),
    "an error that cannot be shown": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        1,
        "crashed",
        "Odd",
    ),
    "inference": (f"{MODEL}with torch.no_grad(): print(model(x).shape)", 0, "finished", None),
    "torch.func": (f"{MODEL}{FUNCTIONAL}", 0, "finished", None),
}


@pytest.mark.parametrize(("source", "status", "how", "error"), ENDINGS.values(), ids=list(ENDINGS))
def test_it_is_recorded_and_keeps_its_status(
    source: str, status: int, how: str, error: str | None, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(f"{source}\n")
    done = preloaded_torchdoctor("run", "--name", "run", "--json", "verdict.json", "train.py", cwd=tmp_path)
    assert done.returncode == status
    info = json.loads((tmp_path / "torchdoctor-runs" / "run" / "run.json").read_text())
    assert info["status"] == how
    assert info.get("exception", {}).get("type") == (error if how == "crashed" else None)
    assert json.loads((tmp_path / "verdict.json").read_text())["findings"] == []
    assert "left out" not in done.stderr and "report this" not in done.stderr
    assert ("Its own error is above" in done.stderr) == (how == "crashed" and error is not None)


NANS = {
    "loss function": ("print(F.cross_entropy(model(x), y).item())", 0, "nan-in-inputs"),
    "loss function without gradients": ("with torch.no_grad(): F.cross_entropy(model(x), y)", 0, "nan-in-inputs"),
    "torch.func": (f"{FUNCTIONAL}print('final loss', loss.item())", 0, "nonfinite-parameters"),
    "assert": ("loss = model(x).square().mean()\nassert loss.isfinite()", 1, "nan-in-inputs"),
    "a number": ("total_loss = model(x).square().mean().item()\nif total_loss != total_loss: sys.exit(2)", 2, None),
    "printed": ("print(f'step 1 | loss: {model(x).square().mean().item():.3f}')", 0, "nonfinite-parameters"),
}


@pytest.mark.parametrize(("source", "status", "name"), NANS.values(), ids=list(NANS))
def test_a_loss_that_is_nan_is_named(source: str, status: int, name: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{MODEL}{NAN_INPUT}{source}\n")
    done = preloaded_torchdoctor("run", "--json", "verdict.json", "train.py", cwd=tmp_path)
    assert done.returncode == status
    findings = json.loads((tmp_path / "verdict.json").read_text())["findings"]
    assert findings and findings[0]["severity"] == "error"
    assert name is None or name in [finding["name"] for finding in findings]


def error_at(source: str, file: Path) -> BaseException:
    file.write_text(source)
    with pytest.raises(BaseException) as caught:
        exec(compile(source, str(file), "exec"), {"torch": torch})
    return caught.value


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("best_loss = float('inf')\n1 / 0", False),
        ("best_loss = torch.tensor(float('inf'))\nprint(best_loss / [])", False),
        ("val_loss = float('nan')\n1 / 0", False),
        ("loss = float('nan')\nassert loss == loss", True),
        ("loss = float('nan')\nraise RuntimeError('NaN, giving up')", True),
        ("loss = torch.ones((), requires_grad=True) / 0\n1 / 0", True),
    ],
)
def test_the_initial_value_of_a_loss_is_no_loss(source: str, is_found: bool, tmp_path: Path) -> None:
    assert (find_unused_loss(error_at(source, tmp_path / "script.py")) is not None) == is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("best loss: inf", False),
        ("masked loss for NaN labels", False),
        ("loss: nan-safe cross entropy", False),
        ("Loss nan values are dropped", False),
        ("step 3 | loss: nan acc: 0.1", True),
        ("final loss nan", True),
        ("train_loss=tensor(nan)", True),
        ("loss (train) is NaN, stopping", True),
        ("{'loss': nan}", True),
    ],
)
def test_a_printed_loss_is_told_from_words_about_losses(text: str, is_found: bool) -> None:
    assert (_PRINTED.search(text) is not None) == is_found


def test_a_nan_before_the_training_is_not_the_trainings(tmp_path: Path) -> None:
    source = f"""{MODEL}
with torch.no_grad():
    print("loss", F.cross_entropy(model(x * float("nan")), y).item())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(source)
    preloaded_torchdoctor("run", "--json", "verdict.json", "train.py", cwd=tmp_path)
    findings = json.loads((tmp_path / "verdict.json").read_text())["findings"]
    assert "nonfinite-parameters" not in [finding["name"] for finding in findings]


def test_an_earlier_run_of_that_name_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1 / 0\n")
    for _ in range(2):
        assert preloaded_torchdoctor("run", "--name", "run", "train.py", cwd=tmp_path).returncode == 1
    assert sorted(p.name for p in (tmp_path / "torchdoctor-runs").iterdir()) == ["run", "run-2"]


@pytest.mark.parametrize("source", ["print('done')", "import sys\nprint('torch' in sys.modules)\nraise SystemExit(3)"])
def test_a_script_without_torch_is_recorded_without_importing_torch(source: str, tmp_path: Path) -> None:
    """In a python that has not imported it before us, as preloaded ones have."""
    (tmp_path / "train.py").write_text(f"import atexit, sys\natexit.register(lambda: print(*sys.modules))\n{source}\n")
    done = torchdoctor_command("run", "--json", "verdict.json", "train.py", cwd=tmp_path)
    assert "torch" not in done.stdout.split()
    assert "nothing to diagnose" in done.stderr and "report this" not in done.stderr
    assert json.loads((tmp_path / "verdict.json").read_text())["run"]["path"]


def test_a_script_that_leaves_at_once_is_recorded_by_the_process_that_observes_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, torch\nos._exit(7)\n")
    done = torchdoctor_command("run", "--json", "verdict.json", "train.py", cwd=tmp_path)
    assert done.returncode == 7
    assert json.loads((tmp_path / "verdict.json").read_text())["run"]["status"] == "crashed"
