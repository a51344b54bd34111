"""How much of a run is read at most, so that a folder with any number of files is opened in a few seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MAX_LISTED = 200_000
"""Entries of the folder that are looked at."""
MAX_FILES = 4_000
"""Files of one rank that are read. A run of 200,000 steps has some 25, and as many more for each time it is resumed."""
MAX_FACT_BYTES = 48_000_000
"""Of all files with facts, while a ledger and what came after it are at most some 20 MB."""


@dataclass
class Ceiling:
    """What was left out, by reason. One for each reading of a rank."""

    left_out: Counter[str] = field(default_factory=Counter)
    _fact_bytes: int = 0

    def admits_listed(self, number: int) -> bool:
        if number < MAX_LISTED:
            return True
        self.left_out[f"files of a folder with more than {MAX_LISTED:,}"] += 1
        return False

    def cut_files(self, number: int) -> int:
        """How many of so many files are read."""
        if number > MAX_FILES:
            self.left_out[f"files beyond the first {MAX_FILES:,}"] = number - MAX_FILES
        return min(number, MAX_FILES)

    def admits_facts(self, size: int) -> bool:
        """Whether one more file of facts is read."""
        if self._fact_bytes + size > MAX_FACT_BYTES:
            self.left_out[f"files of facts beyond {MAX_FACT_BYTES // 1_000_000} MB"] += 1
            return False
        self._fact_bytes += size
        return True
