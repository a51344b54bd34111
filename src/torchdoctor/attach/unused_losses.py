"""Losses in a program that never calls backward: inference, torch.func, a script that ends before its first step.

Such a loss belongs to no step, so it is not recorded while the program runs: a validation before the training would
look the same. If the program ends without a backward pass, the first loss that was not finite is written then.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place, caller
from torchdoctor.facts import NO_BACKWARD, UNKNOWN
from torchdoctor.probes.batches import look_at
from torchdoctor.stats.support import has_own_dispatch

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

EVERY_CALL = 64
"""Calls of which each is looked at; a loss that is NaN stays NaN, so one in `STRIDE` is enough after that."""
STRIDE = 16

_PRINTED = re.compile(
    r"""loss\w*['")\]]{0,2}(?:\s*\([^()\n]{0,20}\))?
        (?: \s*(?:[:=|]|->)\s*(?:tensor\()?[-+]?nan(?![\w-])
          | \s+(?:is\s|was\s)?(?:tensor\()?[-+]?nan(?=\s*(?:$|[^\w\s-])))""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""A loss of NaN. An infinite one is passed over: that is how a "best loss" usually starts."""


@dataclass
class BrokenLoss:
    """The first loss that was not finite, with what it was computed from as far as that is known."""

    value: float
    place: Place | None
    inputs: list[Tensor] = field(default_factory=list)
    targets: list[Tensor] = field(default_factory=list)


class UnusedLosses:
    """Keeps the first loss that is not finite until a backward pass comes, or the program ends without one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls = 0
        self._broken: BrokenLoss | None = None

    @property
    def waiting(self) -> bool:
        """Nothing has trained yet, and every loss so far was finite."""
        return self._broken is None and not self._session.loop.backwards

    @contained("losses: without backward")
    def called(self, loss: Tensor, source: Tensor | None, target: Any) -> None:
        """A loss function was called."""
        self._calls += 1
        if not self.waiting or (self._calls > EVERY_CALL and self._calls % STRIDE):
            return
        if has_own_dispatch(loss) or not loss.is_floating_point():
            return
        broken = BrokenLoss(0.0, caller(), inputs=_listed(source), targets=_listed(target))

        def arrived(value: Any) -> None:
            broken.value = float(value)
            if not math.isfinite(broken.value) and self.waiting:
                self._broken = broken

        self._session.context.read(loss.detach().mean(), arrived)

    def printed(self, text: str) -> None:
        """The script printed or logged something."""
        if self.waiting and _PRINTED.search(text) is not None:
            self._broken = BrokenLoss(math.nan, caller())

    def found_by_script(self, loss: tuple[float, Place] | None, inputs: list[Tensor], targets: list[Tensor]) -> None:
        """The script ends with an error, and one of its variables is a loss that is not finite."""
        if loss is not None and self.waiting:
            self._broken = BrokenLoss(*loss, inputs=inputs, targets=targets)

    def forget(self) -> None:
        """A backward pass begins: from here on losses belong to steps."""
        self._broken = None

    @contained("losses: close")
    def close(self) -> None:
        """Write the loss that was not finite, and what went into it; the record has begun."""
        broken, self._broken = self._broken, None
        session = self._session
        if broken is None or session.loop.backwards:
            return
        place = broken.place
        session.context.nonfinite(
            "loss",
            str(place or "loss"),
            1,
            0,
            phase=UNKNOWN,
            nan=int(math.isnan(broken.value)),
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
        )
        session.context.unsupported.setdefault("birth", NO_BACKWARD)
        for role, tensors in (("input", broken.inputs), ("target", broken.targets)):
            for tensor in tensors[:1]:
                look = look_at(tensor, role, detailed=False)
                if look is not None:
                    session.batches.write(look, UNKNOWN, 0)
        session.nonfinite.examine(0, broken.inputs, broken.targets)


def _listed(tensor: Any) -> list[Tensor]:
    return [tensor.detach()] if isinstance(tensor, Tensor) and not has_own_dispatch(tensor) else []
