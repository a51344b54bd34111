"""The line of the user's code that is meant."""

from __future__ import annotations

from torch import nn

from torchdoctor.attach import places


def test_what_is_handed_to_apply_is_named_by_the_line_that_did_so() -> None:
    found: list[str] = []

    def note(_: nn.Module) -> None:
        place = places.applier()
        found.append(place.code if place else "")

    nn.Sequential(nn.Sequential(nn.Linear(2, 2))).apply(note)
    note(nn.Linear(2, 2))
    *applied, called = found
    assert len(applied) == 3 and all("apply(note)" in code for code in applied)
    assert called == "place = places.applier()"
