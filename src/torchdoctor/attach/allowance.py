"""How closely the batches of a validation may be looked at: its time is the user's, too."""

from __future__ import annotations

from time import perf_counter

from torchdoctor.facts import HealthFact

CLOSE_BATCHES = 4
"""Batches of each validation that are looked at whatever it costs."""
SHARE = 0.1
"""Of a validation's time that may be spent on the others, once a run has used up what nobody notices. More than in
training, which takes most of a run."""


class Allowance:
    """The account of the validation that runs."""

    def __init__(self) -> None:
        self._validation = -1
        self._began = 0.0
        self._spent = 0.0
        self._before = 0.0
        """spent on the validations before it"""
        self._batches = 0

    def permits(self, validation: int) -> bool:
        """Whether the next batch may be looked at closely; `validation` tells one from the next."""
        now = perf_counter()
        if validation != self._validation:
            self._before += self._spent
            self._validation, self._began, self._spent, self._batches = validation, now, 0.0, 0
        self._batches += 1
        unnoticed = self._before + self._spent < HealthFact.UNNOTICED_SECONDS
        return unnoticed or self._batches <= CLOSE_BATCHES or self._spent <= SHARE * (now - self._began)

    def spend(self, seconds: float) -> None:
        self._spent += seconds
