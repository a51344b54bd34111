"""Stands in for `torchdoctor run` of a zoo script: records a run in half a second, without torch.

    python gallery_stand_in.py FOLDER NAME WAY

WAY is well, spiky (the gradient's norm jumps), slow (waits halfway for a file "go" in FOLDER), fails or hangs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torchdoctor.lab.gallery.cabinet import Cabinet
    from torchdoctor.lab.gallery.exhibits import Training

STEPS = 60
LOG = "order.log"


def standing_in(way: str = "well") -> Callable[[Training, Cabinet], list[str]]:
    """The command for a Trainer."""
    return lambda training, cabinet: [sys.executable, __file__, str(cabinet.folder), training.name, way]


def main(folder: Path, name: str, way: str) -> None:
    from torchdoctor import signals
    from torchdoctor.store.writer import Recorder

    with (folder / LOG).open("a") as log:
        log.write(f"begin {name}\n")
    if way == "fails":
        raise ValueError("no such luck")
    if way == "hangs":
        time.sleep(600)
    recorder = Recorder.create(folder / name, {"argv": ["zoo.py"]}, flush_seconds=0.05)
    norms = np.random.default_rng(0).uniform(0.8, 1.2, STEPS)
    norms[[20, 40]] = 20.0 if way == "spiky" else 1.0
    for step in range(STEPS):
        recorder.scalar(signals.LOSS_TRAIN.name, step, 2.3 - 0.03 * step)
        recorder.scalar(signals.GRADIENT_GLOBAL_L2.name, step, float(norms[step]))
        if step % 10 == 9:
            recorder.scalar(signals.LOSS_VALIDATION.name, step, 2.4 - 0.03 * step)
        if way == "slow" and step == STEPS // 2:
            while not (folder / "go").exists():
                time.sleep(0.02)
    recorder.close("finished")
    with (folder / LOG).open("a") as log:
        log.write(f"end {name}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
