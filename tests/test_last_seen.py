"""Which rank was lost first, and which others only followed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchdoctor.engine import ACROSS_RANKS, examine
from torchdoctor.last_seen import LastSeen, ProcessEnding, Ranks
from torchdoctor.report.endings import describe_ending, describe_ranks, rank_headline
from torchdoctor.report.found import RANKS_APART, describe_not_examined
from torchdoctor.report.headlines import headline_of
from torchdoctor.run import Run, Trace

HERE = Path("/nowhere")


def info(*seen: LastSeen, **more: Any) -> dict[str, Any]:
    return {"status": seen[0].status, "steps": 9, "ranks": [each.to_dict() for each in seen], **more}


def killed(rank: int, name: str | None, when: float, step: int = 8) -> LastSeen:
    return LastSeen(rank, "died", step, when, 0.1, "train.py", 30, ending=ProcessEnding(signal=name))


def failed(rank: int, message: str, when: float, step: int = 8) -> LastSeen:
    return LastSeen(rank, "crashed", step, when, 0.1, "train.py", 31, "RuntimeError", message)


BROKEN = "[pair.cc:553] Connection closed by peer [127.0.0.1]:58070"


@pytest.mark.parametrize(
    ("seen", "first"),
    [
        ((failed(0, BROKEN, 2), killed(1, "SIGKILL", 3)), 1),
        ((killed(0, "SIGTERM", 2), killed(1, "SIGKILL", 3)), 1),
        ((killed(0, "SIGTERM", 3), killed(1, "SIGTERM", 2)), 1),
        ((failed(0, BROKEN, 3), failed(1, "division by zero", 4)), 1),
        ((failed(0, BROKEN, 3), killed(1, None, 4)), 1),
        ((failed(0, BROKEN, 3), LastSeen(1, "finished", 5, 2)), None),
        ((failed(0, "Timed out waiting 1800000ms for recv", 3), LastSeen(1, "running", 2, 2)), None),
        ((failed(0, "Timed out waiting 8000ms for recv", 2), killed(1, "SIGTERM", 3)), None),
        ((LastSeen(0, "finished"), LastSeen(1, "finished")), None),
    ],
)
def test_the_rank_that_was_lost_first_is_named(seen: tuple[LastSeen, ...], first: int | None) -> None:
    named = Ranks.of(info(*seen)).first_lost
    assert (named.rank if named else None) == first


def test_the_lost_rank_comes_first_and_the_others_are_consequences() -> None:
    told = info(failed(0, BROKEN, 3, 9), killed(1, "SIGKILL", 2), LastSeen(2, "running", 9), world_size=4)
    headline = rank_headline(told)
    assert headline is not None and "Rank 1" in headline and "SIGKILL" in headline and "8" in headline
    first, second, third, unseen = describe_ranks(told, HERE)
    assert first.startswith("rank 1 ") and "train.py:30" in first and "consequence" not in first
    assert second.startswith("rank 0 ") and "Connection closed by peer" in second and "consequence" in second
    assert third.startswith("rank 2 still runs")
    assert unseen.startswith("1 rank of 4")


def test_where_only_connections_broke_the_rank_that_is_behind_is_named() -> None:
    told = info(failed(0, BROKEN, 3, 9), LastSeen(1, "running", 2, 3, 34.0, "train.py", 20))
    headline = rank_headline(told)
    assert headline is not None and "rank 1" in headline and "step 2" in headline
    assert "34 s" in describe_ranks(told, HERE)[1]


def test_a_lost_rank_is_no_clean_bill_and_what_was_not_compared_is_listed() -> None:
    told = info(LastSeen(0, "finished", 8), killed(1, "SIGKILL", 2))
    verdict = examine(Run(told, frozenset(), lambda *_: Trace.empty(), (), steps=9))
    assert ACROSS_RANKS in {entry["name"] for entry in verdict.to_dict()["not_examined"]}
    assert any(RANKS_APART in line for line in describe_not_examined(verdict))
    top = headline_of(verdict, 9)
    assert top.severity == "error" and top.title == rank_headline(told)


def test_a_run_of_one_process_says_how_it_ended_in_a_sentence() -> None:
    sentence = describe_ending(info(killed(0, "SIGTERM", 2)), HERE)
    assert sentence is not None and "SIGTERM" in sentence and "train.py:30" in sentence
    assert rank_headline(info(killed(0, "SIGTERM", 2))) is None
    assert describe_ending(info(LastSeen(0, "finished")), HERE) is None
    memory = LastSeen(0, "died", ending=ProcessEnding("SIGKILL", out_of_memory=True))
    assert "memory" in str(describe_ending(info(memory), HERE))
    verdict = examine(Run(info(LastSeen(0, "finished")), frozenset(), lambda *_: Trace.empty(), ()))
    assert ACROSS_RANKS not in {entry.name for entry in verdict.not_examined}
