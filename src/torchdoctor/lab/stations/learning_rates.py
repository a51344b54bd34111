"""The learning-rate explorer: the path that a rate takes, the rates beside it, and all others in one sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchdoctor.lab.figures import HIGHEST, STEP, percent, visible
from torchdoctor.lab.rates import RATE, STEPS, best_of, judge, tried
from torchdoctor.lab.station import Choices, Frames, Moving, Pick, Preset, Scale, Shown, Station
from torchdoctor.plots.chart import LOG, Chart, axes, line
from torchdoctor.plots.layers import positive
from torchdoctor.plots.palette import BLUE, GREEN, GREY, HEAT, ORANGE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats

MAP = "lab-map"
MOMENTUM_EDGE = 3.8
"""2 (1 + 0.9): with momentum 0.9 the edge lies at so many over the largest curvature, without at 2."""

TASKS = {
    "valley": "a narrow valley",
    "saddle": "a saddle",
    "rosenbrock": "Rosenbrock's banana",
    "network": "a small network",
}
OPTIMIZERS = {
    "sgd": "SGD",
    "momentum": "SGD with momentum",
    "adam": "Adam",
    "adamw": "AdamW",
    "rmsprop": "RMSprop",
}
SCHEDULES = {
    "constant": "constant",
    "step": "cut to a tenth, twice",
    "cosine": "cosine to zero",
    "warmup-cosine": "warm-up, then cosine",
    "one-cycle": "one cycle",
}
BATCHES = {"0": "all samples", "64": "64", "16": "16", "4": "4", "1": "1"}
CONTROLS = (
    Pick("task", "Descend on", TASKS, "valley"),
    Pick("optimizer", "Optimizer", OPTIMIZERS, "sgd"),
    RATE,
    Pick("schedule", "Schedule", SCHEDULES, "constant"),
    Pick("batch", "Samples in a batch", BATCHES, "0", help="fewer samples, noisier gradients"),
    Scale(
        "narrow",
        "How narrow",
        0,
        3,
        1.5,
        step=0.25,
        log=True,
        help="curvature across over curvature along; for the network the inputs' scales differ by its root",
    ),
    STEPS,
    Scale("seed", "Seed", 0, 99, 0, help="another draw of batches and weights"),
)
PRESETS = (
    Preset("A good rate", {}, "Quickly down into the valley, then steadily along it."),
    Preset("Too low", {"rate": -3.5}, "The right way, at a snail's pace. The sweep shows how much faster it could go."),
    Preset(
        "At the edge",
        {"rate": -1.2},
        "Just below 2 over the curvature across: each step lands on the other wall, about as high as before.",
    ),
    Preset("Too high", {"rate": -1.1}, "A little beyond the edge, and every step lands higher than it started."),
    Preset(
        "Momentum goes farther",
        {"optimizer": "momentum", "rate": -1.0},
        "The same rate is too high without momentum: it moves the edge to 3.8 over the curvature.",
    ),
    Preset(
        "Noise and no decay",
        {"batch": "1", "rate": -1.4, "steps": 300},
        "Noisy gradients keep it shaking around the minimum at the height of its steps.",
    ),
    Preset(
        "The same, decayed",
        {"batch": "1", "rate": -1.4, "steps": 300, "schedule": "cosine"},
        "The rate goes to zero, the shaking with it.",
    ),
    Preset(
        "Stuck at a saddle",
        {"task": "saddle", "rate": -2.0},
        "Straight to the saddle, where the slope is next to nothing. It looks like the end; momentum gets past.",
    ),
    Preset(
        "Past the saddle",
        {"task": "saddle", "rate": -2.0, "optimizer": "momentum"},
        "Momentum adds up even a tiny slope.",
    ),
    Preset(
        "The banana",
        {"task": "rosenbrock", "optimizer": "adam", "rate": -0.2, "steps": 200},
        "Into the curved valley, then along it: the hard part is not finding it.",
    ),
    Preset(
        "A network, good rate",
        {"task": "network", "optimizer": "adam", "rate": -0.8, "batch": "64"},
        "Its path lies nearly in a plane, and the map is the loss in that plane.",
    ),
    Preset(
        "A network, too high",
        {"task": "network", "optimizer": "adam", "rate": 0.5, "batch": "64"},
        "Adam at 3: each step rewrites the weights.",
    ),
    Preset(
        "No warm-up",
        {"task": "network", "optimizer": "rmsprop", "rate": 0.0},
        "RMSprop knows nothing of the gradient's size at its first steps, which are ten times too long.",
    ),
    Preset(
        "The same, warmed up",
        {"task": "network", "optimizer": "rmsprop", "rate": 0.0, "schedule": "warmup-cosine"},
        "The same rate, reached over the first tenth of the steps.",
    ),
)


def draw(choices: Choices, found: Mapping[str, Any]) -> Shown:
    rate = 10 ** float(choices["rate"])
    losses = np.array(found["losses"], float)
    verdict = judge(choices, found)
    charts = [draw_map(choices, found)] if found["map"] else []
    charts += [draw_curves(rate, losses, found), draw_sweep(choices, found), draw_rates(found)]
    best, lowest = best_of(found, rate)
    figures = [
        ("loss at the start", figure(found["start"])),
        ("at the end", _or_words(found["final"]["chosen"])),
        ("best of the rates tried", figure(best) if math.isfinite(lowest) else "none"),
        ("it ends at", _or_words(lowest)),
        ("largest curvature", figure(found["sharpness"])),
        ("2 over it", figure(2 / found["sharpness"]) if found["sharpness"] > 0 else "none"),
    ]
    frames = _frames(found) if found["map"] else Frames(STEP, found["frames"])
    return Shown(
        verdict.severity,
        verdict.title,
        explain(choices),
        verdict.advice,
        verdict.diagnosis,
        figures,
        charts,
        (),
        frames,
    )


def explain(choices: Choices) -> str:
    schedule = SCHEDULES[str(choices["schedule"])]
    batch = BATCHES[str(choices["batch"])]
    narrow = figure(10 ** float(choices["narrow"]))
    return (
        f"{OPTIMIZERS[str(choices['optimizer'])]} on {TASKS[str(choices['task'])]} ({narrow} to 1), rate: {schedule}, "
        f"{'all samples' if choices['batch'] == '0' else f'batches of {batch}'}, {choices['steps']} steps."
    )


def draw_map(choices: Choices, found: Mapping[str, Any]) -> Chart:
    """The surface from above, dark where the loss is low, and the path on it."""
    seen = found["map"]
    path = _path(found)
    height = np.log10(np.maximum(np.array(seen["loss"], float), 1e-6 * found["start"]))
    if choices["task"] == "network":
        title = f"The plane that holds {percent(seen['share'])} of the way that its weights go"
        chart = Chart(MAP, title, layout=axes("first direction", "second direction", hovermode="closest"))
    else:
        gone = float(np.nansum(np.hypot(*np.diff(path, axis=0).T)))
        title = f"The path: {choices['steps']} steps, {figure(gone)} long"
        if not np.isfinite(path).all():
            title = f"The path leaves for good at step {int(np.argmax(~np.isfinite(path).all(axis=1)))}"
        chart = Chart(MAP, title, layout=axes("first parameter", "second parameter", hovermode="closest"))
    ground: dict[str, Any] = {
        "type": "contour",
        "x": np.array(seen["x"]),
        "y": np.array(seen["y"]),
        "z": visible(height, 30),
        "colorscale": HEAT,
        "ncontours": 24,
        "line": {"width": 0.6},
        "contours": {"coloring": "heatmap"},
        "hovertemplate": "loss 10^%{z:.2f}<extra></extra>",
        "colorbar": {"title": {"text": "loss"}, "thickness": 14, "tickprefix": "10<sup>", "ticksuffix": "</sup>"},
        "name": "loss",
        "showlegend": False,
    }
    ground["colorbar"] |= {"tick0": 0, "dtick": 1}
    way = line("path", path[:, 0], path[:, 1], RED, width=2, mode="lines+markers", showlegend=False)
    way |= {"marker": {"size": 4, "color": RED}, "hoverinfo": "skip"}
    spot = {"type": "scatter", "mode": "markers", "x": path[-1:, 0], "y": path[-1:, 1], "name": "here"}
    spot |= {"marker": {"size": 13, "color": "#FFFFFF", "line": {"color": RED, "width": 3}}, "showlegend": False}
    chart.data += [ground, way, spot | {"hoverinfo": "skip"}]
    chart.layout["xaxis"] |= {"range": [seen["x"][0], seen["x"][-1]], "zeroline": False}
    chart.layout["yaxis"] |= {"range": [seen["y"][0], seen["y"][-1]], "zeroline": False}
    return chart


def draw_curves(rate: float, losses: Floats, found: Mapping[str, Any]) -> Chart:
    """The chosen rate beside a third and three times of it."""
    ends = {name: found["final"][name] for name in ("third", "chosen", "triple")}
    finite = {name: end for name, end in ends.items() if end <= HIGHEST * found["start"]}
    words = {"third": "A third of the rate", "chosen": "The chosen rate", "triple": "Three times the rate"}
    title = "All three diverge"
    if finite:
        winner = min(finite, key=lambda name: finite[name])
        title = f"{words[winner]} ends lowest of the three, at {figure(finite[winner])}"
    chart = Chart("lab-curves", title, layout=axes(STEP, "loss", log=True))
    names = (f"{figure(rate / 3)} (a third)", f"{figure(rate)} (chosen)", f"{figure(3 * rate)} (three times)")
    styles = ((GREEN, "dash"), (BLUE, "solid"), (RED, "dot"))
    for name, curve, (colour, dash) in zip(names, losses, styles, strict=True):
        shown = positive(visible(curve, HIGHEST * found["start"]))
        chart.data.append(line(name, np.arange(len(curve)), shown, colour, dash=dash))
    chart.layout["xaxis"] |= {"range": [0, losses.shape[1]]}
    return chart


def draw_sweep(choices: Choices, found: Mapping[str, Any]) -> Chart:
    """Where every rate ends: a U. Those that leave the picture stand at its upper rim."""
    chosen, start = 10 ** float(choices["rate"]), found["start"]
    rates, ends = tried(found, chosen)
    gone = ~(ends <= HIGHEST * start)
    best, lowest = best_of(found, chosen)
    title = "None of the rates tried ends anywhere"
    if math.isfinite(lowest):
        lost = _lost(int((~(ends <= start)).sum()))
        title = f"Of the rates tried {figure(best)} ends lowest, at {figure(lowest)}{lost}"
    chart = Chart("lab-sweep", title, layout=axes("learning rate", "loss at the end", log=True))
    floor = 1e-12 * start
    shown = np.where(gone, np.nan, np.maximum(ends, floor))
    chart.data.append(line("rates tried", rates, shown, BLUE, mode="lines+markers"))
    own = np.isin(rates, [chosen / 3, chosen, 3 * chosen])
    marks = {"type": "scatter", "mode": "markers", "name": "chosen, a third and three times", "x": rates[own]}
    chart.data.append(marks | {"y": shown[own], "marker": {"symbol": "diamond", "size": 10, "color": ORANGE}})
    rim = {"type": "scatter", "mode": "markers", "name": "off the picture", "x": rates[gone]}
    rim |= {"y": np.full(int(gone.sum()), HIGHEST * start), "marker": {"symbol": "x", "size": 8, "color": RED}}
    if gone.any():
        chart.data.append(rim | {"hovertemplate": "%{x:.2g} diverges<extra></extra>"})
    chart.layout["xaxis"] |= LOG
    edge = edge_of(choices, found)
    known = ends[~gone]
    span = [max(float(known.min(initial=start)), floor), HIGHEST * start if gone.any() else float(known.max())]
    chart.data.append(line(f"chosen: {figure(chosen)}", [chosen] * 2, span, ORANGE, dash="dash"))
    if edge is not None:
        chart.data.append(line(f"edge of stability: {figure(edge)}", [edge] * 2, span, GREY, dash="dot"))
    return chart


def edge_of(choices: Choices, found: Mapping[str, Any]) -> float | None:
    """The rate beyond which descent ends at the minimum's curvature: for plain descent and momentum on a surface."""
    factor = {"sgd": 2.0, "momentum": MOMENTUM_EDGE}.get(str(choices["optimizer"]))
    if factor is None or choices["task"] == "network" or found["sharpness"] <= 0:
        return None
    return float(factor / found["sharpness"])


