"""The parts of benchmarks/diagnosis.py that decide something: fixes put into scripts, runs cut short, counts."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import fixes
import scores
from building import RunBuilder
from torchdoctor.facts import ModelFact
from torchdoctor.signals import LOSS_TRAIN
from trials import Cache, Outcome, Trial, until

SCRIPT = '''"""Sick."""
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=10.0, momentum=0.9)
for x, y in DataLoader(train, batch_size=8):
    loss = f(model(x), y)
    loss.backward()
    optimizer.step()
for x, y in DataLoader(test, batch_size=8):
    print(model(x))
'''
TWIN = SCRIPT.replace("Sick", "Healthy").replace(
    "    loss.backward()", "    optimizer.zero_grad()\n    loss.backward()"
)


def finding(code: str | None, line: int | None = None) -> dict:
    return {"fix": {"code": code}, "where": [{"line": line}]}


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        ("nn.LeakyReLU(0.01)  # instead of nn.ReLU()", None, SCRIPT.replace("nn.ReLU()", "nn.LeakyReLU(0.01)")),
        ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", None, SCRIPT.replace("lr=10.0", "lr=0.1")),
        (
            "DataLoader(dataset, batch_size=8, shuffle=True)",
            4,
            SCRIPT.replace("(train, batch_size=8)", "(train, batch_size=8, shuffle=True)"),
        ),
        ("optimizer.zero_grad()  # before backward", None, TWIN.replace("Healthy", "Sick")),
        ("DataLoader(dataset, batch_size=8, shuffle=True)", None, None),
        ("x = x / 255", None, None),
        (None, None, None),
    ],
)
def test_a_fix_goes_in_where_that_takes_no_thought(code: str | None, line: int | None, expected: str | None) -> None:
    assert fixes.apply(SCRIPT, finding(code, line), TWIN) == expected


def test_a_statement_that_stands_elsewhere_in_the_twin_moves() -> None:
    sick = "loss.backward()\noptimizer.zero_grad()\noptimizer.step()\n"
    twin = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"
    assert fixes.apply(sick, finding("optimizer.zero_grad()\nloss.backward()", None), twin) == twin


def test_outcomes_are_taken_up_again(tmp_path: Path) -> None:
    kept = outcome("dead-relu", ("dead-relu", "error", 0.9))
    Cache(tmp_path / "cache.jsonl", resume=False).keep("a", kept)
    with (tmp_path / "cache.jsonl").open("a") as file:
        file.write('{"key": "b", "tri')
    assert Cache(tmp_path / "cache.jsonl", resume=True).known == {"a": kept}
    assert Cache(tmp_path / "cache.jsonl", resume=False).known == {}


def test_a_run_can_be_cut() -> None:
    run = RunBuilder(50).scalar(LOSS_TRAIN, np.arange(50.0)).fact(ModelFact("m", "M", 1, 1, 1), 30).build()
    early = until(run, 20)
    assert (early.steps, early.finished, early.facts(ModelFact)) == (20, False, [])
    assert early.scalar(LOSS_TRAIN).values[-1] == 20


def outcome(truth: str | None, *found: tuple[str, str, float], grade: str = "") -> Outcome:
    said = [{"name": n, "severity": s, "confidence": c, "consequence_of": None} for n, s, c in found]
    return Outcome(Trial("zoo", f"{truth}/x", truth or "healthy", "x", truth, "x.py", 0, grade), 1.0, said)


def test_counts() -> None:
    outcomes = [
        outcome("dead-relu", ("dead-relu", "error", 0.9)),
        outcome("dead-relu", ("overfitting", "warning", 0.9), ("dead-relu", "info", 0.6)),
        outcome("dead-relu", grade="mild"),
        outcome(None, ("dead-relu", "info", 0.5)),
        outcome(None, ("dead-relu", "warning", 0.7)),
    ]
    told = dict(scores.summary(outcomes))
    assert told["medium, severe and ungraded faults: named first"] == "1/2 (50 %)"
    assert told["the same: named at all"] == "2/2 (100 %)"
    assert told["mild faults: named first"] == "0/1 (0 %)"
    assert told["healthy runs with an error or a warning"] == "1/2 (50 %)"
    assert ["0.90 to 0.95", "0.90", "1/2 (50 %)"] in scores.calibration(outcomes)
    assert len(scores.misses(outcomes)) == 2
    assert len(scores.false_alarms(outcomes)) == 1
