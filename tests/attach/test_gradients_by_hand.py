"""Loops that call torch.autograd.grad and update their parameters themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import preloaded_torchdoctor

LOOP = """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
x = torch.randn(320, 20)
y = (x @ torch.randn(20, 3)).argmax(1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 32)
parameters = list(model.parameters())
for epoch in range(3):
    for inputs, targets in loader:
        loss = F.cross_entropy(model(inputs), targets)
        {gradients}
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                parameter -= 0.1 * gradient
    with torch.no_grad():
        F.cross_entropy(model(x[:64]), y[:64])
"""
CALLS = {
    "a list": "gradients = torch.autograd.grad(loss, parameters)",
    "an iterator": "gradients = torch.autograd.grad(outputs=loss, inputs=model.parameters())",
    "one at a time": "gradients = [torch.autograd.grad(loss, p, retain_graph=True)[0] for p in parameters]",
    "a penalty on the gradient": """inner = torch.autograd.grad(loss, parameters, create_graph=True)
        penalty = sum(each.square().sum() for each in inner)
        gradients = torch.autograd.grad(loss + 0.01 * penalty, parameters)""",
}


def record(source: str, folder: Path) -> dict:
    (folder / "train.py").write_text(source)
    done = preloaded_torchdoctor("run", "--json", "verdict.json", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "verdict.json").read_text())


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_such_a_loop_is_recorded_as_a_training(call: str, tmp_path: Path) -> None:
    verdict = record(LOOP.format(gradients=call), tmp_path)
    assert 30 <= verdict["run"]["steps"] <= 31
    assert [each["name"] for each in verdict["findings"] if each["severity"] != "info"] == []


OTHERS = {
    "the inputs'": "x.requires_grad_(); torch.autograd.grad(model(x).sum(), x)",
    "a graph's own": "torch.autograd.grad(model(x).sum(), parameters, create_graph=True)",
    "of an iterator": "x.requires_grad_(); torch.autograd.grad(model(x).sum(), (p for p in [x]))",
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=list(OTHERS))
def test_other_gradients_are_no_training(call: str, tmp_path: Path) -> None:
    source = LOOP.partition("for epoch")[0] + call
    assert record(source, tmp_path)["run"]["steps"] in (0, None)


def test_gradients_beside_an_optimizer_are_no_backward_pass(tmp_path: Path) -> None:
    source = LOOP.format(gradients="gradients = torch.autograd.grad(loss, parameters, retain_graph=True)")
    source = source.replace("for epoch", "optimizer = torch.optim.SGD(parameters, lr=0.1)\nfor epoch", 1)
    stepped = "optimizer.zero_grad(); loss.backward(); optimizer.step()\n        with torch.no_grad():\n            for"
    source = source.replace("with torch.no_grad():\n            for", stepped, 1).replace("-= 0.1", "-= 0.0")
    verdict = record(source, tmp_path)
    assert verdict["run"]["steps"] == 30
    assert [each["name"] for each in verdict["findings"] if each["severity"] != "info"] == []
