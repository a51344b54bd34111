"""What a station of the lab is made of: controls, presets worth seeing, and what is shown of a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchdoctor.errors import UsageError
from torchdoctor.plots.chart import Chart, pack

Value = str | int | float | bool
Choices = Mapping[str, Value]


@dataclass(frozen=True)
class Pick:
    """One of several words."""

    name: str
    label: str
    options: Mapping[str, str]
    """value -> what is shown"""
    default: str
    help: str = ""

    def read(self, text: str) -> str:
        if text not in self.options:
            raise UsageError(f"{self.name} is one of {', '.join(self.options)}")
        return text


@dataclass(frozen=True)
class Scale:
    """A number. Where `log`, what is moved and chosen is its power of ten: -2 is 0.01."""

    name: str
    label: str
    low: float
    high: float
    default: float
    step: float = 1
    log: bool = False
    help: str = ""

    def read(self, text: str) -> int | float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not self.low <= value <= self.high:
            raise UsageError(f"{self.name} lies between {self.low:g} and {self.high:g}")
        return value if self.log or self.step % 1 else round(value)


@dataclass(frozen=True)
class Switch:
    """On or off."""

    name: str
    label: str
    default: bool = False
    help: str = ""

    def read(self, text: str) -> bool:
        if text not in ("0", "1"):
            raise UsageError(f"{self.name} is 0 or 1")
        return text == "1"


Control = Pick | Scale | Switch


@dataclass(frozen=True)
class Preset:
    """Choices that show something worth knowing; what they leave out is as at the beginning."""

    label: str
    choices: Choices
    text: str = ""
    """what to look for"""


@dataclass(frozen=True)
class Moving:
    """One trace of a chart that changes from frame to frame."""

    chart: str
    trace: int
    frames: Sequence[Mapping[str, Any]]
    """for each frame what replaces the trace's own: {"z": ...}"""


@dataclass(frozen=True)
class Frames:
    """Moments that the page walks through, by a slider or as a film; the last one is what the charts show at first."""

    axis: str
    """title of the axis along which a cursor moves in the charts that have it"""
    at: Sequence[int]
    """where on that axis each frame stands"""
    moving: Sequence[Moving] = ()
    titles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """of a chart, for each frame"""

    def to_json(self) -> dict[str, Any]:
        return {
            "axis": self.axis,
            "at": [int(step) for step in self.at],
            "moving": [{"chart": m.chart, "trace": m.trace, "frames": pack(m.frames)} for m in self.moving],
            "titles": {name: list(titles) for name, titles in self.titles.items()},
        }


@dataclass(frozen=True)
class Verdict:
    """What is made of a result, in the words of Shown."""

    severity: str
    title: str
    advice: str = ""
    diagnosis: str = ""


@dataclass(frozen=True)
class Shown:
    """What came out, for a person: one sentence, why, what to do about it, and the figures."""

    severity: str
    """healthy, info, warning or error: as of a finding"""
    title: str
    text: str = ""
    advice: str = ""
    diagnosis: str = ""
    """the name that torchdoctor would give it, for explain"""
    figures: Sequence[tuple[str, str]] = ()
    """names and values of single numbers"""
    charts: Sequence[Chart] = field(default_factory=list)
    wide: Sequence[str] = ()
    """charts that take a row for themselves"""
    frames: Frames | None = None


@dataclass(frozen=True)
class Station:
    name: str
    title: str
    text: str
    """what can be learned here, in a sentence or two"""
    controls: Sequence[Control]
    presets: Sequence[Preset]
    draw: Callable[[Choices, Mapping[str, Any]], Shown]
    """from the choices and what was computed"""

    def defaults(self) -> dict[str, Value]:
        return {control.name: control.default for control in self.controls}

    def read(self, asked: Mapping[str, str]) -> dict[str, Value]:
        """Choices as a request brings them; what it leaves out is as at the beginning. UsageError for wrong ones."""
        return {c.name: c.read(asked[c.name]) if c.name in asked else c.default for c in self.controls}
