"""How far numbers in float16 stand from its ends, in powers of two: outputs of layers, and gradients times the scale.

From what looks have taken anyway: the largest output of each layer, largest and mean gradient of each weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import HalfOperationFact, PrecisionFact
from torchdoctor.findings import Evidence
from torchdoctor.rules import curves
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats, Ints, Run
from torchdoctor.signals import ACTIVATION, GRADIENT, SCALE

LARGEST = 65504.0
SMALLEST, SMALLEST_NORMAL = 2.0**-24, 2.0**-14
"""of float16: its end, its last number before zero, and the last that still has all its digits"""
NEAR = 2.0
"""Powers of two: one unlucky batch may be four times as large as the usual one."""
FAR = 6.0
"""Layers that keep more, and always did, have nothing to do with an overflow."""
SHRUNK = 4.0
"""A trend, not a start: outputs have grown sixteenfold in the run."""
SURE = 0.9
"""Share of the second half's variance that a straight line (a steady growth by a factor) explains."""
LEAST_LOOKS = 8
FURTHER = 1.25
"""The limit must be met before the run has gone on for a quarter of its length."""
LAYERS_SHOWN = 3
APART = 8.0
"""Three halvings between the scales that are compared."""
FLUSHED = 0.1
"""More of the gradient is zero at the lower scale, by so much: more than batches differ among themselves."""


@dataclass(frozen=True)
class Headroom:
    """One layer's outputs: powers of two left to the end of float16, look by look."""

    name: str
    steps: Ints
    left: Floats

    @property
    def last(self) -> float:
        return float(self.left[-1])

    @property
    def first(self) -> float:
        return float(self.left[0])

    def meets(self, steps: int) -> int | None:
        """The step at which a steady growth ends it, if that is near."""
        if len(self.left) < 2 * LEAST_LOOKS or self.last > NEAR or self.first - self.last < SHRUNK:
            return None
        half = len(self.left) // 2
        at, left = self.steps[half:].astype(float), self.left[half:]
        slope, start = np.polyfit(at, left, 1)
        spread = float(np.var(left))
        if not slope < 0 or spread == 0 or 1 - float(np.var(left - slope * at - start)) / spread < SURE:
            return None
        met = float(-start / slope)
        return int(met) if met <= FURTHER * steps else None


def of_outputs(run: Run, until: int | None = None) -> list[Headroom]:
    """Layers whose output is in float16, the least headroom first; `until`: looks after that step are left out."""
    largest = run.matrix(ACTIVATION["absmax"])
    found = []
    for name, module in run.modules.items():
        if module.dtype != "float16" or name not in largest.columns:
            continue
        trace = largest.column(name)
        known = np.isfinite(trace.high) & (trace.high > 0) & (trace.steps <= (run.steps if until is None else until))
        if known.any():
            found.append(Headroom(name, trace.steps[known], np.log2(LARGEST / trace.high[known].astype(np.float64))))
    return sorted(found, key=lambda h: h.last)


def describe(run: Run, until: int | None = None) -> list[Evidence]:
    """The layers that were nearest to the end, and how that came."""
    found = [h for h in of_outputs(run, until) if h.last < FAR or h.first - h.last > NEAR]
    if not found:
        return []
    told = [f"{h.name}: {h.last:.1f} ({h.first:.1f} at step {h.steps[0]})" for h in found[:LAYERS_SHOWN]]
    nearest = found[0]
    return [
        Evidence(
            f"powers of two left to 65504, by layer, last seen at step {nearest.steps[-1]}: {', '.join(told)}",
            ACTIVATION["absmax"].name,
            nearest.last,
            0.0,
            curves.spark(nearest.left),
        )
    ]


def scales(run: Run, steps: Ints) -> Floats:
    """The loss scale that gradients of these steps carried; one without a scaler."""
    trace = run.scalar(SCALE)
    if not len(trace):
        return np.ones(len(steps))
    at = np.clip(np.searchsorted(trace.steps, steps, side="left") - 1, 0, None)
    return trace.values[at].astype(np.float64)


def of_gradients(run: Run) -> tuple[str, float] | None:
    """The weight matrix whose mean gradient, times the scale, is nearest to vanishing in float16, and by how many
    powers of two it stands above that."""
    mean = run.matrix(GRADIENT["absmean"])
    names = [n for n, p in run.parameters.items() if len(p.shape) > 1 and n in mean.columns]
    precision = run.last_fact(PrecisionFact)
    computed = precision is not None and precision.products.get("float16", 0) > 0
    left = {}
    for name in names:
        trace = mean.column(name)
        known = np.isfinite(trace.values) & (trace.values > 0)
        if known.any() and (computed or run.parameters[name].dtype.removeprefix("torch.") == "float16"):
            carried = trace.values[known] * scales(run, trace.steps[known])
            left[name] = float(np.median(np.log2(carried / SMALLEST)))
    return min(left.items(), key=lambda item: item[1]) if left else None


def flushed(run: Run) -> list[Evidence]:
    """The weight whose gradient has more exact zeros where the scale was low than where it was high."""
    zeros, mean = run.matrix(GRADIENT["zeros"]), run.matrix(GRADIENT["absmean"])
    found: list[tuple[float, str]] = []
    for name in (n for n in zeros.columns if n in run.parameters and len(run.parameters[n].shape) > 1):
        trace = zeros.column(name)
        scale, share = scales(run, trace.steps), trace.values
        known = np.isfinite(scale) & (scale > 0) & np.isfinite(share)
        if known.sum() < LEAST_LOOKS or scale[known].max() < APART * scale[known].min():
            continue
        low, high = known & (scale <= scale[known].min()), known & (scale >= scale[known].max())
        few, many = float(np.median(share[high])), float(np.median(share[low]))
        size = mean.column(name).values if name in mean.columns else np.full(len(scale), np.nan)
        if many - few >= FLUSHED and curves.median((size * scale)[low]) < SMALLEST_NORMAL:
            least, most = figure(float(scale[known].min())), figure(float(scale[known].max()))
            text = f"{name}: {many:.0%} of its gradient is zero at scale {least}, {few:.0%} at {most}"
            found.append((many - few, text))
    return [Evidence(max(found)[1], GRADIENT["zeros"].name, max(found)[0], FLUSHED)] if found else []


def delicate(run: Run, dtype: str) -> list[Evidence]:
    """Softmaxes, normalisations, losses and long sums that ran in that type."""
    told = []
    for fact in {(f.operator, f.line): f for f in run.facts(HalfOperationFact) if f.dtype == dtype}.values():
        line = f" at line {fact.line}" if fact.line else ""
        over = f" over {fact.length:,} values" if fact.length else ""
        told.append(f"{fact.operator.removeprefix('Native')}{over}{line}")
    if not told:
        return []
    more = f" and {len(told) - 4} more" if len(told) > 4 else ""
    text = f"in {dtype}, where float32 is usual: {', '.join(told[:4])}{more}"
    return [Evidence(text, HalfOperationFact.kind, float(len(told)))]
