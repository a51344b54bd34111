"""The tree of layers with a mark on each that is not well: dead, saturated, no gradient, updates out of band."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from torchdoctor.facts import ParameterFact
from torchdoctor.plots.activations import FLAT_ENDS, MANY_DEAD
from torchdoctor.plots.layer import late_level, module_of
from torchdoctor.plots.layers import HEALTHY_UPDATES
from torchdoctor.report.text import clean, share
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION, GRADIENT, GRADIENT_L2, UPDATE_RATIO

MOST_LAYERS = 5000
MOST_PARTS = 40
"""Names deeper than this are cut: no model nests so far, a hostile run may."""
OPEN_LAYERS = 60
"""Of trees up to this size every part is open from the start."""


@dataclass
class Layer:
    path: str
    name: str
    kind: str = ""
    marks: list[tuple[str, str]] = field(default_factory=list)
    """(severity, what is wrong)"""
    parts: dict[str, Layer] = field(default_factory=dict)
    measured: bool = False
    """something of its own can be shown"""
    ill: int = 0
    """layers inside it that are marked as worse than unusual"""
    opened: bool = False


def grow_tree(run: Run) -> Layer:
    """The root; parts stand in the order of the forward pass."""
    marks = find_marks(run)
    root = Layer("", "the model")
    known = list(dict.fromkeys([*_parameter_layers(run), *_output_layers(run)]))[:MOST_LAYERS]
    kinds = {f.module: f.module_type for f in run.parameters.values()} | {m.name: m.type for m in run.modules.values()}
    for path in known:
        layer = _reach(root, path)
        layer.measured = True
        layer.kind = clean(kinds.get(path, ""))
        layer.marks = marks.get(path, [])
    _count(root, opened=len(known) <= OPEN_LAYERS)
    return root


def find_marks(run: Run) -> dict[str, list[tuple[str, str]]]:
    """By layer, the gravest first. What has no gradient, or none that is finite, is not called slow as well."""
    found: dict[str, list[tuple[str, str]]] = {}
    without = {name for name, level in _late(run.matrix(GRADIENT_L2)) if level == 0}
    counted = run.matrix(GRADIENT["nonfinite"])
    broken = {
        name for name, level in _late(counted, max(1, len(counted) // 4)) if level > 0
    }  # what breaks does so late
    for names, said in ((without, "no gradient"), (broken, "gradient not finite")):
        for layer, own in _by_layer(run, names).items():
            found.setdefault(layer, []).append(("error", f"{said}: {', '.join(own)}"))
    for name in _broken_outputs(run):
        found.setdefault(name, []).append(("error", "output not finite"))
    for kind, limit in (("dead", MANY_DEAD), ("saturated", FLAT_ENDS)):
        for name, level in _late(run.matrix(ACTIVATION[kind])):
            if level > limit:
                found.setdefault(name, []).append(("warning", f"{share(level)} {kind}"))
    low, high = HEALTHY_UPDATES
    for name, level in _late(run.matrix(UPDATE_RATIO)):
        known = run.parameters.get(name)
        flat = known is not None and len(known.shape) < 2  # biases begin at zero: their first steps are large for them
        if name in without or name in broken or flat or low <= level <= high:
            continue
        said = f"{'large' if level > high else 'small'} updates: {share(level)} a step"
        found.setdefault(module_of(run, name), []).append(("info", said))
    return found


def _broken_outputs(run: Run) -> list[str]:
    """By the last look at each: what breaks does so late, and does not mend."""
    trace = run.matrix(ACTIVATION["nonfinite"])
    last = [column.values[np.isfinite(column.values)][-1:] for column in map(trace.column, trace.columns)]
    return [name for name, value in zip(trace.columns, last, strict=True) if len(value) and value[0] > 0]


def _by_layer(run: Run, parameters: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(parameters, reverse=True):  # weight before bias
        found.setdefault(module_of(run, name), []).append(_end(name))
    return found


def _late(trace: Trace, rows: int = 0) -> Iterator[tuple[str, float]]:
    """The level at the end of each column, as the layer's own charts tell it; `rows`: of so many last ones."""
    values = trace.values[-rows:]
    for at in np.flatnonzero(np.isfinite(values).any(axis=0)) if len(trace) else ():
        level = late_level(Trace.raw(trace.steps[-rows:], values[:, at]))
        if not np.isnan(level):
            yield trace.columns[int(at)], level


def _parameter_layers(run: Run) -> list[str]:
    described = {fact.name for fact in run.facts(ParameterFact)}  # those that were renamed, too
    others = [name for name in run.matrix(GRADIENT_L2).columns if name not in described]
    return [module_of(run, name) for name in [*run.parameters, *others]]


def _output_layers(run: Run) -> list[str]:
    trace = run.matrix(ACTIVATION["std"])
    held = set(trace.columns)
    return [name for name in run.modules if name in held] or list(trace.columns)


def _reach(root: Layer, path: str) -> Layer:
    layer, names = root, path.split(".", MOST_PARTS) if path else []
    for depth, name in enumerate(names):
        if name not in layer.parts:
            layer.parts[name] = Layer(".".join(names[: depth + 1]), clean(name) or "?")
        layer = layer.parts[name]
    return layer


def _count(layer: Layer, opened: bool) -> int:
    if all(name.isdecimal() for name in layer.parts):  # parameters and outputs are numbered apart
        layer.parts = dict(sorted(layer.parts.items(), key=lambda item: int(item[0])))
    inside = sum(_count(part, opened) for part in layer.parts.values())
    layer.ill = inside
    layer.opened = opened or bool(inside)
    return inside + any(severity != "info" for severity, _ in layer.marks)


def _end(parameter: str) -> str:
    return clean(parameter.rpartition(".")[2])
