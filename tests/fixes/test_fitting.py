"""Code of a fix in the script's own names, for loops in several styles; what cannot be fitted stays an example."""

from __future__ import annotations

from pathlib import Path

import pytest

from building import RunBuilder
from torchdoctor.facts import CallSiteFact, OptimizerFact
from torchdoctor.findings import Fix, Place
from torchdoctor.fixes import fit_fix
from torchdoctor.run import Run

PLAIN = """
import torch
from torch import nn

net = nn.Linear(4, 2)
o = torch.optim.SGD(
    net.parameters(),
    lr=0.5,
    momentum=0.9,
)
for xb, yb in train:
    o.zero_grad()
    cost = nn.functional.cross_entropy(net(xb), yb)
    cost.backward()
    o.step()
"""
TRAINER = """
import torch as t
from torch.optim import AdamW

class Trainer:
    def __init__(self, model, decayed, plain):
        self.model = model
        self.opt = AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain}], 1e-3)
        self.scaler = t.amp.GradScaler()

    def step(self, batch):
        inputs, labels = batch
        logits = self.model(inputs)
        loss = self.loss_fn(logits, labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.model.train()
"""
ADVERSARIAL = """
import torch

def train(G, D, g_opt, d_opt, loader):
    for real, _ in loader:
        d_loss = D(real).mean() - D(G(real)).mean()
        d_loss.backward()
        d_opt.step()
        g_loss = D(G(real)).mean()
        g_loss.backward()
        g_opt.step()
        G.train(), D.train()
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


def line_of(text: str, piece: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if piece in line)


def recorded(path: Path, text: str, optimizer: str, made: str, groups: int = 1) -> Run:
    group = {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.0}
    return (
        RunBuilder()
        .fact(OptimizerFact("0", optimizer, [group] * groups, 2, str(path), line_of(text, made)))
        .fact(CallSiteFact("backward", str(path), line_of(text, "backward()")))
        .build()
    )


@pytest.mark.parametrize(
    ("code", "fitted"),
    [
        ("optimizer.zero_grad()", "o.zero_grad()"),
        (
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before the step",
            "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # before the step",
        ),
        (
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)",
            "o = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)",
        ),
        ("loss = F.cross_entropy(model(x), y)", "cost = nn.functional.cross_entropy(net(xb), yb)"),
        ("x = np.clip(x, -5, 5)", "import numpy as np\nxb = np.clip(xb, -5, 5)"),
        ("assert math.isfinite(loss)", "import math\nassert math.isfinite(cost)"),
    ],
)
def test_names_of_a_plain_script_are_used(tmp_path: Path, code: str, fitted: str) -> None:
    path = write(tmp_path, PLAIN)
    run = recorded(path, PLAIN, "SGD", "o = torch")
    fix = fit_fix(Fix("Change it.", code), [], run, [tmp_path])
    assert fix.code in (fitted, fitted.replace("nn.functional", "torch.nn.functional")) and fix.example is None


@pytest.mark.parametrize(
    ("code", "fitted"),
    [
        ("optimizer.zero_grad()", "self.opt.zero_grad()"),
        ("scaler.unscale_(optimizer)", "self.scaler.unscale_(self.opt)"),
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1)", None),
        ("loss = criterion(logits, y.float())", "loss = self.loss_fn(logits, labels.float())"),
        (
            "for group in optimizer.param_groups: group['lr'] = 0.1",
            "for group in self.opt.param_groups: group['lr'] = 0.1",
        ),
    ],
)
def test_names_of_a_trainer_class_are_used(tmp_path: Path, code: str, fitted: str | None) -> None:
    path = write(tmp_path, TRAINER)
    run = recorded(path, TRAINER, "AdamW", "self.opt =", groups=2)
    place = Place(file=str(path), line=line_of(TRAINER, "backward()"))
    fix = fit_fix(Fix("Change it.", code), [place], run, [tmp_path])
    if fitted is None:  # torch goes by another name in this script, so it is imported again
        assert fix.code == "import torch\ntorch.nn.utils.clip_grad_norm_(self.model.parameters(), 1)"
    else:
        assert fix.code == fitted


KEEP = "keep = torch.isfinite(X).flatten(1).all(dim=1); X, y = X[keep], y[keep]"
SCALE = "X_train = X_train / X_train.std(0).clamp_min(1e-6)"
LOOP = """
net, o = torch.nn.Linear(4, 2), None
for a, b in loader:
    cost = torch.nn.functional.cross_entropy(net(a), b)
    cost.backward()
