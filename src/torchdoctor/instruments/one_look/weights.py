"""How the values of each weight tensor are spread: like a bell, with a few giants, in two heaps, or hardly at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchdoctor.errors import UsageError
from torchdoctor.instruments.one_look.histograms import COLLAPSED, KINDS, ORDINARY, SPARSE, Spread, read_spread
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.tables import listed, table
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BLUE, GREY, ORANGE, PURPLE, RED
from torchdoctor.rules.architecture.bad_initialization_scale import LOUD
from torchdoctor.rules.curves import figure
from torchdoctor.stats import summarize, unit_spread

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BINS = 64
MOST_PANELS = 12
MOST_ROWS = 24
COLOURS = {
    ORDINARY: BLUE,
    "heavy-tailed": RED,
    "two-valued": PURPLE,
    "bimodal": PURPLE,
    COLLAPSED: ORANGE,
    "non-finite": RED,
}


@dataclass(frozen=True)
class LayerWeights:
    """One weight tensor."""

    name: str
    module_type: str
    shape: tuple[int, ...]
    spread: Spread
    counts: NDArray[np.int64]
    edges: NDArray[np.float64]

    @property
    def kind(self) -> str:
        return self.spread.kind


@dataclass(frozen=True)
class WeightDistribution(Result):
    layers: tuple[LayerWeights, ...]
    left_out: tuple[str, ...]
    """parameters that are not matrices, or could not be measured"""

    @property
    def abnormal(self) -> list[LayerWeights]:
        return [layer for layer in self.layers if KINDS[layer.kind].abnormal]

    @property
    def healthy(self) -> bool:
        return not self.abnormal

    @property
    def loud(self) -> list[LayerWeights]:
        """Far larger than any usual start, whatever their shape; the loudest first."""
        return sorted((w for w in self.layers if w.spread.gain >= LOUD), key=lambda w: -w.spread.gain)

    def of_kind(self, kind: str) -> list[str]:
        """Names of the tensors of one kind: "ordinary", "heavy-tailed", "bimodal", "two-valued", "collapsed" ..."""
        return [layer.name for layer in self.layers if layer.kind == kind]

    def __str__(self) -> str:
        count, odd = len(self.layers), self.abnormal
        if not count:
            return "There is no weight matrix here, only vectors, whose shape says little."
        if not odd:
            lines = [
                f"Weights are spread as usual in all {count} tensors{', but not at a usual size' * bool(self.loud)}."
            ]
        else:
            lines = [f"{len(odd)} of {count} weight tensors have a shape that trainings do not usually give."]
        lines += self._told_loud()
        for kind, about in KINDS.items():
            if (names := self.of_kind(kind)) and kind != ORDINARY:
                lines.append(f"  {kind}: {listed(names)}. {about.text}")
        rows = [_row(layer) for layer in self._shown()]
        lines += ["", *table(("weights", "shape", "rms", "gain", "largest/rms", "mean|w|/rms", "zeros", ""), rows)]
        if len(rows) < count:
            lines.append(f"  ... and {count - len(rows)} more")
        return "\n".join([*lines, "", LEGEND])

    def _told_loud(self) -> list[str]:
        if not (loud := self.loud):
            return []
        low, high = figure(loud[-1].spread.gain), figure(loud[0].spread.gain)
        gains = f"gain {high}" if len(loud) == 1 else f"gains of {low} to {high}"
        text = "Far above every usual start: too large for a new model; in a trained one they have grown to that."
        return [f"  large ({gains}): {listed([layer.name for layer in loud])}. {text}"]

    def _shown(self) -> list[LayerWeights]:
        if len(self.layers) <= MOST_ROWS:
            return list(self.layers)
        odd, plain = self.abnormal[:MOST_ROWS], [layer for layer in self.layers if not KINDS[layer.kind].abnormal]
        names = {layer.name for layer in (*odd, *plain[: max(0, MOST_ROWS - len(odd))])}
        return [layer for layer in self.layers if layer.name in names]

    def plot(self) -> Figure:
        """A histogram a tensor, the abnormal ones first where there are many; the counts on a logarithmic scale."""
        chart = new_figure(self._title(), "", "", showlegend=False)
        from plotly.subplots import make_subplots

        names = {layer.name for layer in (*self.abnormal, *self.layers)[:MOST_PANELS]}
        shown = [layer for layer in self.layers if layer.name in names] or list(self.layers[:MOST_PANELS])
        columns = min(3, max(1, len(shown)))
        rows = max(1, math.ceil(len(shown) / columns))
        titles = [f"{layer.name}: {layer.kind}" for layer in shown]
        panels = make_subplots(rows, columns, subplot_titles=titles, vertical_spacing=0.5 / max(2, rows + 1))
        for index, layer in enumerate(shown):
            row, column = index // columns + 1, index % columns + 1
            middles, widths = (layer.edges[1:] + layer.edges[:-1]) / 2, np.diff(layer.edges)
            colour = COLOURS.get(layer.kind, GREY)
            panels.add_bar(x=middles, y=layer.counts, width=widths, marker_color=colour, row=row, col=column)
        panels.update_yaxes(title_text="elements", col=1)
        panels.update_yaxes(LOG)
        panels.update_xaxes(title_text="weight", row=rows)
        panels.update_layout(chart.layout, height=220 * rows + 120)
        return panels

    def _title(self) -> str:
        odd = self.abnormal
        if not odd:
            if loud := self.loud:
                return (
                    f"Weights have a usual shape and are large: {loud[0].name} has gain {figure(loud[0].spread.gain)}"
                )
            return f"Weights of {len(self.layers)} tensors are spread as usual"
        worst = odd[0]
        more = f", and {len(odd) - 1} more are odd" if len(odd) > 1 else ""
        return f"{worst.name} is {worst.kind}{more}"


LEGEND = """  gain: rms times sqrt(fan in); usual starts have 0.5 to 1.7, those of transformers 0.1 to 0.5
  mean|w|/rms: 0.80 for a bell, 0.87 for a flat spread, below 0.5 where a few giants are"""


def weight_distribution(
    model: nn.Module, *, only: str | Sequence[str] | None = None, bins: int = BINS
) -> WeightDistribution:
    """The shape of every weight matrix, convolution and embedding, judged by the limits of abnormal-distribution.

    `only` keeps the parameters whose names match a pattern ("encoder.*") or one of several. Nothing is changed.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    if bins < 8:
        raise UsageError(f"bins={bins} are too few to show a shape; take 8 or more")
    types = {n: type(m).__name__ for n, m in model.named_modules()}
    patterns = [only] if isinstance(only, str) else only
    named = [(n, p) for n, p in model.named_parameters() if patterns is None or any(fnmatch(n, x) for x in patterns)]
    if not named:
        what = "has no parameters" if patterns is None else f"has no parameter that matches {only!r}"
        raise UsageError(f"the model {what}")
    kept = [(n, p.detach()) for n, p in named if not nn.parameter.is_lazy(p) and p.dim() >= 2 and p.numel()]
    rows = summarize([p for _, p in kept]).cpu().double().numpy() if kept else np.zeros((0, 8))
    layers, left_out = [], [n for n, _ in named if n not in {k for k, _ in kept}]
    for (name, parameter), row in zip(kept, rows, strict=True):
        if math.isnan(row[-1]):
            left_out.append(name)
            continue
        layers.append(_layer(name, types[name.rpartition(".")[0]], parameter, row, bins))
    return WeightDistribution(tuple(layers), tuple(left_out))


