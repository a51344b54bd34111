"""The virtual environment and the unpacked sources in which the suites run."""

from __future__ import annotations

from pathlib import Path

from collection import SUITES, Suite

import environments

CACHE = environments.CACHE / "suites"
ENVIRONMENT = environments.VirtualEnvironment(CACHE / "venv")
PYTHON = ENVIRONMENT.python


def prepare(suites: tuple[Suite, ...] = SUITES) -> None:
    """Install torch, torchdoctor of this checkout, pytest and the suites' packages; unpack the suites' sources."""
    wanted = sorted({word for suite in suites for word in (suite.requirement, *suite.requires)})
    ENVIRONMENT.install(wanted, prepend=("torch", "pytest>=8", "-e", str(environments.REPOSITORY)))
    for suite in suites:
        source_of(suite)


def source_of(suite: Suite) -> Path:
    """Return the folder of a suite's unpacked source, fetching it where it is missing."""
    return environments.unpack_source(suite.requirement, ENVIRONMENT, CACHE)
