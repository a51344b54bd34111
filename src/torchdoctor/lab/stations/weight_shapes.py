"""Weight shapes: what distributions of weights look like, how a training comes to them, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchdoctor.facts import TRAIN, LossCallFact
from torchdoctor.findings import Finding, Severity
from torchdoctor.lab.figures import HIGHEST, STEP, draw_losses, learned, percent, tell_stuck, visible
from torchdoctor.lab.judging import ask_rules
from torchdoctor.lab.station import Choices, Frames, Moving, Pick, Preset, Scale, Shown, Station, Switch
from torchdoctor.plots.chart import Chart, axes, band, line
from torchdoctor.plots.layers import positive
from torchdoctor.plots.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from torchdoctor.plots.spreads import Counted, changed_most
from torchdoctor.plots.tensor_values import draw_distribution
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters.abnormal_distribution import HEAVY, TWO_VALUED
from torchdoctor.rules.hyperparameters.weight_norm_growth import GROWN
from torchdoctor.run import Floats

RULES = (
    *("abnormal-distribution", "weight-norm-growth", "symmetric-initialization", "bad-initialization-scale"),
    *("over-regularized", "learning-rate-too-high", "learning-rate-oscillation", "nonfinite-parameters"),
)
SHAPED = ("abnormal-distribution", "weight-norm-growth")
"""Rules whose advice guesses at what was done to the weights; here it is known."""
CAUSES = {
    "clamp": "The clamp presses the weights against its limits: drop it, or widen it.",
    "heaps": "The pull to -0.1 or 0.1 makes the two heaps: fine where binary weights are meant, else leave it out.",
    "swell": "The decay of the wrong sign makes them grow: turn its sign around.",
    "l1": "The penalty on magnitudes sets weights to exactly zero: fine where that is meant, else lower it.",
}
UNJUDGED = "small"
PLAIN_KINDS = ("ordinary", UNJUDGED)
LONG_TAILS = "longer tails than usual, but no giants"
HILLS = "lab-hills"
GUESS = math.log(8)
"""Loss of a constant guess among the classes."""
USUAL_GROWTH = (0.8, 4.0)
"""Norm at the end over that at the start in trainings that go well."""
COLOURS = {"ordinary": BLUE, "heavy-tailed": RED, "two-valued": PURPLE, "bimodal": PURPLE, "non-finite": RED}
COLOURS |= {"collapsed": ORANGE, "sparse": GREEN, "small": GREY}
LINES = {"first": BLUE, "second": ORANGE, "head": GREEN}

INITIALISATIONS = {
    "default": "PyTorch's default",
    "he": "He (Kaiming) normal",
    "large": "normal, deviation 1",
    "small": "normal, deviation 0.01",
    "heavy": "Cauchy (heavy tails)",
    "constant": "one constant",
    "zeros": "zeros",
}
OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW"}
DECAYS = {d: d if float(d) else "none" for d in ("0", "0.0005", "0.01", "0.1", "1", "10")}
PENALTIES = {p: p if float(p) else "none" for p in ("0", "0.001", "0.01", "0.03", "0.1")}
HOLDS = {
    "free": "nothing",
    "clamp": "clamped to ±0.05",
    "heaps": "pulled to -0.1 or 0.1",
    "swell": "decay of the wrong sign",
}
CONTROLS = (
    Pick("init", "Initialisation", INITIALISATIONS, "default"),
    Pick("optimizer", "Optimizer", OPTIMIZERS, "adam"),
    Scale("rate", "Learning rate", -4, 0.5, -2.5, step=0.25, log=True),
    Pick("decay", "Weight decay", DECAYS, "0", help="AdamW's acts by itself, that of others through the gradient"),
    Pick("l1", "Penalty on magnitudes (L1)", PENALTIES, "0", help="by soft thresholding: weights become exactly zero"),
    Pick("hold", "Done to the weights after a step", HOLDS, "free"),
    Switch("odd", "One broken value", help="a single input of 100,000, after a third of the steps"),
    Scale("width", "Units in a layer", 16, 128, 64, step=16),
    Scale("steps", "Steps", 0, 400, 150, step=10),
    Scale("seed", "Seed", 0, 99, 0, help="another draw of weights and data"),
)
PLAIN = {"optimizer": "momentum", "rate": -1.5}
PRESETS = (
    Preset("Fresh", {"steps": 0}, "PyTorch's default is flat: every value up to a limit is as likely as any other."),
    Preset("Trained", {}, "The flat top turns into a bell, a little wider than at the start: how it should look."),
    Preset(
        "Decay too strong",
        {**PLAIN, "decay": "0.1"},
        "The decay pulls harder than the gradient: all weights melt away, and the model guesses.",
    ),
    Preset(
        "Sparse",
        {**PLAIN, "l1": "0.01", "steps": 300},
        "A penalty on magnitudes sets weights to exactly zero: a needle at zero, a bell for the rest. Meant so.",
    ),
    Preset(
        "Heavy tails from the start",
        {"init": "heavy"},
        "A few giants make up most of the norm; the rest of the layer might as well not be there.",
    ),
    Preset(
        "Heavy tails from one broken value",
        {"optimizer": "sgd", "rate": -1.0, "odd": True},
        "One number in one sample, and the weights that it touched are giants for good. Adam would hardly notice: try.",
    ),
    Preset("Pressed against a limit", {"hold": "clamp"}, "Clamped after every step: nearly all sit at the two ends."),
    Preset("Two heaps", {"hold": "heaps"}, "Weights on their way to being binary. Fine where that is what you want."),
    Preset("All equal", {"init": "constant"}, "Equal units get equal gradients: each layer has one idea."),
    Preset("All zero", {"init": "zeros"}, "No weight is anything, none gets a gradient, and none will ever be."),
    Preset(
        "Growing without end",
        {"hold": "swell"},
        "A decay by hand with the wrong sign: the bell keeps its shape and gets wider and wider.",
    ),
)


def draw(choices: Choices, found: Mapping[str, Any]) -> Shown:
    call = LossCallFact("cross_entropy", TRAIN, [64, 8], "float32", [64], "int64", "mean", classes=8)
    finding = ask_rules(found["record"], RULES, [call])
    losses = np.array(found["record"]["loss"], float)
    layers, seen = found["layers"], found["seen"]
    last = dict(zip(layers, seen[-1], strict=True))
    severity, title, advice = judge(found, last, finding)
    advice = advise(choices, last, finding.name if finding is not None else "", advice)
    charts = [draw_histogram(name, look) for name, look in last.items()]
    frames = None
    if len(seen) > 1:
        charts += [*_hills(found), draw_peakedness(found), draw_norms(found), draw_losses(losses, GUESS)]
        frames = _frames(found)
    odd = max(last.values(), key=lambda look: (look["kind"] in found["abnormal"], _or_zero(look["giant"])))
    figures = [
        ("excess kurtosis", _or_none(odd["kurtosis"])),
        ("bimodality (Sarle)", _or_none(odd["bimodality"])),
        ("largest / typical", _or_none(odd["giant"])),
        ("exactly zero", percent(odd["zeros"])),
        ("norm", figure(odd["norm"])),
        ("loss at the end", figure(float(losses[-1]))),
    ]
    name = finding.name if finding is not None else ""
    text = explain(choices, last, odd)
    if severity == "healthy" and choices["steps"] and not learned(losses, GUESS):
        severity = "info"
        text += f" The shapes are well, the loss is not: {tell_stuck(losses, GUESS)}."
    return Shown(severity, title, text, advice, name, figures, charts, (), frames)


def judge(found: Mapping[str, Any], last: Mapping[str, Any], finding: Finding | None) -> tuple[str, str, str]:
    """Severity, sentence and advice: the rules' where they speak, else that of weight_distribution."""
    growth = _growth(found)
    title, usual = tell(last, growth), all(look["kind"] in PLAIN_KINDS for look in last.values())
    if finding is not None and finding.severity is not Severity.INFO:
        if usual:
            title = f"The usual shape in {_judged(last)}, but {finding.title[0].lower()}{finding.title[1:]}"
        return finding.severity.value, title, finding.fix.text if finding.fix else ""
    kinds = [look["kind"] for look in last.values()]
    worst = next((k for k in kinds if k in found["abnormal"]), None)
    if worst is not None:
        return "warning", title, found["texts"][worst]
    special = next((k for k in kinds if k not in PLAIN_KINDS), None)
    if special is not None:
        return "info", title, found["texts"][special]
    return "info" if growth >= GROWN else "healthy", title, ""


