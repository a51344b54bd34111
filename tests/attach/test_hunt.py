"""Where the first NaN was born, in scripts run as they are: the step is run again by a forked child."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from processes import preloaded_torchdoctor
from torchdoctor.facts import BirthFact
from torchdoctor.store.reader import open_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a process is forked")

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.rand(320, 6) + 0.5
y = torch.rand(320, 1)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
"""

WORKERS = """
x[19 * 16 + 5] = 0.0
if __name__ == "__main__":
    loader = DataLoader(TensorDataset(x, y), batch_size=16, num_workers=1)
    for xb, yb in loader:
        scaled = xb / xb.sum(1, keepdim=True)  # here
        loss = nn.functional.mse_loss(model(scaled), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SLICES = """
x[150] = 0.0
def train(xb, yb):
    loss = nn.functional.mse_loss(model(xb), yb) + xb.pow(2).sum(1).log().mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
start = 0
while start < 320:
    train(x[start : start + 16], y[start : start + 16])
    start += 16
"""
BACKWARD = """
scale = nn.Parameter(torch.ones(6))
optimizer.add_param_group({"params": [scale]})
x[150] = 0.0
for start in range(0, 320, 16):
    xb, yb = x[start : start + 16] * scale, y[start : start + 16]
    length = torch.sqrt((xb * xb).sum(1, keepdim=True))  # here
    loss = nn.functional.mse_loss(model(xb) * length, yb)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CLOSURE = """
x[150] = 800.0
for start in range(0, 320, 16):
    xb, yb = x[start : start + 16], y[start : start + 16]
    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(xb), yb) + xb.exp().mean()  # here
        loss.backward()
        return loss
    optimizer.step(closure)
"""
ACCUMULATED = """
x[150] = 0.0
loader = iter(DataLoader(TensorDataset(x, y), batch_size=16))
for step in range(10):
    optimizer.zero_grad()
    for part in range(2):
        xb, yb = next(loader)
        weight = model[0](xb).sum(1, keepdim=True) * xb.sum(1, keepdim=True)
        loss = nn.functional.mse_loss(model(xb), yb) + (weight * weight).sqrt().mean()  # here
        (loss / 2).backward()
    optimizer.step()
"""


REASSIGNED = """
x[19 * 16 + 5] = 0.0
if __name__ == "__main__":
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=16, num_workers=1):
        xb = (xb + 1.0).unsqueeze(1).squeeze(1) - 1.0
        loss = nn.functional.mse_loss(model(xb), yb) + xb.sum(1).log().mean()  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MASKED = """
blank = torch.zeros(16, 6, dtype=torch.bool)
for start in range(0, 320, 16):
    xb, yb = x[start : start + 16], y[start : start + 16]
    blank[6] = start == 144
    scores = model[0](xb)[:, :6].clone()
    scores[blank] = float("-inf")
    weights = torch.softmax(scores, dim=1)  # here
    loss = nn.functional.mse_loss((weights * xb).sum(1, keepdim=True), yb)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


SCALED = """
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
x[150] = 1e5
for start in range(0, 320, 16):
    xb, yb = x[start : start + 16], y[start : start + 16]
    half = xb.half()  # here
    loss = nn.functional.mse_loss(model(half.float()), yb)
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
"""


@pytest.mark.parametrize(
    ("script", "operator", "backward", "samples"),
    [
        (WORKERS, "div", False, [5]),
        (SLICES, "log", False, [6]),
        (BACKWARD, "div", True, [6]),
        (CLOSURE, "exp", False, [6]),
        (ACCUMULATED, "div", True, [6]),
        (REASSIGNED, "log", False, [5]),
        (MASKED, "_softmax", False, [6]),
        (SCALED, "_to_copy", False, [6]),
    ],
    ids=["workers", "slices", "backward", "closure", "accumulated", "reassigned", "masked", "scaled"],
)
def test_operation_line_and_samples(
    tmp_path: Path, script: str, operator: str, backward: bool, samples: list[int]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(HEAD + script)
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if text.endswith("# here"))
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = open_run(tmp_path / "torchdoctor-runs" / "run").facts_at(BirthFact)
    assert [(f.operator, f.backward, f.line, f.samples) for _, f in found] == [(operator, backward, line, samples)]
    assert f"line {line}" in done.stderr


def test_a_child_touches_nothing(tmp_path: Path) -> None:
    """A loop that cannot be sent back, and that writes a file at every step: the child ends before it does so."""
    file = tmp_path / "train.py"
    file.write_text(
        HEAD
        + """
def batches():
    for start in range(0, 320, 16):
        yield x[start : start + 16], y[start : start + 16]
x[100] = 0.0
def log(step, text):
    with open("log.txt", "a") as file:
        file.write(f"{step} {text}\\n")
step = 0
for xb, yb in batches():
    loss = nn.functional.mse_loss(model(xb), yb) - xb.sum(1).log().mean() * 0.0
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    log(step, "done")
"""
    )
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in (tmp_path / "log.txt").read_text().splitlines()] == [
        str(n) for n in range(1, 21)
    ]


def test_what_processes_share_is_not_touched(tmp_path: Path) -> None:
    """A counter in shared memory, a file that torch writes, and a loader's workers: the child leaves them alone."""
    file = tmp_path / "train.py"
    file.write_text(
        HEAD
        + """
import torch.multiprocessing as mp
x[7 * 16 + 5] = 0.0
def step(xb, yb):
    loss = nn.functional.mse_loss(model(xb), yb) + xb.sum(1).log().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if __name__ == "__main__":
    counter = mp.Value("i", 0)
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=16, num_workers=1):
        with counter.get_lock():
            counter.value += 1
        xb = xb * 1.0
        step(xb, yb)
        torch.save(model.state_dict(), f"model{counter.value}.pt")
    print("counted", counter.value)
"""
    )
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", str(file), cwd=tmp_path)
    assert "counted 20" in done.stdout, done.stderr
    assert len(list(tmp_path.glob("model*.pt"))) == 20
