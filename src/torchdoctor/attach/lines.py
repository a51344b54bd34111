"""File and line of operators: autograd keeps a stack for each while anomaly mode is on.

It is on for the first steps only, without its NaN checks, and never touched where the user has set it.
"""

from __future__ import annotations

import torch

STEPS = 2
FORWARDS_LIMIT = 400
"""Passes without a backward after which we stop waiting for training to begin."""


class LineTracing:
    """Ours is known by its missing NaN check, so that a state which a framework saved and restores is known again."""

    def __init__(self) -> None:
        self._done = False
        self._forwards = 0

    def start(self) -> None:
        if not self._done and not torch.is_anomaly_enabled():
            torch.set_anomaly_enabled(True, check_nan=False)

    def forward(self, step: int, grad: bool) -> None:
        """A pass begins; a script that only infers is not to be slowed down."""
        self._forwards += 1
        if self._forwards > FORWARDS_LIMIT:
            self.stop()
        elif grad and step < STEPS:
            self.start()

    def pause(self) -> None:
        """Backward itself runs without anomaly mode."""
        if torch.is_anomaly_enabled() and not torch.is_anomaly_check_nan_enabled():
            torch.set_anomaly_enabled(False)

    def resume(self, step: int) -> None:
        if step < STEPS:
            self.start()
        else:
            self.stop()

    def stop(self) -> None:
        self.pause()
        self._done = True
