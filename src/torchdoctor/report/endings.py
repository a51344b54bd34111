"""How a run ended, in sentences: the process, or each rank with its last step and line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchdoctor.last_seen import DIED, RUNNING, STANDSTILL, LastSeen, ProcessEnding, Ranks
from torchdoctor.report.sheet import shorten
from torchdoctor.report.text import CUT, clean, count

UNTIL_THEN = "this is what was seen until then."
SENTENCES = {
    "crashed": f"The script crashed; {UNTIL_THEN}",
    "interrupted": f"The script was interrupted; {UNTIL_THEN}",
    "running": "The run is still training; this is what was seen so far.",
}
VERBS = {"finished": "finished", "crashed": "failed", "interrupted": "was interrupted", RUNNING: "still runs"}
DISCONNECTED = "The ranks lost the connection to one another"
MESSAGE_SHOWN = 100
SOURCE_OF_ERROR = re.compile(r"^\[\S+:\d+\] ")
"""The line of PyTorch's C++ code with which errors of its transports begin."""
RANKS_SHOWN = 8


def describe_ending(info: Mapping[str, Any], cwd: Path) -> str | None:
    """One sentence on how the run ended; None where it finished, or its ranks are told one by one."""
    ranks = Ranks.of(info)
    if len(ranks.seen) != 1 or (seen := ranks.seen[0]).status != DIED:
        return SENTENCES.get(str(info.get("status")))
    where = describe_place(seen, cwd)
    return f"The process {describe_end(seen)}{'; ' if where else ''}{where}. This is what was seen until then."


def describe_end(seen: LastSeen) -> str:
    """What happened to a rank, as what follows its name in a sentence."""
    if seen.status == DIED:
        return _describe_death(seen.ending or ProcessEnding())
    words = VERBS.get(seen.status, f"ended ({clean(seen.status)})")
    if seen.error is None:
        status = seen.ending.status if seen.ending is not None else None
        return words if status is None else f"{words} with exit status {status}"
    message = SOURCE_OF_ERROR.sub("", clean(seen.message or ""))
    message = message if len(message) <= MESSAGE_SHOWN else f"{message[: MESSAGE_SHOWN - len(CUT)]}{CUT}"
    return f"{words} with {clean(seen.error)}{': ' if message else ''}{message}"


def _describe_death(ending: ProcessEnding) -> str:
    if ending.replaced:
        return "was replaced by another program (os.exec)"
    if ending.signal is not None:
        memory = " while the kernel was killing processes for lack of memory" if ending.out_of_memory else ""
        return f"was killed by {clean(ending.signal)}{memory}"
    if ending.status is not None:
        return f"ended with status {ending.status} without closing its record (os._exit, or a program in its place)"
    return "disappeared without closing its record (it was killed, or left by os._exit)"


def describe_place(seen: LastSeen, cwd: Path) -> str:
    """Its last recorded step and line, and for how long it had been there if that is long."""
    parts = []
    if seen.last_step is not None:
        parts.append(f"its last recorded step is {seen.last_step:,}")
    if seen.file is not None:
        line = f":{seen.line}" if seen.line is not None else ""
        parts.append(f"{'at' if parts else 'it was last seen at'} {clean(shorten(seen.file, cwd))}{line}")
    if parts and seen.stood is not None and seen.stood >= STANDSTILL:
        parts.append(f"where it had been for {seen.stood:.0f} s")
    return ", ".join(parts)


def rank_headline(info: Mapping[str, Any]) -> str | None:
    """What a run of several ranks ended by; None where all of them finished or go on."""
    ranks = Ranks.of(info)
    if not ranks.are_several or not any(s.is_lost for s in ranks.seen):
        return None
    first = ranks.first_lost
    if first is not None:
        step = f" after step {first.last_step:,}" if first.last_step is not None else ""
        return f"Rank {first.rank} {describe_end(first)}{step}"
    behind = ranks.furthest_behind
    if behind is not None:
        stood = f" and had been there for {behind.stood:.0f} s" if (behind.stood or 0.0) >= STANDSTILL else ""
        return f"{DISCONNECTED}; rank {behind.rank} was behind the others, at step {behind.last_step:,}{stood}"
    if ranks.unseen:
        return f"{DISCONNECTED}; {count(ranks.unseen, 'rank')} left no record"
    return DISCONNECTED


def describe_ranks(info: Mapping[str, Any], cwd: Path) -> list[str]:
    """One entry for each rank, the first one that was lost first."""
    ranks = Ranks.of(info)
    if not ranks.are_several or not ranks.seen:
        return []
    first = ranks.first_lost
    ordered = sorted(ranks.seen, key=lambda s: (s is not first, not s.is_lost, s.rank))
    lines = [_describe_rank(seen, first, cwd) for seen in ordered[:RANKS_SHOWN]]
    if len(ordered) > RANKS_SHOWN:
        lines.append(f"and {count(len(ordered) - RANKS_SHOWN, 'other rank')} (all in --json)")
    if ranks.unseen:
        lines.append(f"{count(ranks.unseen, 'rank')} of {ranks.world_size} left no record in this folder")
    return lines


def _describe_rank(seen: LastSeen, first: LastSeen | None, cwd: Path) -> str:
    where = describe_place(seen, cwd)
    line = f"rank {seen.rank} {describe_end(seen)}{'; ' if where else ''}{where}"
    if first is None or seen is first or not seen.is_lost:
        return line
    if seen.lost_connection:
        return f"{line}. This is a consequence: connections break when a rank ends"
    if seen.was_ended_by_launcher:
        return f"{line}. This is likely a consequence: launchers end the other ranks in this way"
    return line
