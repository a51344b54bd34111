"""No rule concludes anything from a run in which its signals were not measured, and none breaks on hostile values."""

from __future__ import annotations

import dataclasses
import itertools
import math
import types
import typing
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from processes import preloaded_torchdoctor
from torchdoctor.facts import KINDS, Fact
from torchdoctor.findings import RuledOut
from torchdoctor.rules import LoadedRule, catalogue
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ALL, Scope
from torchdoctor.store.reader import open_run

RULES = catalogue()
KEYS = ("", "0", "0.0", "train", "validation")
COLUMNS = ("body.0.weight", "body.0.bias", "head.weight")
FAR = 2**62


def empty(kind: Any) -> Any:
    """Return a value of this annotation that says nothing: None where that is allowed, else zero, "" or empty."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        parts = typing.get_args(kind)
        return None if type(None) in parts else empty(parts[0])
    origin = typing.get_origin(kind) or kind
    return {bool: False, int: 0, float: math.nan, str: "", list: [], dict: {}, tuple: ()}.get(origin)


def fact(kind: type[Fact]) -> Fact:
    """Return a fact of this kind that was written without anything having been seen."""
    hints = typing.get_type_hints(kind)
    return kind(**{f.name: empty(hints[f.name]) for f in dataclasses.fields(kind)})


def course(steps: Sequence[int], value: float, *facts: Fact, ragged: bool = False) -> Run:
    """Return a run in which every signal has this value at these steps; `ragged`: some signals lack some of them."""
    builder = RunBuilder(steps=(max(steps) + 1) if len(steps) else 0)
    for number, signal in enumerate(ALL.values()):
        at = steps[: -1 - number % 3] if ragged else steps
        if signal.scope is Scope.STEP:
            for key in KEYS:
                builder.scalar(signal, np.full(len(at), value), key, at)
        else:
            builder.matrix(signal, {c: np.full(len(at), value) for c in COLUMNS}, at)
    for f in facts:
        builder.fact(f, step=steps[-1] if len(steps) else 0)
    return builder.build()


EMPTY_FACTS = [fact(kind) for kind in KINDS.values()]


def said(rule: LoadedRule, run: Run) -> list[Any]:
    """Return what the rule says where the engine would ask it."""
    return [] if rule.rule.missing(run) else list(rule.detect(run))


def by_name(rule: LoadedRule) -> str:
    return rule.rule.name


@cache
def unmeasured() -> Run:
    run = course(range(120), math.nan)
    return dataclasses.replace(run, available=frozenset(k for k in run.available if not k[0].startswith("loss.")))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_nothing_is_concluded_from_nan(rule: LoadedRule) -> None:
    """Signals that were taken and hold nothing but NaN; losses excepted, in which NaN is a value."""
    assert said(rule, unmeasured()) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_nothing_is_concluded_from_no_steps(rule: LoadedRule) -> None:
    assert said(rule, course((), 1.0)) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_nothing_is_concluded_from_empty_facts(rule: LoadedRule) -> None:
    assert said(rule, course((), 1.0, *EMPTY_FACTS)) == []
    assert said(rule, course(range(120), math.nan, *EMPTY_FACTS)) == []


@cache
def steady() -> Run:
    return course(range(120), 1.0)


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_a_signal_that_is_missing_rules_nothing_out(rule: LoadedRule) -> None:
    """Whatever else there is: no reason against a diagnosis may name a signal that the run does not have."""
    run = steady()
    for missing in {name for name, _ in run.available}:
        kept = frozenset(k for k in run.available if k[0] != missing)
        found = said(rule, dataclasses.replace(run, available=kept))
        assert not [f for f in found if isinstance(f, RuledOut) and f.signal == missing]


HOSTILE = {
    "gap": (0, 1, 2, FAR, FAR + 1),
    "far": tuple(range(FAR - 120, FAR)),
    "below zero": (-FAR, -1, 0, 1, 2),
    "repeated": tuple(step // 3 for step in range(120)),
    "backwards": tuple(range(120, 0, -1)),
    "near": tuple(range(120)),
}


@cache
def hostile_run(steps: str, value: float, ragged: bool) -> Run:
    return course(HOSTILE[steps], value, *EMPTY_FACTS, ragged=ragged)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_no_rule_breaks(rule: LoadedRule) -> None:
    for steps, value, ragged in itertools.product(HOSTILE, (0.0, 1.0, -1.0, 1e38, -math.inf), (False, True)):
        with np.errstate(all="ignore"):
            said(rule, hostile_run(steps, value, ragged))


SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(512, 3, 8, 8)
y = (x.mean((1, 2, 3)) > 0).long() + 2 * (x[:, 0, 0, 0] > 0).long()
train = DataLoader(TensorDataset(x[:384], y[:384]), 32, shuffle=True)
val = DataLoader(TensorDataset(x[384:], y[384:]), 64)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(288, 4)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(8):
    model.train()
    for inputs, labels in train:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(sum(nn.functional.cross_entropy(model(a), b).item() for a, b in val))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the record of a short, sound training."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(SCRIPT)
    done = preloaded_torchdoctor("run", "--out", "run", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return open_run(next((folder / "run").iterdir()))


def conclusions(run: Run) -> dict[str, str]:
    found = [c for rule in RULES for c in said(rule, run)]
    return {f"{type(c).__name__} {c.name}": c.text if isinstance(c, RuledOut) else c.title for c in found}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", ["missing", "nan"])
def test_nothing_new_is_concluded_from_less(recorded: Run, way: str) -> None:
    """Take one kind of evidence at a time away from a real record: what is left must not speak against more causes."""
    before = conclusions(recorded)
    assert sum(name.startswith("RuledOut") for name in before) >= 10
    for signal in {name for name, _ in recorded.available}:
        less = without_signal(recorded, signal) if way == "missing" else with_nan(recorded, signal)
        assert not {n for n in conclusions(less) if n.startswith("RuledOut")} - set(before), signal
    for kind in {type(seen.fact) for seen in recorded.seen}:
        less = dataclasses.replace(recorded, seen=[s for s in recorded.seen if type(s.fact) is not kind])
        assert not {n for n in conclusions(less) if n.startswith("RuledOut")} - set(before), kind.kind


def without_signal(run: Run, signal: str) -> Run:
    return dataclasses.replace(run, available=frozenset(k for k in run.available if k[0] != signal), _cache={})


def with_nan(run: Run, signal: str) -> Run:
    def load(name: str, key: str) -> Trace:
        trace = run.load(name, key)
        if name != signal:
            return trace
        gone = np.full_like(trace.values, np.nan, dtype=np.float64)
        return Trace(trace.steps, gone, gone, gone, trace.columns, trace.merged)

    return dataclasses.replace(run, load=load, _cache={})
