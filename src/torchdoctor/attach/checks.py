"""Scripts that look for a NaN themselves: they leave out the backward, or stop, so that nothing else would see it."""

from __future__ import annotations

import sys
from typing import Any

from torchdoctor.attach.guard import guarded
from torchdoctor.attach.patches import Patches
from torchdoctor.attach.session import Session
from torchdoctor.probes.loss_checks import CHECKS, broken_loss


class NanChecks:
    """Handler for functions that ask whether a number is finite."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def place(self, patches: Patches) -> None:
        for owner, name in CHECKS:
            patches.wrap(owner, name, after=self.checked)

    @guarded("finiteness checked")
    def checked(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        loss = broken_loss(args[0] if args else None, sys._getframe(1))
        if loss is not None:
            self._session.loss_found_broken(loss)
