"""Looks stay inside the budget, and every run has some."""

from __future__ import annotations

import itertools

import pytest

from torchdoctor.attach.governor import DETAIL_INTERVAL, EARLY_STEPS, LONGEST_DETAIL_INTERVAL, Governor

pytestmark = pytest.mark.usefixtures("usual_ceiling")


def drive(governor: Governor, steps: int, step_seconds: float, base: float, cost: float) -> list[int]:
    """A loop in which a look costs `cost` and everything else of ours `base`."""
    taken = []
    for step in range(steps):
        looks = governor.plan(step)
        spent = 0.0
        if "look" in looks:
            taken.append(step)
            governor.spent("look", cost, step)
            spent = cost
        governor.earned(step_seconds + base + spent, base + spent, spent, step)
    return taken


@pytest.mark.parametrize("cost", [1e-4, 1e-3, 1e-2])
def test_a_long_run_stays_inside_the_budget(cost: float) -> None:
    governor = Governor(0.03, {"look": 1.0})
    drive(governor, 20_000, 0.01, 5e-5, cost)
    assert governor.overhead is not None
    assert governor.overhead < 0.035


def test_a_cheap_look_is_taken_on_every_step() -> None:
    governor = Governor(0.03, {"look": 1.0})
    taken = drive(governor, 1000, 0.01, 0.0, 1e-4)
    assert len(taken) > 900


def test_the_first_steps_are_looked_at_whatever_they_cost() -> None:
    governor = Governor(0.01, {"look": 1.0})
    taken = drive(governor, 21, 0.001, 0.0, 1.0)
    assert set(taken) == set(EARLY_STEPS)


def test_dear_looks_still_come_at_steps_that_grow() -> None:
    governor = Governor(0.01, {"look": 1.0})
    taken = drive(governor, 100_000, 1e-4, 0.0, 1.0)
    late = [step for step in taken if step > 1000]
    assert 8 <= len(late) <= 30
    assert late[-1] > 50_000


def test_structural_signals_over_budget_leave_looks_a_little() -> None:
    governor = Governor(0.03, {"look": 1.0})
    taken = drive(governor, 5000, 0.001, 1e-4, 1e-3)
    assert len(taken) > 30
    assert governor.overhead is not None
    assert governor.overhead < 0.1 + 0.03


def test_every_step_means_every_step() -> None:
    governor = Governor(0.01, {"look": 0.5, "batch": 0.5}, every_step=True)
    assert all(governor.plan(step) == {"look", "batch"} for step in range(50))


def full_steps(governor: Governor, steps: range) -> list[int]:
    """Of a loop whose full steps cost many times what its counted steps do."""
    full = []
    for step in steps:
        governor.plan(step)
        if governor.detailed:
            full.append(step)
        own = 5e-4 if governor.detailed else 1e-5
        governor.earned(4e-4 + own, own, 0.0, step, counted=not governor.detailed)
    return full


def test_full_steps_become_rarer_until_the_loop_changes() -> None:
    governor = Governor(0.01, {"look": 1.0})
    full = full_steps(governor, range(40_000))
    gaps = [after - before for before, after in itertools.pairwise(full)]
    assert max(gaps[:40]) <= DETAIL_INTERVAL < max(gaps) <= LONGEST_DETAIL_INTERVAL
    governor.loop_changed(40_000)
    full = full_steps(governor, range(40_000, 41_000))
    assert full[0] <= 40_001
    assert max(after - before for before, after in itertools.pairwise(full)) <= DETAIL_INTERVAL
