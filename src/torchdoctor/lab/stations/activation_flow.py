"""Activation flow: ReLUs as they die. Every unit is a cell; it goes dark as it lets less through, and red once dead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.facts import TRAIN, Fact, InputsFact, LossCallFact, ModuleFact
from torchdoctor.findings import Finding, Severity
from torchdoctor.lab.figures import STEP, diverged, draw_losses, learned, tell_stuck
from torchdoctor.lab.judging import ask_rules
from torchdoctor.lab.station import Choices, Frames, Moving, Pick, Preset, Scale, Shown, Station
from torchdoctor.plots.activations import MANY_DEAD
from torchdoctor.plots.chart import Chart, axes, line
from torchdoctor.plots.palette import CYCLE, RED
from torchdoctor.rules.architecture.dead_relu import LEAST
from torchdoctor.rules.curves import figure

RULES = ("dead-relu", "learning-rate-too-high", "exploding-gradients", "nonfinite-parameters")
FEW = 0.1
"""Of all units: so many are dead in any deep network of ReLUs, and nobody misses them."""
LOWER = "Lower the learning rate or warm it up."
CELLS = "lab-cells"
CROWDED = 24
"""Units in a row from which on the gaps between their cells get narrower."""
COLOURS = [[0, RED], [0.005, RED], [0.005, "#00224E"], [0.3, "#3B5698"], [0.6, "#9A9A6B"], [1, "#FEE838"]]
"""Red for nothing at all, then Cividis from dark to bright."""

ACTIVATIONS = {"relu": "ReLU", "leaky-relu": "leaky ReLU", "elu": "ELU", "gelu": "GELU", "silu": "SiLU (swish)"}
OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam"}
OUTLIERS = {"none": "none", "inputs": "inputs 10 times too large", "targets": "targets 25 times too large"}
CONTROLS = (
    Pick("activation", "Activation", ACTIVATIONS, "relu"),
    Pick("optimizer", "Optimizer", OPTIMIZERS, "momentum"),
    Scale("rate", "Learning rate", -4, 1, -2, step=0.25, log=True),
    Scale("bias", "Biases start at", -3, 1, 0, step=0.25),
    Scale("targets", "Size of the targets", 0, 3, 0, step=0.5, log=True, help="how large the numbers to predict are"),
    Pick("outlier", "One odd batch", OUTLIERS, "none", help="after a third of the steps, once"),
    Scale("depth", "Hidden layers", 1, 8, 4),
    Scale("width", "Units in a layer", 8, 64, 32, step=8),
    Scale("steps", "Steps", 10, 300, 60, step=10),
    Scale("seed", "Seed", 0, 99, 0, help="another draw of weights and data"),
)
KILLED = {"rate": -1.0}
ODD = {"rate": -1.75, "outlier": "inputs", "steps": 90}
PRESETS = (
    Preset(
        "A good rate", {}, "Nearly every unit stays lit: each lets the gradient of about half of the samples through."
    ),
    Preset(
        "Rate too high",
        KILLED,
        "Press Play: within a few steps whole layers go out. Their biases were thrown below zero, and nothing that is "
        "dead gets a gradient that could bring it back.",
    ),
    Preset(
        "The same, leaky ReLU",
        {**KILLED, "activation": "leaky-relu"},
        "A slope of a hundredth is enough: cells get dark, none dies, and the network learns.",
    ),
    Preset("The same, GELU", {**KILLED, "activation": "gelu"}, "GELU bends around zero: units find their way back."),
    Preset(
        "Biases start below zero",
        {"bias": -1.5},
        "Dead before the first step: the deeper the layer, the less reaches it.",
    ),
    Preset(
        "One odd batch",
        ODD,
        "All is well until one batch comes whose inputs were not scaled. The loss gets over it; the units do not.",
    ),
    Preset(
        "Adam, first steps too long",
        {"optimizer": "adam", "rate": -0.5},
        "Adam's first step moves every weight by the whole rate, whatever the gradient.",
    ),
)


@dataclass(frozen=True)
class Deaths:
    """What became of the units, up to the first step at which something is not finite."""

    dead: NDArray[np.bool_]
    """(steps, layers, units)"""

    @property
    def units(self) -> int:
        return int(self.dead[0].size)

    @property
    def at_start(self) -> int:
        return int(self.dead[0].sum())

    @property
    def at_end(self) -> int:
        return int(self.dead[-1].sum())

    @property
    def died(self) -> int:
        """Alive at first, dead at the end."""
        return int((~self.dead[0] & self.dead[-1]).sum())

    @property
    def came_back(self) -> int:
        """Dead at some time, alive at the end."""
        return int((self.dead.any(axis=0) & ~self.dead[-1]).sum())

    @property
    def shares(self) -> NDArray[np.floating[Any]]:
        """Of each layer at the end."""
        return self.dead[-1].mean(axis=1)

    @property
    def worst(self) -> int:
        return int(self.shares.argmax())

    def half_by(self) -> int:
        """The step by which half of those that died were dead for good."""
        alive = ~self.dead
        last_alive = len(alive) - 1 - alive[::-1].argmax(axis=0)
        steps = last_alive[~self.dead[0] & self.dead[-1]] + 1
        return int(np.median(steps))


def draw(choices: Choices, found: Mapping[str, Any]) -> Shown:
    finite = np.array(found["finite"], bool)
    sound = len(finite) if finite.all() else int(np.argmin(finite))
    dead_SLU = np.array(found["dead"], bool)
    deaths = Deaths(dead_SLU[: max(1, sound)])
    losses, guess = np.array(found["record"]["loss"], float), found["targets"][1] ** 2
    broken = None if sound == len(finite) else sound
    finding = ask_rules(found["record"], RULES, _facts(choices, found))
    severity, advice, name = judge(choices, finding, deaths, broken, diverged(losses, guess))
    title, text = tell(deaths, broken, len(finite) - 1), explain(choices)
    if broken is None and severity == "error" and diverged(losses, guess):
        title = f"The loss runs off, from {figure(float(losses[0]))} to {figure(float(losses[-1]))}; {_lower(title)}"
    elif severity == "healthy" and not learned(losses, guess):
        severity = "info"
        text += f" The units are well, the loss is not: {tell_stuck(losses, guess)}."
    elif finding is None and severity == "info":
        text += f" Your own run would be reported from {LEAST:.0%} of a layer on, for as long as the loss goes nowhere."
    elif severity == "info":
        text += " The loss falls all the same, so this is no alarm: a network can do without some of its units."
    charts = [draw_cells(found, dead_SLU, finite), draw_shares(dead_SLU, finite), draw_losses(losses, guess)]
    _mark_odd(charts[1:], int(found["outlier_at"]))
    figures = [
        ("dead at the start", f"{deaths.at_start} of {deaths.units}"),
        ("dead at the end", f"{deaths.at_end} of {deaths.units}" if broken is None else "not finite"),
        ("came back", str(deaths.came_back)),
        ("loss at the end", figure(float(losses[-1]))),
    ]
    frames = _frames(found, dead_SLU, finite)
    return Shown(severity, title, text, advice, name, figures, charts, (CELLS,), frames)


def judge(
    choices: Choices, finding: Finding | None, deaths: Deaths, broken: int | None, runs_off: bool
) -> tuple[str, str, str]:
    """Severity, advice and diagnosis: the rules' where they see a fault, else by what became of loss and units."""
    if finding is not None and not (runs_off and finding.severity is Severity.INFO):
        return finding.severity.value, finding.fix.text if finding.fix else "", finding.name
    if broken is not None:
        return "error", _advise(choices), ""
    if runs_off:
        return "error", LOWER, ""
    return ("info", _advise(choices), "") if deaths.shares.max() >= MANY_DEAD else ("healthy", "", "")


