"""How many batches a loop fetches before it needs them."""

from __future__ import annotations

import weakref

import pytest
import torch

from torchdoctor.probes.step_start import StepStart


@pytest.mark.parametrize(
    ("before", "lead"),
    [
        ([0, 1, 2, 3], 0),
        ([0, 0, 1, 2, 3], 1),
        ([0, 2, 4, 6], 0),
        ([0, 0, 1, 1, 2, 2], 0),
        ([0, 0, 0, 0, 0, 4, 4, 4, 4, 8], 1),
    ],
    ids=["plain", "one-ahead", "two-backwards-a-batch", "two-batches-a-backward", "four-and-one-ahead"],
)
def test_the_lead_is_learned_from_the_first_backwards(before: list[int], lead: int) -> None:
    start = StepStart()
    for count in before:
        start.fetched(None, [], 0, ("train", 1), count)
    assert start.lead == lead


def test_a_loader_that_has_no_more_leaves_nothing_ahead() -> None:
    start = StepStart()
    for count in (0, 0, 1, 2, 3):
        start.fetched(None, [], 0, ("train", 1), count)
    assert start.ahead == 1
    start.exhausted()
    assert start.ahead == 0


def test_a_batch_of_an_earlier_walk_is_not_of_this_one() -> None:
    start = StepStart()
    start.fetched("peeked", [], 0, ("train", 1), 0)
    start.fetched("first", [], 0, ("train", 2), 0)
    assert start.of_this_walk() == ["first"]


def test_two_loaders_are_walked_side_by_side() -> None:
    start = StepStart()
    start.fetched("a", [], 0, ("left", 1), 0)
    start.fetched("b", [], 0, ("right", 2), 0)
    assert start.of_this_walk() == ["a", "b"]


@pytest.mark.parametrize("lead", [0, 1])
def test_after_a_walk_batches_are_held_no_longer_than_the_script_holds_them(lead: int) -> None:
    start = StepStart()
    start.lead = lead
    batch = {"x": torch.zeros(2, 2), "names": ["a", "b"], "none": None}
    start.fetched(batch, [], 0)
    reference = weakref.ref(batch["x"])  # type: ignore[arg-type]
    start.exhausted()
    start.updated()
    (held,) = start.batches
    assert held["x"] is batch["x"] and held["names"] == ["a", "b"] and held["none"] is None
    del held, batch
    assert reference() is None
    assert start.batches == start.of_this_walk() == []


def test_a_batch_that_is_still_to_be_used_is_held() -> None:
    start = StepStart()
    start.lead = 1
    start.fetched([torch.zeros(2)], [], 0)
    start.exhausted()
    assert len(start.batches) == 1


@pytest.mark.parametrize("lead", [0, 1])
def test_batches_whose_update_is_over_are_held_no_longer_than_the_script_holds_them(lead: int) -> None:
    start = StepStart()
    batches = [torch.full((2,), float(n)) for n in range(6)]
    references = [weakref.ref(batch) for batch in batches]
    before = -lead
    while batches:
        start.fetched(batches.pop(0), [], 0, ("train", 1), max(0, before))
        before += 1
        if before > 0:
            start.updated()
    assert start.lead == lead
    held = [reference() is not None for reference in references]
    assert held == [False] * (6 - lead) + [True] * lead


def test_a_batch_stays_until_the_last_optimizer_of_its_step_has_stepped() -> None:
    """The batch of a GAN, of which the script keeps nothing but another view."""
    start = StepStart()
    for count in range(4):
        start.fetched(torch.zeros(2), [], 0, ("train", 1), count)
    start.updated(is_alone=False)
    assert len(start.batches) == 2
    start.updated(is_alone=True)
    assert not start.batches
