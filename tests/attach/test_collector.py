"""The garbage collector is the script's: what we do to it while we start is undone."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from torchdoctor.attach.collector import collector_rests, keep_for_good


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize("was_on", [True, False])
def test_it_rests_inside_and_is_as_before_afterwards(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    with pytest.raises(KeyError), collector_rests():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled() == was_on


def test_what_is_kept_for_good_is_still_collected_and_listed() -> None:
    thing: list[object] = []
    keep_for_good()
    assert gc.get_freeze_count() == 0
    assert any(each is thing for each in gc.get_objects())


def test_what_the_script_has_frozen_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    keep_for_good()
    assert gc.get_freeze_count() >= before > 0