def advise(choices: Choices, last: Mapping[str, Any], name: str, advice: str) -> str:
    """What makes the shape at the end, where it is chosen; else what the rules or weight_distribution advise."""
    if name not in ("", *SHAPED) or not choices["steps"]:
        return advice
    kinds = {look["kind"] for look in last.values()}
    made = {"heaps": {"two-valued", "bimodal"} & kinds, "clamp": {"two-valued", "bimodal"} & kinds}
    made |= {"swell": name == "weight-norm-growth", "l1": "sparse" in kinds and choices["l1"] != "0"}
    causes = [CAUSES[way] for way, seen in made.items() if seen and way in ("l1", choices["hold"])]
    if causes and choices["init"] == "heavy" and name == "abnormal-distribution":
        causes.append("The giants of the start are another matter: initialise with a bounded distribution.")
    return " ".join(causes) or advice


def tell(last: Mapping[str, Any], growth: float) -> str:
    """The shape of the layers at the end, most remarkable first."""
    groups: dict[str, list[str]] = {}
    for name, look in last.items():
        groups.setdefault(_name(look), []).append(name)
    grown = f"; {figure(growth)} times as long as at the start" if growth >= 2 else ""
    grown = grown or (f"; {percent(growth)} of their length at the start" if 0 < growth < 0.5 else "")
    odd = [(kind, names) for kind, names in groups.items() if last[names[0]]["kind"] not in PLAIN_KINDS]
    if not odd:
        return f"Weights of the usual shape in {_judged(last)}{grown}"
    said = "; ".join(f"{_listed(names, len(last))}: {kind}" for kind, names in odd)
    return f"{said[0].upper()}{said[1:]}{grown}"


