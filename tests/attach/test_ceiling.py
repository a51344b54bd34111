"""No look without a ceiling: what it costs is predicted, divided, put off, and said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor import signals
from torchdoctor.attach import ceiling as ceilings
from torchdoctor.attach.ceiling import GRAPH, LATER_PART, PART, STATISTICS, Ceiling
from torchdoctor.attach.governor import Governor
from torchdoctor.attach.lines import LineTracing
from torchdoctor.facts import GraphFact, HealthFact
from torchdoctor.stats import fingerprint_each, fingerprints

pytestmark = pytest.mark.usefixtures("usual_ceiling")
ONCE = Ceiling.once
IS_ANOMALY_ENABLED = torch.is_anomaly_enabled
"""While lines are traced, another function tells the script what it has set itself."""


def test_no_piece_of_work_uses_up_what_is_left() -> None:
    ceiling = Ceiling(0.0)
    assert ceiling.can_spend(PART * ONCE)
    assert not ceiling.can_spend(1.1 * PART * ONCE)
    assert not ceiling.can_spend(1.1 * LATER_PART * ONCE, LATER_PART)
    ceiling.charge(2 * ONCE)
    assert ceiling.left < 0
    assert ceiling.share_of(GRAPH, 1) == 0.0
    assert ceiling.parts_of(STATISTICS, 10) == 0
    assert set(ceiling.describe()) == {GRAPH, STATISTICS}


def test_work_is_divided_by_what_it_was_seen_to_cost() -> None:
    ceiling = Ceiling(0.0)
    assert ceiling.parts_of(STATISTICS, 10) == 1
    assert not ceiling.skipped
    for _ in range(30):
        ceiling.learn(STATISTICS, 10, 10 * 3 * PART * ONCE / 100)
    assert ceiling.parts_of(STATISTICS, 100) == 4  # three do not do, and sets of tensors should not change often
    assert ceiling.parts_of(STATISTICS, 100_000) == 0


def test_without_a_share_nothing_is_left_out() -> None:
    ceiling = Ceiling()
    ceiling.charge(1e9)
    assert ceiling.share_of(GRAPH, 1e12) == 1.0


def test_first_looks_that_would_use_up_the_ceiling_are_put_off() -> None:
    ceiling = Ceiling(0.0)
    governor = Governor(0.01, {"look": 1.0}, ceiling=ceiling)
    taken = []
    for step in range(200):
        if "look" in governor.plan(step):
            taken.append(step)
            governor.spent("look", 0.3, step)
            ceiling.charge(0.3)
        governor.earned(0.001, 0.0, 0.0, step)
    assert taken == [0]


def test_lines_of_a_model_with_many_operations_are_read_for_its_loss_alone() -> None:
    lines = LineTracing(Ceiling(0.0))
    try:
        lines.forward(0, True, 100)
        assert IS_ANOMALY_ENABLED()
        lines.forward(0, True, 100_000)
        assert not IS_ANOMALY_ENABLED()
        lines.model_left(0, True)
        assert IS_ANOMALY_ENABLED()
        lines.forward(0, True, 1_000, again=True)
        assert not IS_ANOMALY_ENABLED()
    finally:
        lines.stop()


def test_small_tensors_hashed_together_have_their_own_fingerprints() -> None:
    shapes = [(3, 4), (7,), (3, 4), (), (3, 4), (300, 300), (7,)]
    tensors = [torch.randn(shape) for shape in shapes] + [torch.zeros(3, 4, dtype=torch.float64)]
    assert fingerprint_each(tensors).tolist() == [int(fingerprints(t.reshape(1, -1))[0]) for t in tensors]


def test_a_model_too_large_for_the_ceiling_is_measured_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs are set, not measured: the outcome must not depend on the machine."""
    monkeypatch.setattr(ceilings, "SECONDS_PER_UNIT", dict.fromkeys(ceilings.SECONDS_PER_UNIT, 0.002))
    monkeypatch.setattr(Ceiling, "learn", lambda *_: None)
    monkeypatch.setattr(Ceiling, "charge", lambda *_: None)
    torch.manual_seed(0)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(50)))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(30):
            loss = model(torch.randn(4, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    run = doctor.run()
    assert run is not None
    health = run.last_fact(HealthFact)
    assert health is not None
    assert {STATISTICS, GRAPH} <= set(health.skipped)
    weights = run.matrix(signals.WEIGHT_L2)
    assert set(weights.columns) == {name for name, _ in model.named_parameters()}
    assert not len(run.scalar(signals.WEIGHT_GLOBAL_L2).steps)
    graph = run.last_fact(GraphFact)
    assert graph is not None
    assert graph.nodes


def test_where_not_even_one_tensor_fits_none_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "SECONDS_PER_UNIT", dict.fromkeys(ceilings.SECONDS_PER_UNIT, ONCE))
    monkeypatch.setattr(Ceiling, "learn", lambda *_: None)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(30):
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
    run = doctor.run()
    assert run is not None
    assert not run.info.get("dropped")
    assert STATISTICS in (run.last_fact(HealthFact) or HealthFact(None, 0.0)).skipped
