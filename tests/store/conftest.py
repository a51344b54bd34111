"""Runs that several tests read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from store.samples import COLUMNS, GRADIENT, QUICK, play, record, recording
from torchdoctor import signals


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "small"
    with recording(folder) as recorder:
        for part in range(4):
            play(recorder, 5, first=5 * part)
            recorder.histogram(part, GRADIENT, COLUMNS[:2], np.ones((2, signals.HISTOGRAM_BINS), np.float32))
            recorder.run()
    return folder


@pytest.fixture(scope="module")
def thinned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "thinned"
    record(folder, 6000, pause=0.02, limits=QUICK)
    assert list(folder.glob("digest-*"))
    return folder
