"""The room's controls, and what is said of a threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from torchdoctor.lab.clipping.drawing import EXCEPTIONAL, draw_norms, draw_shares, percent
from torchdoctor.lab.clipping.recorded import DIGITS, Cut, Recorded, cut
from torchdoctor.lab.station import Pick, Preset, Scale, Shown, Station
from torchdoctor.report.text import count
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters.clipping_too_tight import FAR_BELOW, MOST_CLIPPED
from torchdoctor.rules.norms import SPIKE, Norms

NAME, TITLE = "clipping", "Clipping at another threshold"
TEXT = (
    "Take a recorded run and move the threshold: which steps would have been cut, how much of the way would be left, "
    "and where a threshold would catch the spikes alone."
)
MOST = 0.5
"""Share of cut steps from which on clipping sets their length."""
ROUNDED = 0.05
"""What rounding may take from a threshold."""
WIDEST = 30.0
"""Powers of ten beyond which no threshold is taken."""
UNKNOWN_RANGE = (-3.0, 3.0)


def build_station(options: Mapping[str, str], chosen: str, recorded: Recorded | None) -> Station:
    """The room with its controls: the runs to choose from, and a slider over the norms of the chosen one."""
    low, high = recorded.span if recorded is not None else UNKNOWN_RANGE
    norms = recorded.norms if recorded is not None else None
    start = _place(norms.recommended, low, high) if norms is not None else 0.0
    step = 10.0**-DIGITS
    controls = (
        Pick("run", "Recorded run", options, chosen),
        Scale("threshold", "Threshold", low, high, start, step=step, log=True, help="of the norm of all gradients"),
    )
    presets = _presets(recorded, norms, low, high) if recorded is not None and norms is not None else ()
    return Station(NAME, TITLE, TEXT, controls, presets, lambda choices, found: Shown("info", ""))


def _presets(recorded: Recorded, norms: Norms, low: float, high: float) -> tuple[Preset, ...]:
    wanted = [
        ("Suggested", norms.recommended, "Where the exceptional steps begin: what torchdoctor would propose."),
        ("As the run had it", recorded.in_use, "The threshold that the script itself clips at."),
        ("1.0, as many have it", 1.0, "Copied from one model to the next; whether it suits this one is to be seen."),
        ("The median", norms.median, "Half of all steps are cut: this is no longer a safety net."),
        ("Far too tight", norms.median / (1.5 * FAR_BELOW), "Every step is cut to the same short length."),
        ("Never acts", 1.3 * float(recorded.every.max()), "Above the largest norm: as if there were no clipping."),
    ]
    known = [(label, math.log10(value), text) for label, value, text in wanted if value]
    return tuple(
        Preset(label, {"threshold": _place(10**power, low, high)}, text)
        for label, power, text in known
        if low <= power <= high
    )


def threshold_of(text: str) -> float | None:
    """From the slider's logarithm, in as many digits as are shown; None for what is none."""
    try:
        power = float(text)
    except ValueError:
        return None
    return float(f"{10**power:.3g}") if abs(power) <= WIDEST else None


def show(recorded: Recorded, threshold: float) -> Shown:
    norms = recorded.norms
    assert norms is not None  # read gives none else
    found = cut(recorded, threshold)
    severity, title, advice, diagnosis = judge(recorded, norms, found)
    figures = [
        ("threshold", figure(threshold)),
        ("steps cut", f"{found.share:.1%}"),
        ("of the way kept", f"{found.kept:.1%}"),
        ("median norm", figure(float(np.median(recorded.every)))),
        ("95 % are below", figure(float(np.percentile(recorded.every, 95)))),
        ("largest", figure(float(recorded.every.max()))),
        ("suggested", figure(norms.recommended)),
        ("in use", "none" if recorded.in_use is None else figure(recorded.in_use)),
    ]
    charts = [draw_norms(recorded, found), draw_shares(recorded, norms, found)]
    return Shown(severity, title, explain(recorded), advice, diagnosis, figures, charts)


def judge(recorded: Recorded, norms: Norms, found: Cut) -> tuple[str, str, str, str]:
    """Severity, sentence, advice and the diagnosis that it amounts to."""
    value = figure(found.threshold)
    suggestion = f"Where the exceptional begins in this run: {figure(norms.recommended)}."
    if norms.trend == "rising":
        suggestion += (
            f" The norms grow {figure(norms.change)}-fold: clipping hides that, a lower rate or warmup cures it."
        )
    if found.share == 0:
        largest = figure(float(recorded.every.max()))
        return "info", f"{value} never acts: the largest norm is {largest}", suggestion, ""
    share = percent(found.share)
    if found.share >= MOST_CLIPPED and found.excess >= FAR_BELOW:
        said = f"Too tight: {share} of the steps are cut, the typical one to {1 / found.excess:.1%} of itself"
        return "warning", said, suggestion, "clipping-too-tight"
    if found.share >= MOST:
        said = f"{share} of the steps are cut: this sets their length rather than catching spikes"
        return "info", said, suggestion, ""
    if found.share > EXCEPTIONAL and found.threshold < SPIKE * norms.median * (1 - ROUNDED):
        return "info", f"{share} of the steps are cut: more than the exceptional ones", suggestion, ""
    if not norms.needed:
        said = f"{share} of the steps are cut, none of them far out: clipping hardly matters here"
        return "healthy", said, "A safety net against the batch that has not come yet.", ""
    top = float(recorded.every.max())
    said = f"Catches the spikes: {share} of the steps are cut, the largest from {figure(top)} to {value}"
    return "healthy", said, f"torch.nn.utils.clip_grad_norm_(model.parameters(), {value.replace(',', '')})", ""


def explain(recorded: Recorded) -> str:
    looks = len(recorded.trace) * recorded.trace.merged
    parts = [f"{min(looks, max(recorded.steps, 1)):,} of {count(recorded.steps, 'step')} have a norm"]
    parts[0] += ", as it was before the script's own clipping." if recorded.before else "; this run does not clip."
    if recorded.trace.merged > 1:
        parts.append(
            f"A point stands for {recorded.trace.merged} steps, with the least and the greatest of them; shares are "
            "estimates between these."
        )
    if recorded.broken:
        parts.append(f"{count(recorded.broken, 'norm')} not finite: no threshold helps against these.")
    if recorded.adaptive:
        parts.append("Its optimizer divides the gradient's size out, so that a threshold matters for spikes only.")
    return " ".join(parts)


def _place(value: float, low: float, high: float) -> float:
    """On the slider, which has places for so many digits."""
    return min(max(round(math.log10(value), DIGITS), low), high)
