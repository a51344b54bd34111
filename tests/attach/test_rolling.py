"""A failure that is known late is captured from before it, and a replay walks to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from attach.late import be_late
from processes import preloaded_torchdoctor
from torchdoctor.attach import session as sessions
from torchdoctor.facts import HealthFact, NonfiniteFact
from torchdoctor.store.captured import open_capture
from torchdoctor.store.captures import list_captures
from torchdoctor.store.reader import open_run

BEGINNING = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1600, 8)
x[7] = 0.0
y = (x[:, 0] > 0).long()
"""

LOADER = """
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
validation = DataLoader(TensorDataset(x[8:100], y[8:100]), 16)
for step, (a, b) in enumerate(DataLoader(TensorDataset(x, y), 16, shuffle=True)):
    optimizer.zero_grad()
    h = model(a)
    loss = nn.functional.cross_entropy(h, b) + 1e-2 * torch.log(a.norm(dim=1)).mean() * h.mean()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 4 == 3:
        model.eval()
        for c, d in validation:
            with torch.no_grad():
                nn.functional.cross_entropy(model(c), d)
        model.train()
"""

BACKWARD_ONLY = """
model = nn.Linear(8, 4, bias=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step, (a, b) in enumerate(DataLoader(TensorDataset(x, y), 8, shuffle=True)):
    loss = model(a).square().sum(1).sqrt().mean()
    (loss / 2).backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
"""

AHEAD = """
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def one_ahead(loader):
    batches = iter(loader)
    held = next(batches)
    for following in batches:
        yield held
        held = following
    yield held


for a, b in one_ahead(DataLoader(TensorDataset(x, y), 16, shuffle=True)):
    h = model(a)
    loss = nn.functional.cross_entropy(h, b) + 1e-2 * torch.log(a.norm(dim=1)).mean() * h.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

INDEXED = """
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
for step in range(80):
    picked = torch.randint(0, 1600, (64,))
    h = model(x[picked])
    loss = nn.functional.cross_entropy(h, y[picked]) + 1e-2 * torch.log(x[picked].norm(dim=1)).mean() * h.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def train(body: str, folder: Path, *options: str) -> Path:
    (folder / "train.py").write_text(BEGINNING + body)
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", *options, "train.py", cwd=folder, before=be_late)
    assert done.returncode == 0, done.stderr
    return folder / "torchdoctor-runs" / "run"


@pytest.mark.parametrize(
    ("body", "operator", "early"),
    [(LOADER, "log", 0), (BACKWARD_ONLY, "div", 1), (AHEAD, "log", 0), (INDEXED, "log", 0)],
    ids=["loader", "backward-only", "ahead", "indexed"],
)
def test_the_steps_to_the_failure_are_walked_again(body: str, operator: str, early: int, tmp_path: Path) -> None:
    run = train(body, tmp_path)
    (entry,) = list_captures(run)
    with open_capture(entry.path) as capture:
        steps = [step["step"] for step in capture.document["steps"]]
    assert steps[-1] == entry.name.step
    done = preloaded_torchdoctor("replay", "run", "--json", "told.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "told.json").read_text())
    assert (found["birth"]["operator"], found["failed_step"]) == (operator, entry.name.step - early)
    assert len(found["birth"]["samples"]) == 1
    before = [step for step, _, _ in found["losses"]]
    assert before == steps[: len(before)]
    assert len(before) == len(steps) - 1 - early
    assert [again for _, _, again in found["losses"]] == [first for _, first, _ in found["losses"]]
    assert f"from the state before step {steps[0]}" in done.stdout


def test_nan_in_the_batch_of_the_step_that_failed_is_found_when_others_have_followed(tmp_path: Path) -> None:
    run = train("x[7, 3] = float('nan')" + LOADER.replace("+ 1e-2 *", "+ 0 *"), tmp_path)
    found = [(step, f) for step, f in open_run(run).facts_at(NonfiniteFact) if f.role == "input"]
    (entry,) = list_captures(run)
    assert [(step, f.count, f.features) for step, f in found[:1]] == [(entry.name.step, 1, [3])]


def test_what_does_not_fit_is_said_and_the_state_is_that_of_the_moment(tmp_path: Path) -> None:
    run = train(LOADER, tmp_path, "--capture-limit", "2KB")
    (entry,) = list_captures(run)
    with open_capture(entry.path) as capture:
        assert capture.document["steps"] == []
    said = open_run(run).last_fact(HealthFact)
    assert said is not None
    assert "0.002 MB are allowed" in said.unsupported["state before a failure"]


SKIPPED = """
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
peeked = next(iter(DataLoader(TensorDataset(x, y), 4)))
for a, b in DataLoader(TensorDataset(x, y), 16, shuffle=True, num_workers=1):
    if a[0, 0] > 0.8:
        continue
    h = model(a)
    loss = nn.functional.cross_entropy(h, b) + 1e-2 * torch.log(a.norm(dim=1)).mean() * h.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TWO_AT_ONCE = """
class Batch:
    def __init__(self, held):
        self.held = held


model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(x, y), 8, shuffle=True, collate_fn=KIND)
batches = iter(loader)
for _ in range(90):
    a, c = next(batches), next(batches)
    a, c = (a.held, c.held) if isinstance(a, Batch) else (a, c)
    together = torch.cat([a, c])
    loss = model(together).square().mean() + 1e-2 * torch.log(together.norm(dim=1)).mean() * model(together).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "body",
    [SKIPPED, TWO_AT_ONCE.replace("KIND", "lambda rows: torch.stack([r[0] for r in rows])")],
    ids=["batches-left-out", "two-batches-an-update"],
)
def test_batches_are_given_in_their_order_whatever_the_loop_does_with_them(body: str, tmp_path: Path) -> None:
    run = train(body, tmp_path)
    (entry,) = list_captures(run)
    done = preloaded_torchdoctor("replay", "run", "--json", "told.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "told.json").read_text())
    assert (found["birth"]["operator"], found["failed_step"], found["from_start"]) == ("log", entry.name.step, False)
    assert [again for _, _, again in found["losses"]] == [first for _, first, _ in found["losses"]]
    assert found["losses"]


def test_batches_of_an_unknown_kind_are_not_kept(tmp_path: Path) -> None:
    body = TWO_AT_ONCE.replace("KIND", "lambda rows: Batch(torch.stack([r[0] for r in rows]))")
    said = open_run(train(body, tmp_path)).last_fact(HealthFact)
    assert said is not None
    assert "they hold a __main__.Batch" in said.unsupported["state before a failure"]


def test_batches_that_are_written_into_are_not_trusted(tmp_path: Path) -> None:
    body = LOADER.replace("    schedule.step()\n", "    schedule.step()\n    a.mul_(2.0)\n")
    run = train(body, tmp_path)
    said = open_run(run).last_fact(HealthFact)
    assert said is not None
    assert "changed in place" in said.unsupported["state before a failure"]


def test_nothing_is_held_once_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchdoctor.attach.rolling.is_late", lambda _: True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    with torchdoctor.watch(out=tmp_path, quiet=True):
        session = sessions.current()
        assert session is not None
        for (x,) in DataLoader(TensorDataset(torch.randn(64, 4)), 4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        assert session.rolling._places
        assert session.rolling._stream
    assert not session.rolling._places
    assert not session.rolling._stream