def tell(deaths: Deaths, broken: int | None, steps: int) -> str:
    """When, where and how many died, and whether any came back."""
    if broken is not None:
        before = f"; {deaths.at_end} of {deaths.units} units were dead by then" if deaths.at_end else ""
        return f"Values overflow: nothing is finite from step {broken} on{before}"
    back = f"; {deaths.came_back} came back" if deaths.came_back else ""
    if not deaths.at_end:
        return f"All {deaths.units} units live after {steps} steps{back}"
    if deaths.at_end < FEW * deaths.units:
        return f"{deaths.units - deaths.at_end} of {deaths.units} units live after {steps} steps{back}"
    layer = f"layer {deaths.worst + 1} ({deaths.shares.max():.0%} of it)"
    if deaths.died * 2 < deaths.at_end:
        later = f" and {deaths.at_end} at the end" if deaths.at_end != deaths.at_start else ""
        return f"{deaths.at_start} of {deaths.units} units are dead before the first step{later}, most in {layer}{back}"
    said = f"{_count(deaths.died)} of {deaths.units} die, half of them by step {deaths.half_by()}; most in {layer}"
    return said + (back or "; none came back")


def explain(choices: Choices) -> str:
    parts = [
        f"{choices['depth']} layers of {choices['width']} units",
        ACTIVATIONS[str(choices["activation"])],
        f"{OPTIMIZERS[str(choices['optimizer'])]} at {figure(10 ** float(choices['rate']))}",
    ]
    if choices["bias"]:
        parts.append(f"biases from {choices['bias']:g}")
    if choices["targets"]:
        parts.append(f"targets of size {figure(10 ** float(choices['targets']))}")
    if choices["outlier"] != "none":
        parts.append(f"one batch with {OUTLIERS[str(choices['outlier'])]}")
    return f"{', '.join(parts)}."


