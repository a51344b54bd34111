"""torchmortem: `Autopsy(model, optimizer)` around the loop, `step(loss=...)` after each optimizer step, a report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from field.peers.wrapper import Statement, Watch, Wrapper

if TYPE_CHECKING:
    import torch

SEVERITIES = {"CRITICAL": "error", "WARNING": "warning", "INFO": "info"}


class _Autopsy(Watch):
    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        from torchmortem import Autopsy

        self._autopsy = Autopsy(model, optimizer=optimizer)
        self._autopsy.attach()

    def after_step(self, step: int, loss: float | None) -> None:
        self._autopsy.step(**({} if loss is None else {"loss": loss}))

    def statements(self) -> Iterator[Statement]:
        self._autopsy.detach()
        for finding in self._autopsy.get_report().findings:
            kind = re.sub(r" in \S*$", "", finding.title)  # "Dead units in layer.3"
            yield Statement(kind, finding.severity.name, f"{finding.title}: {finding.summary}")


class Torchmortem(Wrapper):
    requirement = "torchmortem==0.1.1"
    severities = SEVERITIES

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Watch:
        return _Autopsy(model, optimizer)


wrapper = Torchmortem()
