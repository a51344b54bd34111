"""neural-observatory: `Observatory(model).watch()`, `step()` before each forward pass, `report()` at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from field.peers.wrapper import Statement, Watch, Wrapper

if TYPE_CHECKING:
    import torch

SEVERITIES = {"critical": "error", "warning": "warning", "info": "info"}
PHRASES = {
    "NaN": "NaN or Inf",
    "Inf": "NaN or Inf",
    "neurons are dead": "dead neurons",
    "appear dead": "dead neurons",
    **{
        phrase: phrase
        for phrase in (
            *("Vanishing gradients", "Exploding gradients", "Gradient norm collapsed", "gradient norm spike"),
            *("High sparsity", "High saturation", "activation norm spike", "attention entropy", "embedding drift"),
            *("High parameter drift", "Large step-to-step", "Parameter norm near zero"),
        )
    },
}
"""Kinds by a piece of the warning: its warnings have no names."""


class _Observatory(Watch):
    def __init__(self, model: torch.nn.Module) -> None:
        from neural_observatory import Observatory

        self._observatory = Observatory(model)
        self._observatory.watch()
        self._observatory.step(step=0)

    def after_step(self, step: int, loss: float | None) -> None:
        self._observatory.step(step=step + 1)

    def statements(self) -> Iterator[Statement]:
        self._observatory.stop()
        results = self._observatory.report().filtered(include_healthy=False)
        for result in results:
            for text in result.warnings:
                yield Statement(kind_of(text), result.status.value, f"{result.layer_name}: {text}")


def kind_of(text: str) -> str:
    """Return the kind of a warning."""
    return next((kind for phrase, kind in PHRASES.items() if phrase in text), "other")


class NeuralObservatory(Wrapper):
    requirement = "neural-observatory==0.5.1"
    severities = SEVERITIES

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Watch:
        return _Observatory(model)


wrapper = NeuralObservatory()
