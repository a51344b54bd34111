"""What the user chose for one watched run; travels to child processes as JSON. Imports no torch."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchdoctor.errors import UsageError

RUNS_FOLDER = "torchdoctor-runs"
ENVIRONMENT_KEY = "TORCHDOCTOR_OPTIONS"
DISABLE_KEY = "TORCHDOCTOR_DISABLE"

OVERHEAD = 0.01

NONFINITE, SPIKE, EXCEPTION, ASKED = "nonfinite", "spike", "exception", "asked"
REPORT, SKIP, HALT, ROLLBACK = "report", "skip", "halt", "rollback"
REMEDIES = (REPORT, SKIP, HALT, ROLLBACK)
"""What is done about a loss or gradient that is not finite."""
CAPTURES = (NONFINITE, SPIKE, EXCEPTION, ASKED)
"""On what a capture is taken; `asked` is doctor.capture(), which also works beside any of the others."""


def is_disabled() -> bool:
    """Whether the user switched all of it off in the environment."""
    return os.environ.get(DISABLE_KEY, "") not in ("", "0")


@dataclass(frozen=True)
class Options:
    """Defaults are what `watch()` uses."""

    out: str = RUNS_FOLDER
    """folder in which the run gets a folder of its own"""
    name: str | None = None
    """the run's name; None makes one from the script and the time"""
    overhead: float | None = None
    """share of a step's time that may be spent on measuring; None: 0.01"""
    modules: tuple[str, ...] = ("*",)
    """globs over module names: whose parameters and outputs are measured"""
    every_step: bool = False
    """take every signal on every step, whatever it costs"""
    live: bool = False
    """say findings as they come"""
    viewed: bool = False
    """the run is drawn in the terminal by whoever was asked to run it"""
    stop_on: tuple[str, ...] = ()
    """names of diagnoses that end the run"""
    prints: bool = False
    """read metrics off what the script prints; not in a program that calls watch(), where `print` is everybody's"""
    cap_bytes: int = 500_000_000
    """most that the run may take on disk"""
    snapshot_bytes: int = 256_000_000
    """most memory for copies of weights (updates are measured against a copy)"""
    capture: tuple[str, ...] = (NONFINITE, EXCEPTION)
    """on what the batch, the weights and the rest of the step's state are written to disk; none: never"""
    capture_bytes: int = 2 << 30
    """most that one capture may take in memory and on disk"""
    keep_captures: int = 5
    """of the captures of a run, the first half (rounded up) and the last"""
    on_nonfinite: str = REPORT
    """what is done about an update whose loss or gradients are not finite"""
    rollback_bytes: int = 2 << 30
    """most memory for the snapshot that `rollback` goes back to; none is taken in the other modes"""
    shared: bool = False
    """other processes may train under this name, too: one without a rank takes a free name (see ranks.take_place)"""
    settings: dict[str, Any] = field(default_factory=dict)
    """which rules are asked and how (settings.Settings.to_dict)"""

    def __post_init__(self) -> None:
        if self.overhead is not None and not 0 < self.overhead <= 1:
            raise UsageError(f"overhead is a share of the step's time between 0 and 1, not {self.overhead}")
        if not self.modules:
            raise UsageError('modules is empty: give at least one glob, such as "*" or "encoder.*"')
        for word in self.capture:
            if word not in CAPTURES:
                raise UsageError(f"capture takes {', '.join(CAPTURES)} or none, not {word!r}")
        if self.on_nonfinite not in REMEDIES:
            raise UsageError(f"on_nonfinite is {', '.join(REMEDIES[:-1])} or {ROLLBACK}, not {self.on_nonfinite!r}")
        if self.rollback_bytes < 1:
            raise UsageError('the memory for a rollback is at least 1 byte; on_nonfinite="skip" needs none')
        if self.capture_bytes < 1 or self.keep_captures < 1:
            raise UsageError("the limit and the number of captures are at least 1; --capture none switches them off")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        data = json.loads(text)
        data |= {name: tuple(data[name]) for name in ("modules", "stop_on", "capture")}
        return cls(**data)

    def directory(self, name: str) -> Path:
        return Path(self.out) / name