"""


@pytest.mark.parametrize(
    ("data", "code", "fitted"),
    [
        ("loader = DataLoader(TensorDataset(X, y), 8)", KEEP, KEEP),
        (
            "loader = DataLoader(TensorDataset(points, marks), 8)",
            KEEP,
            KEEP.replace("X", "points").replace("y", "marks"),
        ),
        ("cost = criterion(net(points[i]), marks[i])", "len(X)", "len(points)"),
        ("X, y = load()\nloader = DataLoader(Table(X, y), 8)", KEEP, None),  # tensors or arrays
        ("loader, X, y = TensorDataset(V, w), TensorDataset(T, u), 0", KEEP, None),  # of which split
        ("X_train, y_train = load()\nloader = Table(X_train, y_train)", SCALE, None),
        ("loader = TensorDataset(X_train, y_train)", SCALE, SCALE),
    ],
)
def test_data_of_a_split_are_not_taken_for_those_of_a_batch(
    tmp_path: Path, data: str, code: str, fitted: str | None
) -> None:
    names = "i = X = y = V = w = T = u = points = marks = X_train = y_train = load = Table = criterion = 0"
    text = f"import torch\nfrom torch.utils.data import *\n{names}\n{data}\n{LOOP}"
    path = write(tmp_path, text)
    assert fit_fix(Fix("Change it.", code), [Place(file=str(path), line=4)], None, [tmp_path]).code == fitted


def test_groups_of_an_optimizer_stay(tmp_path: Path) -> None:
    path = write(tmp_path, TRAINER)
    run = recorded(path, TRAINER, "AdamW", "self.opt =", groups=2)
    code = "optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)"
    fix = fit_fix(Fix("Lower the learning rate.", code), [], run, [tmp_path])
    assert fix.code is not None and "'weight_decay': 0.1" in fix.code and fix.code.endswith("0.01)")


@pytest.mark.parametrize(
    "code",
    [
        "scores = q @ k.transpose(-2, -1)",  # unknown names
        "hidden = 32",  # nothing reads it
        "DataLoader(..., pin_memory=True)",  # not whole
        "return self.nowhere(x)",  # no such attribute
        "for batch in loader:",  # a head without a body
        "model(x",
        "nn.LeakyReLU(0.01)  # instead of nn.ReLU()",  # nothing takes it
        "x.flatten(1)[:, 3]",
    ],
)
def test_what_cannot_be_fitted_is_an_example(tmp_path: Path, code: str) -> None:
    path = write(tmp_path, PLAIN)
    run = recorded(path, PLAIN, "SGD", "o = torch")
    fix = fit_fix(Fix("Change it.", code), [Place(file=str(path), line=14)], run, [tmp_path])
    assert (fix.code, fix.example) == (None, code)
    assert fix.listing == code and fix.lead


def test_a_model_is_known_by_its_class(tmp_path: Path) -> None:
    text = PLAIN.replace("net = nn.Linear(4, 2)", "class Net(nn.Module): ...\nnet = Net()").replace(
        "net.parameters()", "[net.weight]"
    )
    path = write(tmp_path, text)
    run = recorded(path, text, "SGD", "o = torch")
    code = 'optimizer.add_param_group({"params": [*model.head.parameters()]})'
    fixed = 'o.add_param_group({"params": [*net.head.parameters()]})'
    assert fit_fix(Fix("Change it.", code), [], run, [tmp_path]).code == fixed


def test_one_name_for_two_things_is_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path, ADVERSARIAL)
    run = recorded(path, ADVERSARIAL, "Adam", "d_opt.step")
    assert fit_fix(Fix("Change it.", "optimizer.zero_grad()"), [], run, [tmp_path]).code is None
    assert fit_fix(Fix("Change it.", "model.train()"), [], run, [tmp_path]).code is None


def test_only_files_below_the_folders_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    run = recorded(path, PLAIN, "SGD", "o = torch")
    (tmp_path / "elsewhere").mkdir()
    assert fit_fix(Fix("Change it.", "optimizer.step()"), [], run, [tmp_path / "elsewhere"]).code is None


def test_a_lone_with_gets_the_statement_that_it_is_for(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    run = recorded(path, PLAIN, "SGD", "o = torch")
    place = Place(file=str(path), line=line_of(PLAIN, "cost ="))
    fix = fit_fix(Fix("Change it.", "with torch.no_grad():"), [place], run, [tmp_path])
    assert fix.code == "with torch.no_grad():\n    cost = nn.functional.cross_entropy(net(xb), yb)"


def test_commands_stay(tmp_path: Path) -> None:
    fix = Fix("Replay it.", "torchdoctor replay")
    assert fit_fix(fix, [], None, [tmp_path]) == fix
