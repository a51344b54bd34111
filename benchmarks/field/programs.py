"""What a case of the field is: a healthy program, or a program with one fault, in a project's own training loop.

A project's folder holds scripts, each a few lines that drive a loop of the project, and a `cases.py` that declares
what is run: PROJECT, PROGRAMS and FAULTS. A script takes `--seed N`, and prints `metric NAME VALUE` at its end.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from field.projects import Project, read_register

KINDS = (
    *("tabular", "vision", "language", "time-series", "graph", "reinforcement", "generative", "segmentation"),
    *(
        "detection",
        "metric-learning",
        "bayesian",
        "physics",
        "speech",
        "recommendation",
        "survival",
        "science",
        "other",
    ),
)
STYLES = ("trainer", "plain", "closure", "callbacks", "several-optimizers", "no-loader", "no-torch-optim", "compiled")
CATEGORIES = ("defect", "condition", "data", "evaluation", "numerics", "speed")
HIGHER, LOWER = "higher", "lower"
CONFIRMED = "confirmed.json"
"""File in a project's folder."""
SCRIPT = "train.py"
"""Every program is called this where it runs, so that its name gives nothing away."""

Edit = Callable[[str], str]


@dataclass(frozen=True)
class Environment:
    """The packages of a project's programs."""

    requires: tuple[str, ...]
    """pinned requirements; torch and torchdoctor are there already"""
    sources: tuple[str, ...] = ()
    """pinned distributions whose source is unpacked, for loops that are not installed (examples, scripts)"""


@dataclass(frozen=True)
class Metric:
    """The program's own measure of success, and what the project's documentation lets one expect of it."""

    better: str
    """`higher` or `lower`"""
    promise: float
    """a healthy program is at least this good, with every seed that was tried"""

    def is_reached(self, value: float) -> bool:
        return value >= self.promise if self.better == HIGHER else value <= self.promise


@dataclass(frozen=True)
class Program:
    """A healthy use of a project's loop."""

    name: str
    script: str
    """file beside cases.py"""
    kind: str
    style: str
    metric: Metric
    arguments: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    """what is put beside the script before the start, so that it counts as the user's own code and can be edited:
    installed packages by import name, or `DISTRIBUTION:PATH` for a file or folder of an unpacked source"""


@dataclass(frozen=True)
class Fault:
    """One mistake, made in a healthy program by options, data or an edited line."""

    name: str
    program: str
    accepted: tuple[str, ...]
    """diagnoses that name the cause, written down before any verdict was seen; empty where the catalogue has none"""
    category: str
    source: str
    """address of the bug report, question or fixing commit that the mistake was taken from"""
    mistake: str
    """one sentence: what is wrong, and what it does to the program"""
    arguments: tuple[str, ...] | None = None
    """instead of the program's"""
    slower: float | None = None
    """for faults of speed: the program takes at least so many times the healthy program's processor time"""
    edits: dict[str, Edit] = field(default_factory=dict)
    """by file: `train.py`, or a path below what `copies` put beside it"""


@dataclass(frozen=True)
class Case:
    """A program to run, with or without a fault."""

    project: Project
    environment: Environment
    program: Program
    fault: Fault | None = None

    @property
    def label(self) -> str:
        return "/".join([self.project.name, self.program.name, *([self.fault.name] if self.fault else [])])

    @property
    def arguments(self) -> tuple[str, ...]:
        chosen = self.fault.arguments if self.fault else None
        return self.program.arguments if chosen is None else chosen

    @property
    def script(self) -> Path:
        return self.project.folder / self.program.script

    def confirmed(self) -> dict[str, Any] | None:
        """Return what was measured bare, with every seed, when the label was confirmed. None if it was not yet."""
        path = self.project.folder / CONFIRMED
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return known.get(self.label)

    def digest(self) -> str:
        """Return a hash of all that decides what the program does. `accepted` is not part of it."""
        facts = {
            "environment": asdict(self.environment),
            "script": self._edited_script(),
            "arguments": self.arguments,
            "copies": self.program.copies,
            "edits": {name: edit.__code__.co_code.hex() + repr(_constants(edit)) for name, edit in self._edits()},
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]

    def _edits(self) -> list[tuple[str, Edit]]:
        return sorted(self.fault.edits.items()) if self.fault else []

    def _edited_script(self) -> str:
        text = self.script.read_text(encoding="utf-8")
        edit = dict(self._edits()).get(SCRIPT)
        return text if edit is None else edit(text)


def _constants(edit: Edit) -> tuple[object, ...]:
    closed = tuple(cell.cell_contents for cell in edit.__closure__ or ())
    return (edit.__code__.co_consts, tuple(c for c in closed if isinstance(c, (str, int))))


def read_cases(half: str | None = None) -> list[Case]:
    """Return the cases of all projects that have any, of one half or of both."""
    return [case for project in read_register() if half in (None, project.half) for case in cases_of(project)]


def cases_of(project: Project) -> Iterator[Case]:
    """Yield the healthy programs of a project, then its faults."""
    path = project.folder / "cases.py"
    if not path.exists():
        return
    spec = importlib.util.spec_from_file_location(f"field_{project.half}_{project.folder.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    programs = {program.name: program for program in module.PROGRAMS}
    for program in module.PROGRAMS:
        yield Case(project, module.ENVIRONMENT, program)
    for fault in module.FAULTS:
        yield Case(project, module.ENVIRONMENT, programs[fault.program], fault)
