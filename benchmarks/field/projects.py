"""The projects whose training loops are run, and the half that each belongs to.

A project is drawn into its half before any of its cases is written: `learning` is there to be read and learned from,
`counted` is only counted (CONTRIBUTING.md, "The field"). projects.toml records the draw.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

import tomllib

HERE = Path(__file__).parent
REGISTER = HERE / "projects.toml"
LEARNING, COUNTED = "learning", "counted"
HALVES = (LEARNING, COUNTED)


@dataclass(frozen=True)
class Project:
    """One distribution on the package index."""

    name: str
    half: str

    @property
    def folder(self) -> Path:
        """The folder with the project's cases."""
        return HERE / self.half / self.name.replace("-", "_").replace(".", "_")


def read_register(path: Path = REGISTER) -> list[Project]:
    """Return every project that was drawn, by name."""
    halves = tomllib.loads(path.read_text(encoding="utf-8"))
    return sorted((Project(name, half) for half in HALVES for name in halves[half]), key=lambda p: p.name)


def draw(names: list[str]) -> dict[str, list[str]]:
    """Split names into two halves at random. The seed is a hash of the names, so nobody can choose the outcome."""
    ordered = sorted(set(names))
    seed = hashlib.sha256("\n".join(ordered).encode()).digest()
    random.Random(seed).shuffle(ordered)
    middle = (len(ordered) + 1) // 2
    return {LEARNING: sorted(ordered[:middle]), COUNTED: sorted(ordered[middle:])}


def register(names: list[str], path: Path = REGISTER) -> None:
    """Draw projects that are not in the register yet, and add them to it. Those that are there keep their half."""
    known = read_register(path) if path.exists() else []
    fresh = draw([name for name in names if name not in {project.name for project in known}])
    lines = [
        "# Drawn by `python benchmarks/field/run.py --draw NAME ...` before any case of these projects was written.",
        "# Never edit by hand: a project keeps the half that it was drawn into.",
    ]
    for half in HALVES:
        members = sorted({*fresh[half], *(project.name for project in known if project.half == half)})
        lines += ["", f"{half} = [", *(f'    "{name}",' for name in members), "]"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