def draw_cells(found: Mapping[str, Any], dead_SLU: NDArray[np.bool_], finite: NDArray[np.bool_]) -> Chart:
    layers, units = dead_SLU.shape[1:]
    shown = _sound(found, finite)
    chart = Chart(CELLS, "", layout=axes("unit", "layer", hovermode="closest"))
    hover = "layer %{y}, unit %{x}<br>lets %{z} % of the gradient through<extra></extra>"
    heat: dict[str, Any] = {
        "type": "heatmap",
        "x": list(range(1, units + 1)),
        "y": [str(i + 1) for i in range(layers)],
        "z": _cells(found, shown[-1]),
        "zmin": 0,
        "zmax": 100,
        "xgap": 1 if units > CROWDED else 2,
        "ygap": 2,
        "colorscale": COLOURS,
        "hovertemplate": hover,
    }
    bar = {"title": {"text": "lets through"}, "ticksuffix": " %", "thickness": 14}
    heat["colorbar"] = bar | {"tickvals": [0, 25, 50, 75, 100]}
    chart.data.append(heat)
    chart.layout["yaxis"] |= {"type": "category", "showgrid": False}
    chart.layout["xaxis"] |= {"showgrid": False, "zeroline": False}
    note = {"text": "red: dead", "xref": "paper", "yref": "paper", "x": 1, "y": 1}
    note |= {"xanchor": "right", "yanchor": "bottom", "showarrow": False, "font": {"color": RED, "size": 12}}
    chart.layout["annotations"] = [note]
    chart.title = _cell_title(found["frames"][shown[-1]], dead_SLU, finite)
    return chart


