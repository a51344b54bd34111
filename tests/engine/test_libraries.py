"""Findings about code that an installed package brought: an info, once, and never above a cause of the user's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from building import RunBuilder
from processes import preloaded_torchdoctor
from torchdoctor.engine import examine
from torchdoctor.facts import CallSiteFact, ParameterFact
from torchdoctor.findings import Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import LoadedRule, Rule
from torchdoctor.run import Run

FIT = Place(file="train.py", line=7)
OWN = Place(file="train.py", line=9)
LAYER, HEAD = Place(module="net.fc", parameter="net.fc.weight"), Place(module="head", parameter="head.weight")


def rule(name: str, *wheres: tuple[Place, ...], of_code: bool = True) -> LoadedRule:
    made = Rule(code="X001", name=name, family="procedure", needs=(), of_code=of_code)

    def detect(_run: Run) -> Iterator[Finding]:
        for number, where in enumerate(wheres):
            yield made.finding(
                severity=Severity.ERROR,
                confidence=0.9,
                title=f"{name} {number}",
                summary=name,
                fix=Fix("change it"),
                evidence=(),
                proof=Proof.STRUCTURE,
                where=where,
            )

    return LoadedRule(made, detect, name)


def run() -> Run:
    def parameter(name: str, library: str | None) -> ParameterFact:
        return ParameterFact(name, [2, 2], "float32", "cpu", name.rpartition(".")[0], "Linear", 0, library=library)

    return (
        RunBuilder()
        .fact(CallSiteFact("eval", "train.py", 7, library="fitters"))
        .fact(CallSiteFact("backward", "train.py", 9))
        .fact(parameter("net.fc.weight", "fitters"))
        .fact(parameter("head.weight", None))
        .build()
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ((FIT,), Severity.INFO),
        ((OWN,), Severity.ERROR),
        ((FIT, OWN), Severity.ERROR),
        ((FIT, HEAD), Severity.INFO),
        ((LAYER,), Severity.INFO),
        ((Place(module="net.fc"),), Severity.INFO),
        ((LAYER, HEAD), Severity.ERROR),
        ((Place(file="other.py", line=7),), Severity.ERROR),
        ((), Severity.ERROR),
    ],
)
def test_code_of_an_installed_package_is_worth_an_info(where: tuple[Place, ...], expected: Severity) -> None:
    (found,) = examine(run(), [rule("graph", where)]).findings
    assert found.severity is expected


def test_what_the_use_of_a_library_causes_is_not_lowered() -> None:
    (found,) = examine(run(), [rule("rate", (FIT,), of_code=False)]).findings
    assert found.severity is Severity.ERROR


def test_it_is_said_once_and_below_the_users_own_cause() -> None:
    rules = [rule("graph", (FIT,), (LAYER,), (FIT,)), rule("own", (OWN,), of_code=False)]
    own, library = examine(run(), rules).findings
    assert own.name == "own" and library.name == "graph" and library.where == (FIT, LAYER)


LIBRARY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, width)

    def forward(self, x):
        return self.head(self.body(x))

def fit(model, train, val, optimizer, epochs):
    for _ in range(epochs):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        for x, y in val:
            nn.functional.cross_entropy(model(x), y).item()
"""
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import torch
from fitters import Net, fit
torch.manual_seed(0)
x = torch.randn(512, 8)
y = (x[:, 0] > 0).long()
held = torch.utils.data.TensorDataset(x[:128], y[:128])
train = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[128:], y[128:]), 32, shuffle=True)
val = torch.utils.data.DataLoader(held, 32)
model = Net(2)
fit(model, train, val, torch.optim.Adam(model.parameters(), 1e-2), 5)
"""


@pytest.mark.parametrize("installed", [True, False])
def test_a_trainer_and_a_model_of_an_installed_package(tmp_path: Path, installed: bool) -> None:
    """The same code: alarming where the user wrote it, an info in an installed package."""
    folder = tmp_path / ("venv/lib/site-packages" if installed else "sources")
    folder.mkdir(parents=True)
    (folder / "fitters.py").write_text(LIBRARY)
    (tmp_path / "train.py").write_text(SCRIPT.format(folder=str(folder)))
    done = preloaded_torchdoctor("run", "--json", "verdict.json", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    findings = json.loads((tmp_path / "verdict.json").read_text())["findings"]
    severities = {f["name"]: f["severity"] for f in findings}
    assert {"gradients-in-evaluation", "missing-nonlinearity"} <= set(severities)
    if installed:
        assert set(severities.values()) == {"info"}
    else:
        assert severities["gradients-in-evaluation"] == "warning"
