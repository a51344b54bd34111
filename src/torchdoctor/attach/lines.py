"""File and line of operators: autograd keeps a stack for each while anomaly mode is on.

It is on for the first steps only, without its NaN checks, and never touched where the user has set it.
"""

from __future__ import annotations

import torch

from torchdoctor.attach.ceiling import LATER_PART, LINES, PART, SECONDS_PER_UNIT, Ceiling

STEPS = 2
FORWARDS_LIMIT = 400
"""Passes without a backward after which we stop waiting for training to begin."""


class LineTracing:
    """Ours is known by its missing NaN check, so that a state which a framework saved and restores is known again."""

    def __init__(self, ceiling: Ceiling | None = None) -> None:
        self._ceiling = ceiling or Ceiling()
        self._done = False
        self._forwards = 0

    def start(self) -> None:
        if not self._done and not torch.is_anomaly_enabled():
            torch.set_anomaly_enabled(True, check_nan=False)

    def forward(self, step: int, grad: bool, operations: int = 0, again: bool = False) -> None:
        """A pass begins; a script that only infers is not to be slowed down. `operations`: expected in its graph;
        `again`: a pass of this step had its lines."""
        self._forwards += 1
        if self._forwards > FORWARDS_LIMIT:
            self.stop()
        elif grad and step < STEPS:
            seconds = SECONDS_PER_UNIT[LINES] * operations
            if self._ceiling.can_spend(seconds, LATER_PART if again else PART):
                self._ceiling.charge(seconds)
                self.start()
            else:
                self._ceiling.skipped[LINES] += not again
                self.pause()  # until the model has answered: the loss is what matters most

    def model_left(self, step: int, grad: bool) -> None:
        """The outermost module has answered: what follows is the loss, a few operations."""
        if grad and step < STEPS and self._forwards <= FORWARDS_LIMIT:
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
