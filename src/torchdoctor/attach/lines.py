"""File and line of operators: autograd keeps a stack for each while anomaly mode is on.

It is on for the first steps only, without its NaN checks, and never touched where the user has set it.
"""

from __future__ import annotations

import torch

STEPS = 2
FORWARDS_LIMIT = 400
"""Passes without a backward after which we stop waiting for training to begin."""


class LineTracing:
    def __init__(self) -> None:
        self._ours = False
        self._done = False
        self._forwards = 0

    def start(self) -> None:
        if not self._done and not torch.is_anomaly_enabled():
            torch.set_anomaly_enabled(True, check_nan=False)
            self._ours = True

    def forward(self) -> None:
        """Count a pass; a script that only infers is not to be slowed down."""
        self._forwards += 1
        if self._forwards > FORWARDS_LIMIT:
            self.stop()

    def pause(self) -> None:
        """Backward itself runs without anomaly mode."""
        if self._ours:
            torch.set_anomaly_enabled(False)
            self._ours = False

    def resume(self, step: int) -> None:
        if step < STEPS:
            self.start()
        else:
            self.stop()

    def stop(self) -> None:
        self.pause()
        self._done = True
