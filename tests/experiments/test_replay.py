"""A captured step run again in a fresh process."""

from __future__ import annotations

import json
import timeit
from pathlib import Path

import pytest

from processes import preloaded_torchdoctor, run_python
from recording import record
from torchdoctor.errors import CaptureError, ScriptError, UsageError
from torchdoctor.experiments import replay as replays
from torchdoctor.experiments.changes import Changes, read_changes
from torchdoctor.store.replays import read_replays

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
x = torch.rand(480, 6) + 0.5
x[405] = 0.0
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
if __name__ == "__main__":
    log = open("log.csv", "w")
    torch.save(model.state_dict(), "first.pt")
    for xb, yb in DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, num_workers=1):
        loss = nn.functional.mse_loss(model(xb).exp() / xb.mean(1, keepdim=True), yb)  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write("step\\n")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    (folder / "train.py").write_text(SCRIPT)
    done = run_python("-m", "torchdoctor", "run", "--quiet", "--name", "run", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def told(folder: Path, *arguments: str) -> tuple[dict, str]:
    done = preloaded_torchdoctor("replay", "run", "--json", "told.json", *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "told.json").read_text()), done.stdout


def test_the_same_to_the_bit_with_workers_and_dropout(folder: Path) -> None:
    saved = (folder / "first.pt").stat().st_mtime_ns
    found, text = told(folder)
    assert (folder / "log.csv").read_text() == "step\n" * 30
    assert (folder / "first.pt").stat().st_mtime_ns == saved
    assert (found["step"], found["birth"]["operator"], found["differs"]) == (25, "div", [])
    assert found["birth"]["samples"] == [5]
    assert "The same to the bit" in text
    assert "-> mse_loss at train.py:14" in text


def test_a_change_is_tried_from_the_start(folder: Path) -> None:
    found, text = told(folder, "--with", "lr=0.1x,clip=1.0")
    assert found["failed_at"] == 25
    assert not found["gone"]
    assert "fails all the same, at step 25" in text
    kept = read_replays(folder / "torchdoctor-runs" / "run")[0]
    assert (kept.step, kept.failed_at, kept.capture) == (25, 25, "step-000025-nonfinite")
    assert kept.change == "learning rate times 0.1, gradients clipped to a norm of 1"
    assert kept.birth is not None and kept.birth.samples == found["birth"]["samples"]


HALF = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
x = torch.rand(480, 6)
x[405] *= 1e5
model = nn.Linear(6, 4).to(torch.float16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for (xb,) in DataLoader(TensorDataset(x), batch_size=16):
    loss = model(xb.to(dtype=torch.float16).clamp(max=6e4)).square().float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_in_single_precision_a_half_overflow_is_gone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HALF)
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert told(tmp_path)[0]["birth"]["dtype"] == "float16"
    found, text = told(tmp_path, "--with", "fp32")
    assert found["gone"], found["reason"]
    assert "The failure is gone" in text


TOGETHER = """
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
distributed.init_process_group("gloo")
torch.manual_seed(0)
x = torch.rand(480, 6) + 0.5
x[405] = 0.0
model = nn.parallel.DistributedDataParallel(nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
data = TensorDataset(x)
for (xb,) in DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)):
    optimizer.zero_grad()
    loss = (model(xb) / xb.mean(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
"""


def test_of_processes_that_train_together_the_one_that_broke_runs_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TOGETHER)
    words = ["torch.distributed.run", "--nproc-per-node=2", "-m", "torchdoctor", "run", "--name", "run", "train.py"]
    done = run_python("-m", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torchdoctor replay torchdoctor-runs/run" in done.stderr
    found, text = told(tmp_path)
    assert (found["birth"]["operator"], found["processes"], found["rank"]) == ("div", 2, 1)
    assert "2 processes trained together" in text


SECOND = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
x = torch.rand(480, 6) + 0.5

def train(net, data, loss_of):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for (xb,) in DataLoader(TensorDataset(data), batch_size=16):
        loss = loss_of(net, xb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

train(nn.Linear(6, 6), x, lambda net, xb: nn.functional.mse_loss(net(xb), xb))
x[405] = 0.0
train(nn.Linear(6, 3, bias=False), x, lambda net, xb: net(xb).square().mean() + xb.norm(dim=1).log().mean())
"""


def test_a_training_that_comes_after_another(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SECOND)
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, _ = told(tmp_path)
    assert (found["birth"]["operator"], found["step"]) == ("log", 55)


def test_another_script_can_be_given(folder: Path) -> None:
    (folder / "mended.py").write_text(SCRIPT.replace("xb.mean(1, keepdim=True)", "(xb.mean(1, keepdim=True) + 1e-3)"))
    done = run_python("-m", "torchdoctor", "replay", "run", "--", "mended.py", cwd=folder)
    assert done.returncode == 1
    assert "did not fail again" in done.stdout


def test_a_function_can_be_named(folder: Path) -> None:
    (folder / "step.py").write_text(
        "import train, torch\n"
        "def step(captured):\n"
        "    assert not captured.load(train.model, train.optimizer)\n"
        "    xb, yb = captured.batch\n"
        "    return (train.model(xb).exp() / xb.mean(1, keepdim=True) - yb).square().mean()\n"
    )
    found, _ = told(folder, "--step-fn", "step.py:step")
    assert (found["birth"]["operator"], found["birth"]["line"], found["birth"]["samples"]) == ("div", 5, [5])


def test_changes_are_read() -> None:
    assert read_changes(["lr=0.1x"]) == Changes(rate=0.1, relative=True)
    assert read_changes(["lr=1e-3,fp32", "clip=2"]) == Changes(rate=1e-3, clip=2.0, single=True)
    assert not read_changes(["fp32"]).from_start
    with pytest.raises(UsageError, match="clip="):
        read_changes(["momentum=0"])


def test_without_a_capture_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="--capture"):
        replays.replay(record(tmp_path / "run"))


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"argv": []}, "does not say"),
        ({"argv": ["train.py", "--key", "***"]}, "secret"),
        ({"argv": ["/nowhere/train.py"]}, "not there any more"),
        ({"argv": [timeit.__file__, "-n1", "print(1)"], "cwd": "/"}, "not in this folder"),
    ],
)
def test_a_script_that_cannot_be_trusted_is_asked_for(tmp_path: Path, info: dict, said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        replays._recorded_target(tmp_path, info)