def _judged(last: Mapping[str, Any]) -> str:
    """The layers that have enough weights for a shape, and the usual one; which have not, is said."""
    small = [name for name, look in last.items() if look["kind"] == UNJUDGED]
    long = [name for name, look in last.items() if _has_long_tails(look)]
    said = [f"the {_listed(small, 0)} {'is' if len(small) == 1 else 'are'} too small to judge"] * bool(small)
    said += [f"the {_listed(long, 0)} {'has' if len(long) == 1 else 'have'} {LONG_TAILS}"] * bool(long)
    if not said:
        return f"all {len(last)} layers"
    return f"{len(last) - len(small) - len(long)} of {len(last)} layers ({', '.join(said)})"


def _has_long_tails(look: Mapping[str, Any]) -> bool:
    """Flat as heavy tails are, but without the giants that the rules ask for."""
    return bool(look["kind"] == "ordinary" and look["peaked"] < HEAVY)


def _name(look: Mapping[str, Any]) -> str:
    kind = look["kind"]
    if kind == "collapsed":
        return str(look["why"]).replace("% in one", "% of the norm in one")
    if kind == "sparse":
        return f"sparse, {percent(look['zeros'])} exactly zero"
    words = {"heavy-tailed": "a few giants", "two-valued": "two values only", "bimodal": "two heaps"}
    words |= {"non-finite": "NaN or Inf among them", UNJUDGED: "too small to judge"}
    return words.get(kind, kind)


