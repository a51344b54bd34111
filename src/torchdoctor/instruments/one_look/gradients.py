"""The gradients that a backward() has left in a model: how large, where none, and how they run over the depth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from torchdoctor.errors import UsageError
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.tables import listed, table
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BLUE, GREY, RED
from torchdoctor.rules.architecture import exploding_gradients, vanishing_gradients
from torchdoctor.rules.architecture.depth import EMBEDDINGS, Layer, Profile, hidden
from torchdoctor.rules.curves import figure
from torchdoctor.signals import STATISTICS
from torchdoctor.stats import summarize

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

OK, FROZEN, MISSING, ZERO, NONFINITE, ODD = "ok", "frozen", "none", "zero", "non-finite", "not measured"
UNEVEN = 30.0
"""Late over early gradient, or the reverse, that still is usual: healthy nets measured for the rule on vanishing
gradients stay within it."""
MOST_ROWS = 24
"""Of a table on a terminal; of more parameters, those that something is wrong with and the ends of the depth."""


@dataclass(frozen=True)
class ParameterGradient:
    """Of one parameter. Statistics are over the finite elements, and NaN where there is no gradient."""

    name: str
    module_type: str
    shape: tuple[int, ...]
    state: str
    """"ok", "frozen" (requires_grad=False), "none" (no gradient arrived), "zero", "non-finite" or "not measured\""""
    norm: float = math.nan
    largest: float = math.nan
    zeros: float = math.nan
    """share of exact zeros"""
    nonfinite: int = 0
    ratio: float = math.nan
    """norm of the gradient over norm of the weight; NaN for a weight of zeros"""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def root_mean_square(self) -> float:
        return self.norm / math.sqrt(self.size) if self.size else math.nan


@dataclass(frozen=True)
class GradientSummary(Result):
    """`parameters` in the order in which the model registers them, which for most models is that of the depth."""

    parameters: tuple[ParameterGradient, ...]
    norm: float
    """of all gradients together, what clip_grad_norm_ returns; NaN or Inf where one of them is"""
    profile: str
    """"even", "uneven", "vanishing", "exploding" or "unknown": how the gradient runs over the depth"""
    fall: float
    """gradient of the late weight matrices over that of the early ones, element by element"""

    @property
    def missing(self) -> list[str]:
        """Parameters that want a gradient and got none."""
        return self._named(MISSING)

    @property
    def frozen(self) -> list[str]:
        return self._named(FROZEN)

    @property
    def zero(self) -> list[str]:
        return self._named(ZERO)

    @property
    def nonfinite(self) -> list[str]:
        return self._named(NONFINITE)

    @property
    def healthy(self) -> bool:
        broken = self.missing or self.zero or self.nonfinite
        return not broken and self.profile in ("even", "uneven", "unknown")

    def _named(self, state: str) -> list[str]:
        return [p.name for p in self.parameters if p.state == state]

    def __str__(self) -> str:
        lines = [self._verdict(), *self._troubles(), f"  over the depth: {self._in_words()}", ""]
        rows = [_row(p) for p in self._shown()]
        left_out = len(self.parameters) - len(rows)
        lines += table(("parameter", "shape", "norm", "largest", "zeros", "grad/weight", ""), rows)
        return "\n".join([*lines, f"  ... and {left_out} more"] if left_out else lines)

    def _verdict(self) -> str:
        wanted = [p for p in self.parameters if p.state != FROZEN]
        if self.nonfinite:
            return f"Gradients hold NaN or Inf in {len(self.nonfinite)} of {len(wanted)} parameters."
        if not wanted:
            return f"All {len(self.parameters)} parameters are frozen (requires_grad=False): there is nothing to train."
        if len(self.missing) == len(wanted):
            return "No parameter has a gradient: backward() has not been called, or the graph does not reach the model."
        if self.profile == "vanishing":
            return "Gradients vanish on their way to the first layers."
        if self.profile == "exploding":
            return "Gradients explode on their way to the first layers."
        if self.missing or self.zero:
            count = len(self.missing) + len(self.zero)
            return f"{count} of {len(wanted)} parameters get no gradient; the others' norm is {figure(self.norm)}."
        return f"Gradients reach all {len(wanted)} trainable parameters; their norm is {figure(self.norm)}."

    def _troubles(self) -> list[str]:
        told = (
            (self.nonfinite, "NaN or Inf in the gradient"),
            (self.missing, "no gradient (None); not used for this loss, or cut off by detach() or no_grad()"),
            (self.zero, "a gradient of exactly zero; dead units, or a loss that does not depend on it"),
            (self.frozen, "frozen (requires_grad=False)"),
        )
        return [f"  {listed(names)}: {text}" for names, text in told if names]

    def _in_words(self) -> str:
        if self.profile == "unknown":
            return "too few weight matrices with a gradient to say"
        if self.profile == "even":
            return f"even; late layers have {figure(self.fall)} times the gradient of the early ones"
        if self.fall > 1:
            words = f"the early layers have 1/{figure(self.fall)} of the late ones' gradient"
            fix = "use ReLU or GELU, normalisation, skip connections"
        else:
            words = f"the early layers have {figure(1 / self.fall)} times the late ones' gradient"
            fix = "clip gradients, lower the initial weights, add normalisation"
        return f"{words}; {fix}" if self.profile != "uneven" else f"{words}, which many models stand"

    def _shown(self) -> list[ParameterGradient]:
        if len(self.parameters) <= MOST_ROWS:
            return list(self.parameters)
        half, third = MOST_ROWS // 2, MOST_ROWS // 4
        odd = [p for p in self.parameters if p.state not in (OK, FROZEN)][:half]
        ends = {p.name for p in (*odd, *self.parameters[:third], *self.parameters[-third:])}
        return [p for p in self.parameters if p.name in ends]

    def plot(self) -> Figure:
        shown = [p for p in self.parameters if math.isfinite(p.norm)]
        values = [p.root_mean_square for p in shown]
        seen = [v for v in values if v > 0]
        spread = f" between {figure(min(seen))} and {figure(max(seen))}" if seen else ""
        title = {
            "vanishing": f"Gradients fall {figure(self.fall)}-fold towards the first layers",
            "exploding": f"Gradients grow {figure(1 / self.fall) if self.fall else ''}-fold towards the first layers",
        }.get(self.profile, f"Gradients of {len(shown)} parameters lie{spread}")
        chart = new_figure(title, "parameter, first layer first", "gradient, root mean square", yaxis=LOG)
        bad = [p.state != OK for p in shown]
        chart.add_scatter(
            x=[p.name for p in shown],
            y=[v if v > 0 else None for v in values],
            mode="lines+markers",
            name="gradient",
            line={"color": BLUE},
            marker={"color": [RED if b else BLUE for b in bad], "symbol": ["x" if b else "circle" for b in bad]},
        )
        weights = [p.root_mean_square / p.ratio if p.ratio > 0 else None for p in shown]
        chart.add_scatter(
            x=[p.name for p in shown], y=weights, mode="lines", name="weight", line={"color": GREY, "dash": "dot"}
        )
        return chart


