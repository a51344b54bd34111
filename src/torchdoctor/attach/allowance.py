"""How closely the batches of a validation may be looked at: its time is the user's, too."""

from __future__ import annotations

from time import perf_counter

from torchdoctor.attach.ceiling import LATER_PART, Ceiling

CLOSE_BATCHES = 4
"""Batches of each validation that are looked at whatever it costs."""
SHARE = 0.05
"""The share of a validation's time that may be spent on its other batches, once they no longer fit under the ceiling of
the whole job. It is larger than that of training, which takes most of a run."""


class Allowance:
    """The account of the validation that runs."""

    def __init__(self, ceiling: Ceiling) -> None:
        self._ceiling = ceiling
        self._validation = -1
        self._began = 0.0
        self._spent = 0.0
        self._cost = 0.0
        """of the batch that was looked at last"""
        self._batches = 0

    def permits(self, validation: int) -> bool:
        """Whether the next batch may be looked at closely; `validation` tells one from the next."""
        now = perf_counter()
        if validation != self._validation:
            self._validation, self._began, self._spent, self._batches = validation, now, 0.0, 0
        self._batches += 1
        if self._batches <= CLOSE_BATCHES or self._spent <= SHARE * (now - self._began):
            return True
        return self._ceiling.can_spend(self._cost, LATER_PART)

    def spend(self, seconds: float) -> None:
        self._cost = seconds
        self._spent += seconds
        self._ceiling.charge(seconds)
