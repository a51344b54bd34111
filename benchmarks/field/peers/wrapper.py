"""The interface of a peer's wrapper: the peer's requirement, how it is attached, and what it reports.

The process of the program imports this module, too, so it imports neither torch nor the rest of the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import torch

EVERY = 100
"""Optimizer steps between two checks of a peer that leaves the cadence to its user. Most programs take some hundred."""
ORDER = ("error", "warning", "info")


@dataclass(frozen=True)
class Statement:
    """One finding of a peer in its own words."""

    kind: str
    """the peer's name for the finding, which meanings.py explains"""
    severity: str
    """the peer's word for the severity, a key of the wrapper's `severities`"""
    text: str


class Watch:
    """A peer that watches one model."""

    def after_step(self, step: int, loss: float | None) -> None:
        """Tell the peer of an optimizer step, counted from 0, and of the loss of the last backward pass."""

    def statements(self) -> Iterable[Statement]:
        """Return the peer's report at the end of the program."""
        return ()


class Wrapper:
    """The benchmark's view of a peer. The module of each peer has one instance, called `wrapper`."""

    requirement: str
    needs: tuple[str, ...] = ()
    """pinned requirements beside torch, numpy and what torchdoctor itself depends on: those are there already"""
    severities: Mapping[str, str]
    """error, warning or info by the peer's own word"""
    watches_models = True
    """False: the peer reads the script and needs no training loop to be attached to"""

    def read(self, script: Path) -> Iterable[Statement]:
        """Return the peer's findings on the script itself, before it starts."""
        return ()

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Watch:
        """Attach the peer to a model before its training starts."""
        raise NotImplementedError

    def findings(self, statements: Iterable[Statement]) -> list[dict[str, Any]]:
        """Return findings as torchdoctor writes them, gravest first, one for each kind and severity.

        Peers state no confidence, so it is 1.
        """
        findings: dict[tuple[str, str], dict[str, Any]] = {}
        for statement in statements:
            severity = self.severities[statement.severity]
            finding = {
                "name": statement.kind,
                "severity": severity,
                "confidence": 1.0,
                "summary": statement.text[:300],
            }
            findings.setdefault((statement.kind, severity), finding)
        return sorted(findings.values(), key=lambda finding: ORDER.index(finding["severity"]))
