"""File and line of operators: autograd keeps a stack for each while anomaly mode is on.

It is on for the first steps only, without its NaN checks, and off while the script has it on. What the script sets and
asks for is its own state: until then torch's three functions for it are replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torchdoctor.attach.ceiling import LATER_PART, LINES, PART, SECONDS_PER_UNIT, Ceiling
from torchdoctor.attach.isolation import skip_compilation

STEPS = 2
FORWARDS_LIMIT = 400
"""Passes without a backward after which we stop waiting for training to begin."""

_is_enabled, _checks_nan, _set_enabled = (
    torch.is_anomaly_enabled,
    torch.is_anomaly_check_nan_enabled,
    torch.set_anomaly_enabled,
)


class LineTracing:
    """Switches anomaly mode on and off for us, unseen by the script."""

    def __init__(self, ceiling: Ceiling | None = None) -> None:
        self._ceiling = ceiling or Ceiling()
        self._done = False
        self._on = False
        """anomaly mode is on for us"""
        self._forwards = 0
        self._script: tuple[bool, bool] | None = None
        """what the script has set; None while torch's functions are in their places"""

    def start(self) -> None:
        if self._done:
            return
        if self._script is None:
            self._script = _is_enabled(), _checks_nan()
            self._replace()
        if not self._script[0] and not self._on:
            self._on = True
            _set_enabled(True, False)

    def _replace(self) -> None:
        def is_enabled() -> bool:
            return self._script[0] if self._script is not None else _is_enabled()

        def checks_nan() -> bool:
            return self._script[1] if self._script is not None else _checks_nan()

        def set_enabled(enabled: bool, check_nan: bool = True) -> None:
            if self._script is None or self._on is False or enabled:
                _set_enabled(enabled, check_nan)
                self._on = self._on and not enabled
            if self._script is not None:
                self._script = bool(enabled), bool(check_nan)

        for original, function in ((_is_enabled, is_enabled), (_checks_nan, checks_nan), (_set_enabled, set_enabled)):
            self._place(original, function)

    @staticmethod
    def _place(original: Callable[..., Any], function: Callable[..., Any]) -> None:
        functools.update_wrapper(function, original)
        skip_compilation(function.__code__)
        setattr(torch, original.__name__, function)

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
        if self._on and self._script is not None:
            self._on = False
            if _is_enabled() and not _checks_nan():  # else somebody has set it without torch's functions
                _set_enabled(*self._script)

    def resume(self, step: int) -> None:
        if step < STEPS:
            self.start()
        else:
            self.stop()

    def stop(self) -> None:
        self.pause()
        self._done = True
        if self._script is not None:
            self._script = None
            torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled = _is_enabled, _checks_nan
            torch.set_anomaly_enabled = _set_enabled
