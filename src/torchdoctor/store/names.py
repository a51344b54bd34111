"""How a run lies on disk: the names of its files, and what they mean.

    run.json                                     what the run is; replaced as a whole, never edited
    run-r1.json                                  the same, as rank 1 saw it
    heartbeat-r1.json                            rank 1's last step and the line it was at; written anew at each flush
    TABLE-rRANK-sSESSION-pPID-NUMBER.arrow       an append-only Arrow IPC stream
    ....arrow.tmp                                being written; readers ignore it

A session is one process that wrote into the folder; a resumed run has several. Numbers count a session's segments
over all tables. Two tables stand for others and make them void by their number alone, so that a kill at any moment
leaves neither a gap nor anything counted twice: `digest-...-K` holds the histories of all scalars and matrices in
segments numbered below K, `ledger-...-K` the facts of those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FORMAT = 1
"""Raised when an older torchdoctor could no longer read what is written."""

RUN_FILE = "run.json"
TEMPORARY = ".tmp"

SERIES, SCALARS, STATS, HISTOGRAMS, FACTS = "series", "scalars", "stats", "histograms", "facts"
DIGEST, LEDGER = "digest", "ledger"
TABLES = (SERIES, SCALARS, STATS, HISTOGRAMS, FACTS, DIGEST, LEDGER)

COMPANIONS = (
    *("verdict*.json", "findings*.json", "report*.html", "report*.json", "journal.jsonl", "captures", "*.log"),
    *("replays.jsonl", "replays.jsonl*.tmp"),
)
"""What other parts of torchdoctor may put beside the store's own files; removed together with the run."""

_NAME = re.compile(rf"({'|'.join(TABLES)})-r(\d{{1,6}})-s(\d{{1,6}})-p(\d{{1,10}})-(\d{{1,9}})\.arrow")
_RANK_FILE = re.compile(r"run(?:-r(\d{1,6}))?\.json")
_HEARTBEAT_FILE = re.compile(r"heartbeat-r\d{1,6}\.json")


@dataclass(frozen=True, order=True)
class FileName:
    """A segment's file name, taken apart."""

    table: str
    rank: int
    session: int
    pid: int
    number: int

    def __str__(self) -> str:
        return f"{self.table}-r{self.rank}-s{self.session:03d}-p{self.pid}-{self.number:06d}.arrow"

    @classmethod
    def parse(cls, name: str) -> FileName | None:
        match = _NAME.fullmatch(name)
        return cls(match[1], *(int(match[i]) for i in range(2, 6))) if match else None


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def run_file(rank: int) -> str:
    return RUN_FILE if rank == 0 else f"run-r{rank}.json"


def heartbeat_file(rank: int) -> str:
    return f"heartbeat-r{rank}.json"


def rank_of_run_file(name: str) -> int | None:
    match = _RANK_FILE.fullmatch(name)
    return int(match[1] or 0) if match else None


def is_ours(name: str) -> bool:
    """Whether the store itself writes files of that name."""
    name = name.removesuffix(TEMPORARY)
    return bool(FileName.parse(name) or rank_of_run_file(name) is not None or _HEARTBEAT_FILE.fullmatch(name))
