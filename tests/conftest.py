"""Tests share two cores: one thread of torch in each of them. Generated cases are the same in every run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"torchdoctor-tests-state-{os.getuid()}")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from torchdoctor.attach.ceiling import Ceiling

settings.register_profile("same-every-time", derandomize=True)
settings.load_profile("same-every-time")


@pytest.fixture(autouse=True)
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test sees must not depend on how fast the machine is. Tests of the ceiling itself set their own."""
    monkeypatch.setattr(Ceiling, "once", 60.0)