def draw_rates(found: Mapping[str, Any]) -> Chart:
    rates = np.array(found["rates"], float)
    if np.ptp(rates) <= 1e-9 * rates.max():
        title = f"The rate stays at {figure(float(rates[0]))}"
    else:
        title = (
            f"The rate: {figure(float(rates.max()))} at step {int(rates.argmax())}, {figure(float(rates[-1]))} at last"
        )
    chart = Chart("lab-rates", title, layout=axes(STEP, "learning rate"))
    chart.data.append(line("learning rate", np.arange(len(rates)), rates, ORANGE))
    chart.layout["yaxis"] |= {"rangemode": "tozero", "exponentformat": "power"}
    chart.layout["xaxis"] |= {"range": [0, len(rates)]}
    return chart


def _path(found: Mapping[str, Any]) -> Floats:
    """What lies far off the map is left out."""
    path = np.array(found["map"]["path"], float)
    reach = 100 * max(abs(found["map"][axis][end]) for axis in "xy" for end in (0, -1))
    path[~(np.abs(path) <= reach).all(axis=1)] = np.nan
    return path


def _frames(found: Mapping[str, Any]) -> Frames:
    path = _path(found)
    steps: Sequence[int] = [min(step, len(path) - 1) for step in found["frames"]]
    ways = [{"x": path[: s + 1, 0], "y": path[: s + 1, 1]} for s in steps]
    spots = [{"x": path[s : s + 1, 0], "y": path[s : s + 1, 1]} for s in steps]
    return Frames(STEP, found["frames"], [Moving(MAP, 1, ways), Moving(MAP, 2, spots)])


def _lost(rates: int) -> str:
    return f"; {rates} diverge{'s' * (rates == 1)}" if rates else ""


def _or_words(value: float) -> str:
    return figure(value) if math.isfinite(value) else "diverges"


STATION = Station(
    "learning-rates",
    "Learning-rate explorer",
    "Choose a rate and see the way it takes: on a surface of two parameters, where you can see the whole path, or in a "
    "small network. Beside it all other rates, to see how much room there is.",
    CONTROLS,
    PRESETS,
    draw,
)
