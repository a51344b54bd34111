"""Figures of what the instruments give, in the same place and with the same themes as those of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchdoctor.errors import UsageError
from torchdoctor.plots.chart import INK
from torchdoctor.plots.figure import themed

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GIVEN_BY = {
    "batches": ("Preview", "preview_batches", "Batches as the model sees them, training beside validation."),
    "mistakes": ("Mistakes", "worst_mistakes", "The samples that the model fails on most."),
    "attention": ("AttentionMaps", "attention_maps", "Where each head looks; `layer` and `head` choose."),
    "saliency": ("Saliency", "saliency", "What an answer hangs on."),
    "lr_range": ("LearningRates", "find_lr", "The learning rate range test."),
    "landscape": ("Landscape", "landscape", "The loss around the weights, or between two sets of them."),
}
"""Name of the figure -> class of the result that it draws, the instrument that gives it, and what it shows."""


def drawer(name: str) -> Callable[..., Figure]:
    kind, instrument, text = GIVEN_BY[name]

    def plot(result: Any, *, theme: str = "light", **chosen: Any) -> Figure:
        if kind not in {base.__name__ for base in type(result).__mro__}:
            raise UsageError(
                f"plots.{name} draws what torchdoctor.{instrument}(...) gives, and it was handed a "
                f"{type(result).__name__}"
            )
        if theme not in INK:
            raise UsageError(f"theme is {theme!r}; known are {', '.join(INK)}")
        if hasattr(result, "chart"):
            return result.chart(**chosen).figure(theme)
        return themed(result.plot(**chosen), theme)

    plot.__name__ = plot.__qualname__ = name
    plot.__doc__ = f"{text} `result` is what `torchdoctor.{instrument}` gives, `theme` is light or dark."
    return plot
