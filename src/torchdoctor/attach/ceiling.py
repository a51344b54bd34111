"""The most that measuring may cost a whole job. Work is predicted from its size before it is done.

The governor spreads looks over a long run. The ceiling holds from the first step on: HealthFact.UNNOTICED_SECONDS once,
and the overhead budget of the time that has passed. Work that does not fit is done in part, put off, or left out, and
what was left out is named. Costs are seconds of this thread's processor, so that a busy machine changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from time import perf_counter
from typing import ClassVar

from torch import Tensor

from torchdoctor.facts import HealthFact

PART = 0.25
"""Of what is left, the most that one piece of work may take: no first look uses up everything."""
LATER_PART = 0.02
"""The same for what is looked at again in one step: further micro-batches, further losses."""
MOST_PARTS = 64
SMOOTHING = 0.3
ELEMENTS = 1 << 14
"""Elements whose reading costs about as much as the call that reads a small tensor."""

GRAPH, STATISTICS, HISTOGRAMS, NORMS, UPDATES, FINGERPRINTS, ACTIVATIONS, LINES = (
    "operations in the graph",
    "statistics of parameters and gradients",
    "histograms of parameters and gradients",
    "gradient norms",
    "sizes of updates",
    "changes of parameters",
    "activations",
    "source lines of operations",
)
SECONDS_PER_UNIT = {
    GRAPH: 2e-5,
    STATISTICS: 1e-4,
    HISTOGRAMS: 1e-4,
    NORMS: 1e-5,
    UPDATES: 3e-5,
    FINGERPRINTS: 5e-5,
    ACTIVATIONS: 1.5e-4,
    LINES: 1.5e-4,
}
"""What a unit of work costs until it was measured: an operation, a small tensor, a module that is called."""


def units_of(tensors: Iterable[Tensor]) -> float:
    """The work of reading tensors, in small tensors."""
    return sum(1 + tensor.numel() / ELEMENTS for tensor in tensors)


class Ceiling:
    """The account of one process. Without a share there is no ceiling."""

    once: ClassVar[float] = HealthFact.UNNOTICED_SECONDS

    def __init__(self, share: float | None = None) -> None:
        self._share = share
        self._began = perf_counter()
        self._rates = dict(SECONDS_PER_UNIT)
        self.spent_seconds = 0.0
        self.skipped: Counter[str] = Counter()
        """how often a kind of work was left out or done in part"""

    @property
    def left(self) -> float:
        """Seconds that may still be spent."""
        if self._share is None:
            return float("inf")
        return self.once + self._share * (perf_counter() - self._began) - self.spent_seconds

    def can_spend(self, seconds: float, part: float = PART) -> bool:
        return seconds <= part * max(0.0, self.left)

    def fits(self, kind: str, units: float) -> bool:
        """Whether all of this work may be done; if not, it is noted as skipped."""
        return self.share_of(kind, units) == 1.0

    def share_of(self, kind: str, units: float) -> float:
        """The share of so many units of work that may be done now, 1 for all of it."""
        predicted = self._rates[kind] * units
        if self.can_spend(predicted):
            return 1.0
        self.skipped[kind] += 1
        return PART * max(0.0, self.left) / predicted

    def parts_of(self, kind: str, units: float) -> int:
        """Into how many parts the work must be divided so that one of them fits: a power of two, as few sets of tensors
        alternate then; 0 where not even a small part fits."""
        share = self.share_of(kind, units)
        parts = 1
        while parts < MOST_PARTS and parts * share < 1:
            parts *= 2
        return parts if parts * share >= 1 else 0

    def learn(self, kind: str, units: float, seconds: float) -> None:
        """So many units of work took so long. They are charged with the look that they belong to."""
        if units > 0:
            self._rates[kind] += SMOOTHING * (seconds / units - self._rates[kind])

    def charge(self, seconds: float) -> None:
        """Seconds of this thread's processor were spent."""
        self.spent_seconds += seconds

    def describe(self) -> dict[str, str]:
        """What was left out, as text by kind."""
        return {kind: times(count) for kind, count in self.skipped.most_common() if count}


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