def _listed(names: Sequence[str], count: int) -> str:
    if len(names) == count:
        return "all layers"
    said = [n if n == "head" else f"{n} layer" for n in names]
    return " and ".join(said)


def explain(choices: Choices, last: Mapping[str, Any], odd: Mapping[str, Any]) -> str:
    parts = [f"Start: {INITIALISATIONS[str(choices['init'])]}"]
    if choices["steps"]:
        parts.append(f"{OPTIMIZERS[str(choices['optimizer'])]} at {figure(10 ** float(choices['rate']))}")
        parts += [f"weight decay {choices['decay']}"] * (choices["decay"] != "0")
        parts += [f"L1 penalty {choices['l1']}"] * (choices["l1"] != "0")
        parts += [f"weights {HOLDS[str(choices['hold'])]}"] * (choices["hold"] in ("clamp", "heaps"))
        parts += ["a decay of the wrong sign"] * (choices["hold"] == "swell")
        parts += ["one broken value"] * bool(choices["odd"])
        parts.append(f"{choices['steps']} steps")
    else:
        parts.append("not trained")
    which = next(name for name, look in last.items() if look is odd)
    return f"{', '.join(parts)}. The numbers are those of the {which if which == 'head' else f'{which} layer'}."


def draw_histogram(name: str, look: Mapping[str, Any]) -> Chart:
    chart = Chart(f"lab-{name}", _histogram_title(name, look), layout=axes("weight", "elements", bargap=0))
    chart.data.append({"type": "bar", "name": name, "hovertemplate": "%{y} around %{x:.3g}<extra></extra>"})
    chart.data[0] |= _bars(look)
    chart.layout["xaxis"] |= {"exponentformat": "power"}
    return chart


def _bars(look: Mapping[str, Any]) -> dict[str, Any]:
    """Its bins over the range that weight_distribution gives them: what lies beyond is in the outermost ones."""
    counts, (low, high) = np.array(look["counts"]), look["range"]
    edges = np.linspace(low, high, len(counts) + 1)
    colour = COLOURS.get(look["kind"], BLUE)
    return {"x": (edges[1:] + edges[:-1]) / 2, "y": counts, "marker": {"color": colour, "line": {"width": 0}}}


def _histogram_title(name: str, look: Mapping[str, Any]) -> str:
    which = "Head" if name == "head" else f"{name.capitalize()} layer"
    kind = {"ordinary": "usual shape"}.get(look["kind"], _name(look))
    if look["kind"] == "ordinary" and look["peaked"] > TWO_VALUED:
        kind = "nearly all of one size"
    if _has_long_tails(look):
        kind = LONG_TAILS
    size = f", typically {figure(look['rms'])}" if look["rms"] > 0 else ""
    return f"{which}: {kind}{size}"


def draw_peakedness(found: Mapping[str, Any]) -> Chart:
    """What tells the shapes apart: heavy tails low, a bell at 0.8, two values at 1."""
    peaked = _series(found, "peaked")
    known = [v[np.isfinite(v)] for v in peaked.values()]
    ends = [float(v[-1]) for v in known if len(v)]
    title = "There is no spread to measure"
    if ends:
        words = _tell_peakedness(dict(zip(found["layers"], found["seen"][-1], strict=True)), ends)
        low, high = f"{min(ends):.2f}", f"{max(ends):.2f}"
        title = f"Mean magnitude over root mean square ends at {low}{f' to {high}' * (low != high)}: {words}"
    chart = Chart("lab-peakedness", title, layout=axes(STEP, "mean |w| / rms"))
    shape, note = band(HEAVY, TWO_VALUED, "usual; a bell has 0.80")
    chart.layout |= {"shapes": [shape], "annotations": [note | {"y": HEAVY, "yanchor": "bottom"}]}
    for name, values in peaked.items():
        chart.data.append(line(_called(name), found["looks"], values, LINES[name]))
    chart.layout["yaxis"] |= {"range": [0, 1.05]}
    return chart


