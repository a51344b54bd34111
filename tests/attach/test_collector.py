"""The garbage collector is the script's: what we do to it while we start is undone."""

from __future__ import annotations

import gc
import os
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
    before = gc.get_freeze_count()
    keep_for_good()
    assert gc.get_freeze_count() <= before
    assert any(each is thing for each in gc.get_objects())


def test_what_the_script_has_frozen_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    keep_for_good()
    assert gc.get_freeze_count() >= before > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_child_that_is_forked_meanwhile_collects() -> None:
    with collector_rests():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert not gc.isenabled()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
