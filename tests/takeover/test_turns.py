from __future__ import annotations

import pytest

from torchdoctor.takeover.turns import Turns


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize(
    ("steps", "taken", "at_work", "count"),
    [
        ("-a-a-a", False, "a", 3),
        ("-ab-ab-ab", False, "ab", 3),
        ("-ab-ab-a", False, "ab", 3),
        ("--ab--ab--ab", False, "ab", 3),
        ("-a-b-a-b", True, "", 4),
        ("-a-a-a-a-a-b-a-a", True, "", 8),
        ("-ab-a-ab", True, "", 3),
        ("-a-a-a-b-b", False, "b", 5),
    ],
    ids=["one", "together", "midway", "accumulated", "by-turns", "critics", "one-more-often", "stages"],
)
def test_who_makes_the_updates(steps: str, taken: bool, at_work: str, count: int) -> None:
    turns, optimizers, backwards = Turns(), {name: Named(name) for name in "ab"}, 0
    for step in steps:
        backwards += step == "-"
        if step in optimizers:
            turns.stepped(optimizers[step], backwards)
    assert (turns.are_taken, turns.count) == (taken, count)
    assert taken or "".join(name for name, o in optimizers.items() if turns.is_at_work(o)) == at_work