def gradient_summary(model: nn.Module) -> GradientSummary:
    """Call it after backward() and before optimizer.step() or zero_grad(), in the loop you already have.

        loss.backward()
        print(torchdoctor.gradient_summary(model))

    Nothing is changed; on a GPU it waits for the device once.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    named = list(model.named_parameters())
    if not named:
        raise UsageError("the model has no parameters, so it has no gradients")
    found = [(name, p) for name, p in named if p.grad is not None]
    grads = [p.grad for _, p in found]
    rows = summarize([*grads, *(p for _, p in found)]).cpu().double().numpy() if grads else np.zeros((0, 8))  # type: ignore[list-item]
    of_gradient = dict(zip((name for name, _ in found), rows[: len(found)], strict=True))
    of_weight = dict(zip((name for name, _ in found), rows[len(found) :], strict=True))
    types = {n: type(m).__name__ for n, m in model.named_modules()}
    parameters = tuple(
        _parameter(name, p, types[name.rpartition(".")[0]], of_gradient.get(name), of_weight.get(name))
        for name, p in named
    )
    profile, fall = _profile(parameters)
    return GradientSummary(parameters, _global_norm(parameters), profile, fall)


def _parameter(
    name: str,
    parameter: torch.Tensor,
    module_type: str,
    gradient: np.ndarray | None,
    weight: np.ndarray | None,
) -> ParameterGradient:
    shape = () if nn.parameter.is_lazy(parameter) else tuple(parameter.shape)
    if gradient is None or weight is None:
        state = MISSING if parameter.requires_grad else FROZEN
        return ParameterGradient(name, module_type, shape, state)
    figures = dict(zip(STATISTICS, map(float, gradient), strict=True))
    size = float(weight[STATISTICS.index("l2")])
    if math.isnan(figures["nonfinite"]):
        return ParameterGradient(name, module_type, shape, ODD)
    bad = figures["nonfinite"] > 0
    state = NONFINITE if bad else ZERO if figures["zeros"] == 1.0 else OK
    norm = figures["l2"]
    ratio = norm / size if size > 0 else math.nan
    return ParameterGradient(
        name, module_type, shape, state, norm, figures["absmax"], figures["zeros"], int(figures["nonfinite"]), ratio
    )


def _global_norm(parameters: tuple[ParameterGradient, ...]) -> float:
    if any(p.nonfinite for p in parameters):
        return math.nan
    norms = np.array([p.norm for p in parameters if math.isfinite(p.norm)])
    return float(np.sqrt(np.square(norms).sum()))


def _profile(parameters: tuple[ParameterGradient, ...]) -> tuple[str, float]:
    """By the same reading and limits as the rules on vanishing and exploding gradients."""
    kept = [
        p
        for p in parameters
        if len(p.shape) >= 2 and p.module_type not in EMBEDDINGS and p.state in (OK, ZERO) and p.size
    ]
    layers = tuple(Layer(p.name, p.name.rpartition(".")[0], p.module_type, p.shape) for p in kept)
    if len(layers) < 3:
        return "unknown", math.nan
    found = hidden(Profile(layers, np.array([p.root_mean_square for p in kept])))
    fall, deep = found.fall, len(found) >= vanishing_gradients.MIN_HIDDEN
    if deep and fall >= vanishing_gradients.FALL and found.order >= vanishing_gradients.ORDER:
        return "vanishing", fall
    if deep and 0 < fall <= 1 / exploding_gradients.RISE and found.order <= exploding_gradients.ORDER:
        return "exploding", fall
    if math.isnan(fall):
        return "unknown", fall
    return ("even" if 1 / UNEVEN <= fall <= UNEVEN else "uneven"), fall


def _row(p: ParameterGradient) -> tuple[str, ...]:
    shape = "x".join(map(str, p.shape)) or "scalar"
    if math.isnan(p.norm) and p.state != NONFINITE:
        return (p.name, shape, "", "", "", "", p.state)
    note = f"{p.nonfinite} NaN/Inf" if p.nonfinite else "" if p.state == OK else p.state
    return (p.name, shape, figure(p.norm), figure(p.largest), f"{p.zeros:.0%}", _or_dash(p.ratio), note)


def _or_dash(value: float) -> str:
    return "-" if math.isnan(value) else figure(value)