def _tell_peakedness(last: Mapping[str, Any], ends: Sequence[float]) -> str:
    """In the words of the histograms beside it."""
    heavy = [name for name, look in last.items() if look["kind"] == "heavy-tailed"]
    if heavy:
        return f"heavy tails in {'' if len(heavy) == len(last) else 'the '}{_listed(heavy, len(last))}"
    if min(ends) < HEAVY:
        return LONG_TAILS
    return "nearly one size" if max(ends) > TWO_VALUED else "as usual"


def draw_norms(found: Mapping[str, Any]) -> Chart:
    norms = _series(found, "norm")
    growth = _growth(found)
    if not math.isfinite(growth):
        zero = all(v[0] == 0 for v in norms.values())
        title = "The norm is zero from the start" if zero else "The norm is not finite at the end"
    elif not growth:
        title = "Nothing is left of the weights"
    elif growth >= GROWN:
        title = f"The weights have grown {figure(growth)}-fold"
    elif growth < 0.5:
        title = f"The weights have shrunk to {percent(growth)} of their length"
    else:
        usual = USUAL_GROWTH[0] <= growth <= USUAL_GROWTH[1]
        title = f"The norm ends at {figure(growth)} times its start{', as usual' * usual}"
    chart = Chart("lab-norms", title, layout=axes(STEP, "norm of the weights", log=True))
    top = max((float(np.nanmax(v)) for v in norms.values() if np.isfinite(v).any()), default=1.0)
    for name, values in norms.items():
        chart.data.append(line(_called(name), found["looks"], positive(visible(values, min(top, 1e30))), LINES[name]))
    return chart


def _hills(found: Mapping[str, Any]) -> list[Chart]:
    """One look behind the other, of the layer that changed most, as the live page draws it."""
    columns = tuple(_called(name) for name in found["layers"])
    held = Counted(np.array(found["looks"]), columns, np.array(found["counts"], np.float64))
    changed = changed_most([held], columns)
    chart = draw_distribution([held], changed, "weights", HILLS) if changed else None
    return [chart] if chart is not None else []


def _frames(found: Mapping[str, Any]) -> Frames:
    moving, titles = [], {}
    for at, name in enumerate(found["layers"]):
        looks = [row[at] for row in found["seen"]]
        moving.append(Moving(f"lab-{name}", 0, [_bars(look) for look in looks]))
        titles[f"lab-{name}"] = [_histogram_title(name, look) for look in looks]
    return Frames(STEP, found["looks"], moving, titles)


def _series(found: Mapping[str, Any], key: str) -> dict[str, Floats]:
    """Of each layer over the looks."""
    rows = np.array([[look[key] if look["kind"] != "non-finite" else np.nan for look in row] for row in found["seen"]])
    return {name: visible(rows[:, at], HIGHEST**9) for at, name in enumerate(found["layers"])}


def _growth(found: Mapping[str, Any]) -> float:
    """Of the typical layer: its norm at the end over that at the start; NaN where there is none."""
    ends = [(v[0], v[-1]) for v in _series(found, "norm").values()]
    known = [last / first for first, last in ends if first > 0 and math.isfinite(last)]
    return float(np.median(known)) if known else math.nan


def _called(name: str) -> str:
    return name if name == "head" else f"{name} layer"


def _or_none(value: float) -> str:
    """Values that are all alike have no shape."""
    return figure(value) if math.isfinite(value) else "none"


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0


STATION = Station(
    "weight-shapes",
    "Shapes of weights",
    "What a histogram of weights tells of the training behind it. Each shape here comes from a real one, and is named "
    "by the same limits as in your own runs.",
    CONTROLS,
    PRESETS,
    draw,
)
