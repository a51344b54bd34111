"""Virtual environments in which programs of the field run: one per project, on top of one with torch.

Projects pin packages that do not fit together, so none sees another's. torchdoctor itself is read from the folder that
FIELD_BUILD names, so that two builds can be compared in the same environments.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import environments
from environments import VirtualEnvironment
from field.programs import SCRIPT, Case, Environment
from field.projects import Project

CACHE = environments.CACHE / "field"
BASE = VirtualEnvironment(CACHE / "base")
BUILD = "FIELD_BUILD"
REQUIREMENTS = ("torch", "numpy<2.4", "pandas", "scikit-learn==1.7.2", "scipy", "tqdm")
"""Beside torchdoctor's own, of the base: what most projects ask for, so that it is not installed fifty times."""


def prepare(project: Project, environment: Environment) -> VirtualEnvironment:
    """Return a project's environment, installing and unpacking what is missing."""
    BASE.install(("-e", str(environments.REPOSITORY)), prepend=REQUIREMENTS)
    for link in BASE.packages.glob("*torchdoctor*.pth"):
        link.unlink()  # the build is chosen when a program starts
    own = VirtualEnvironment(CACHE / "projects" / project.name, BASE)
    own.install(environment.requires)
    line = f"import os, sys; sys.path.append(os.environ.get({BUILD!r}, {str(environments.REPOSITORY / 'src')!r}))\n"
    (own.packages / "torchdoctor_build.pth").write_text(line)
    for requirement in environment.sources:
        environments.unpack_source(requirement, own, CACHE)
    return own


def place(case: Case, own: VirtualEnvironment, folder: Path) -> None:
    """Put a case's script, under a name that tells nothing, and the code that it brings along into a folder."""
    shutil.copy(case.script, folder / SCRIPT)
    for name in case.program.copies:
        source = _source_of(name, case.environment, own)
        if source.is_dir():
            shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / source.name)
    for name, edit in case.fault.edits.items() if case.fault else ():
        path = folder / name
        path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8")


def _source_of(name: str, environment: Environment, own: VirtualEnvironment) -> Path:
    distribution, colon, path = name.partition(":")
    if not colon:
        package = own.packages / name
        return package if package.exists() else package.with_suffix(".py")
    (requirement,) = (r for r in environment.sources if r.partition("==")[0] == distribution)
    return environments.unpack_source(requirement, own, CACHE) / path
