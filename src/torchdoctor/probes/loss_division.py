"""The division of a loss over the backward passes of one optimizer step, undone: losses in the script's own units.

With gradient accumulation a script gives backward a part of its loss, so that the gradients add up to those of the
mean. The part is no number that the script or its reader knows, and its first value compares with no constant guess.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchdoctor.facts import LossDivisionFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.saved import saved
from torchdoctor.stats.support import Quiet

PASSED_THROUGH = ("ToCopyBackward0", "CloneBackward0", "ViewBackward0", "SqueezeBackward0", "ReshapeAliasBackward0")
"""Operators between a division and the scalar that leave a single number as it is."""
HOPS = 4
WHOLE = 1e-3
"""Relative distance from a whole number that rounding explains: 1/3 as float32."""
COUNTS_KEPT = 64
SUM = 2
"""torch's number for reduction="sum" """
SAME_LOSS = 0.1
"""Relative distance of the undivided loss from what torch's loss function gave; tokens are not spread evenly over
the backward passes of a step."""

_item = torch.Tensor.item


def find_divisor(loss: Tensor) -> float:
    """Return the whole number by which the last operator divides the loss, and 1 where it does not.

    A sum that is divided is a mean written out, not a part of a loss.
    """
    node: Any = loss.grad_fn
    for _ in range(HOPS):
        if node is None or node.name() not in PASSED_THROUGH:
            break
        node = node.next_functions[0][0]
    if node is None or node.name() not in ("DivBackward0", "MulBackward0"):
        return 1.0
    inner = node.next_functions[0][0]
    if inner is None or inner.name().startswith("Sum") or getattr(inner, "_saved_reduction", None) == SUM:
        return 1.0
    other = saved(node, "other")
    if other is None or other.numel() != 1 or not other.is_cpu or other.requires_grad:
        return 1.0
    with Quiet():
        number = abs(float(_item(other)))
    if node.name() == "MulBackward0":
        number = 1 / number if number else 1.0
    whole = float(round(number)) if math.isfinite(number) else 1.0
    return whole if whole >= 2 and abs(number - whole) <= WHOLE * whole else 1.0


class LossDivision:
    """Decides, once the backward passes of a step are known, by what its losses were divided."""

    def __init__(
        self, context: Context, called: Callable[[int], float | None], has_one_site: Callable[[], bool]
    ) -> None:
        self._context = context
        self._called = called
        """the mean that torch's loss functions gave in a step, where it was looked at"""
        self._has_one_site = has_one_site
        self.divisor = 1.0
        """of the last step that was read in full; counted steps are taken to be divided alike"""
        self._passes: Counter[int] = Counter()
        """how many steps had so many backward passes"""
        self._is_measured = False
        """the losses were found to be parts by comparison with what torch's loss functions gave"""
        self._written: LossDivisionFact | None = None

    def undo(self, step: int, values: Sequence[float], divisors: Sequence[float]) -> float:
        """Return the mean loss of a step's backward passes as the script computed it."""
        passes = len(values)
        if passes in self._passes or len(self._passes) < COUNTS_KEPT:
            self._passes[passes] += 1
        factors = self._factors(step, sum(values) / passes, divisors)
        if passes == self._usual or self._written is None:
            self.divisor = max(factors)
        fact = LossDivisionFact(self.divisor, self._usual)
        if fact != self._written and (self.divisor > 1 or self._written is not None):
            self._written = fact
            self._context.record.fact(fact, step)
        return sum(v * f for v, f in zip(values, factors, strict=True)) / len(values)

    @property
    def _usual(self) -> int:
        """Backward passes of most steps so far; those at the end of an epoch may be fewer, or be left for the next."""
        return max(self._passes, key=lambda passes: (self._passes[passes], passes), default=1)

    def _factors(self, step: int, mean: float, divisors: Sequence[float]) -> Sequence[float]:
        passes = len(divisors)
        if max(self._passes, default=1) > 1 and self._has_one_site():
            if min(divisors) > 1 and all(d in self._passes for d in divisors):
                return divisors
            if max(divisors) == 1 and (measured := self._measure(step, mean, passes)) is not None:
                return [measured] * passes
        return [1.0] * passes

    def _measure(self, step: int, mean: float, passes: int) -> float | None:
        """What a library divided the losses by before their last operator, by what torch's loss functions gave.

        A last step with fewer backward passes is divided by their number or by the usual one.
        """
        called = self._called(step)
        if called is None or not math.isfinite(called) or called == 0:
            return float(self._usual) if self._is_measured else None
        found = next((n for n in (self._usual, passes) if n > 1 and abs(mean * n / called - 1) <= SAME_LOSS), None)
        self._is_measured = found is not None
        return None if found is None else float(found)
