"""Small broken trainings and their healthy twins, with the truth: gallery, demo and benchmark.

Each case is a plain script that knows nothing of torchdoctor:

    zoo/vanishing_gradients/sick_mlp.py      has the fault          case vanishing-gradients/mlp
    zoo/vanishing_gradients/healthy_mlp.py   its nearest twin       case vanishing-gradients/healthy-mlp

    zoo/healthy/healthy_gan.py               a sound training of a kind of its own        case healthy/gan

The folder names the diagnosis, the first line of the script's docstring says what it does. A new file adds a case.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SICK, HEALTHY = "sick_", "healthy_"
NO_DIAGNOSIS = "healthy"
"""The folder of sound trainings that are nobody's twin."""
NEEDS_CUDA = "Needs a CUDA device"
"""In the first line of a script whose fault only shows on one; elsewhere the case says nothing."""


@dataclass(frozen=True)
class Case:
    """One script and what is true of it."""

    name: str
    path: Path
    diagnosis: str
    """the diagnosis whose folder it lies in, or "healthy" """
    kind: str
    """what is trained: mlp, cnn, transformer ..."""
    truth: str | None
    """the diagnosis that must come first; None: no error and no warning may come"""

    @cached_property
    def summary(self) -> str:
        """First line of the docstring, read without running anything; empty if the file cannot be parsed."""
        try:
            docstring = ast.get_docstring(ast.parse(self.path.read_bytes())) or ""
        except (OSError, SyntaxError, ValueError):
            return ""
        return docstring.partition("\n")[0].strip()

    @property
    def healthy(self) -> bool:
        return self.truth is None

    @property
    def needs_cuda(self) -> bool:
        return NEEDS_CUDA in self.summary


def cases(folder: Path | None = None) -> list[Case]:
    """Every case, by diagnosis, the sick ones of it first."""
    scripts = sorted((folder or Path(__file__).parent).glob("*/*.py"))
    found = [_case(path) for path in scripts if path.name.startswith((SICK, HEALTHY))]
    return sorted(found, key=lambda c: (c.diagnosis, c.healthy, c.kind))


def find(name: str, among: list[Case] | None = None) -> Case | None:
    """The case of that name; a diagnosis alone means its first sick case."""
    name = name.lower().replace("_", "-")
    among = cases() if among is None else among
    exact = next((c for c in among if c.name == name), None)
    return exact or next((c for c in among if c.diagnosis == name and not c.healthy), None)


def _case(path: Path) -> Case:
    diagnosis = path.parent.name.replace("_", "-")
    healthy = path.name.startswith(HEALTHY)
    kind = path.stem.removeprefix(HEALTHY if healthy else SICK).replace("_", "-")
    return Case(
        name=f"{diagnosis}/{'healthy-' if healthy and diagnosis != NO_DIAGNOSIS else ''}{kind}",
        path=path,
        diagnosis=diagnosis,
        kind=kind,
        truth=None if healthy else diagnosis,
    )