@torch.no_grad()
def _layer(name: str, module_type: str, parameter: Tensor, row: NDArray[Any], bins: int) -> LayerWeights:
    values = parameter.float().flatten()
    values = values[values.isfinite()]
    counts, edges = _histogram(values, bins)
    spread = read_spread(row, tuple(parameter.shape), module_type, counts, float(unit_spread(parameter)), parameter)
    return LayerWeights(name, module_type, tuple(parameter.shape), spread, counts, edges)


def _histogram(values: Tensor, bins: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Over the range of the values, where that is more than six times their typical size cut there: what lies beyond is
    in the outermost bins."""
    if not len(values):
        return np.zeros(bins, np.int64), np.linspace(-1.0, 1.0, bins + 1)
    middle = values.mean()
    reach = 6 * 1.25 * (values - middle).abs().mean()
    low, high = float(torch.maximum(values.min(), middle - reach)), float(torch.minimum(values.max(), middle + reach))
    if high <= low:
        low, high = low - max(1e-6, abs(low)), high + max(1e-6, abs(high))
    # torch.histc has no deterministic form on a GPU and refuses where that is asked for.
    places = ((values.clamp(low, high) - low) * (bins / (high - low))).long().clamp_(0, bins - 1)
    return torch.bincount(places, minlength=bins).cpu().numpy().astype(np.int64), np.linspace(low, high, bins + 1)


def _row(layer: LayerWeights) -> tuple[str, ...]:
    spread, shape = layer.spread, "x".join(map(str, layer.shape))
    note = layer.kind if layer.kind != ORDINARY else ""
    if layer.kind == COLLAPSED or (layer.kind == SPARSE and spread.why):
        note += f" ({spread.why})"
    figures = (spread.size, spread.gain, spread.giant, spread.peaked)
    return (layer.name, shape, *map(_or_dash, figures), f"{spread.zeros:.0%}", note)


def _or_dash(value: float) -> str:
    return figure(value) if math.isfinite(value) else "-"