def draw_shares(dead_SLU: NDArray[np.bool_], finite: NDArray[np.bool_]) -> Chart:
    share_SL = np.where(finite[:, None], dead_SLU.mean(axis=2), np.nan)
    known = share_SL[finite]
    worst = int(known[-1].argmax()) if len(known) else 0
    if not len(known) or known.max() < 0.005:
        title = "No layer ever has a dead unit"
    else:
        title = f"Layer {worst + 1} ends with {known[-1, worst]:.0%} of its units dead"
    chart = Chart("lab-shares", title, layout=axes(STEP, "dead units"))
    for layer in range(share_SL.shape[1]):
        style = {"dash": "solid" if layer < len(CYCLE) else "dot"}
        steps = np.arange(len(share_SL))
        chart.data.append(line(f"layer {layer + 1}", steps, share_SL[:, layer], CYCLE[layer % len(CYCLE)], **style))
    chart.layout["yaxis"] |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
    chart.layout["xaxis"] |= {"range": [0, len(share_SL) - 1]}
    return chart


def _frames(found: Mapping[str, Any], dead_SLU: NDArray[np.bool_], finite: NDArray[np.bool_]) -> Frames:
    shown = _sound(found, finite)
    steps = [found["frames"][i] for i in shown]
    cells = [{"z": _cells(found, i)} for i in shown]
    titles = [_cell_title(step, dead_SLU, finite) for step in steps]
    return Frames(STEP, steps, [Moving(CELLS, 0, cells)], {CELLS: titles})


def _sound(found: Mapping[str, Any], finite: NDArray[np.bool_]) -> list[int]:
    """The frames at which all is finite; the first always is."""
    return [i for i, step in enumerate(found["frames"]) if finite[: step + 1].all()]


def _cells(found: Mapping[str, Any], frame: int) -> list[list[int]]:
    """In percent; a unit that is not dead has one at least."""
    slopes, dead = found["slopes"][frame], found["dead"][found["frames"][frame]]
    return [[0 if d else max(1, s) for s, d in zip(*rows, strict=True)] for rows in zip(slopes, dead, strict=True)]


def _cell_title(step: int, dead_SLU: NDArray[np.bool_], finite: NDArray[np.bool_]) -> str:
    dead = int(dead_SLU[step].sum())
    over = "" if finite.all() else f"; nothing is finite from step {int(np.argmin(finite))} on"
    return f"Step {step}: {dead or 'none'} of {dead_SLU[step].size} units dead{over}"


def _mark_odd(charts: Sequence[Chart], step: int) -> None:
    for chart in charts if step >= 0 else ():
        shape = {"type": "line", "x0": step, "x1": step, "yref": "paper", "y0": 0, "y1": 1}
        chart.layout["shapes"] = [shape | {"line": {"color": RED, "dash": "dot", "width": 1.5}}]
        note = {"text": "odd batch", "x": step, "yref": "paper", "y": 1, "xanchor": "left", "showarrow": False}
        chart.layout["annotations"] = [note | {"font": {"color": RED, "size": 12}}]


def _advise(choices: Choices) -> str:
    if float(choices["bias"]) < 0:
        return "Start the biases at zero."
    return f"{LOWER[:-1]}, or use an activation that leaks."


def _facts(choices: Choices, found: Mapping[str, Any]) -> list[Fact]:
    """What the rules would know of such a run beside its numbers."""
    mean, std = found["targets"]
    kind, width = str(choices["activation"]), int(choices["width"])
    modules = [
        ModuleFact(name, ACTIVATIONS[kind], kind.replace("-", "_"), order, width)
        for order, name in enumerate(found["record"]["columns"])
    ]
    call = LossCallFact("mse_loss", TRAIN, [1], "float32", [1], "float32", "mean")
    return [*modules, call, InputsFact(TRAIN, "target", [1], "float32", mean, std)]


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _count(units: int) -> str:
    return "one unit" if units == 1 else f"{units} units"


STATION = Station(
    "activation-flow",
    "Activation flow: units as they die",
    "A network is trained while you watch each of its units. A ReLU that is negative for every sample lets no gradient "
    "through, so it seldom comes back.",
    CONTROLS,
    PRESETS,
    draw,
)
