"""torch-audit: `autopatch(model, optimizer)` above the loop, `finish()` at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from field.peers.wrapper import EVERY, Statement, Watch, Wrapper

if TYPE_CHECKING:
    import torch

SEVERITIES = {"FATAL": "error", "ERROR": "error", "WARN": "warning", "INFO": "info"}


class _Audit(Watch):
    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        from torch_audit import autopatch

        # The example's 1000 steps would audit only the first step of most programs here.
        self._auditor = autopatch(model, optimizer=optimizer, every_n_steps=EVERY)

    def statements(self) -> Iterator[Statement]:
        for finding in self._auditor.finish().findings:
            yield Statement(finding.rule_id, finding.severity.value, finding.message)


class TorchAudit(Wrapper):
    requirement = "torch-audit==0.3.0"
    severities = SEVERITIES

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Watch:
        return _Audit(model, optimizer)


wrapper = TorchAudit()
