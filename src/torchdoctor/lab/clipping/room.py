"""The room's controls, and what is said of a threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torchdoctor.lab.clipping.drawing import draw_norms, draw_shares, percent
from torchdoctor.lab.clipping.places import find_places
from torchdoctor.lab.clipping.recorded import ALIKE, DIGITS, EXCEPTIONAL, HIGH, LEAST, Cut, Recorded, cut
from torchdoctor.lab.station import Pick, Preset, Scale, Shown, Station
from torchdoctor.report.text import count
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters.clipping_too_tight import FAR_BELOW, MOST_CLIPPED
from torchdoctor.rules.norms import CALM, Norms

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
LOOK = 200
"""Steps that `torchdoctor clipping` looks at unless told otherwise."""
BROKEN = (
    "Clipping can keep a run from gradients that overflow, but cannot mend NaN: it makes every gradient NaN. Look for "
    "where it is born first."
)
UNKNOWN_RANGE = (-3.0, 3.0)


def build_station(options: Mapping[str, str], chosen: str, recorded: Recorded | None) -> Station:
    """The room with its controls: the runs to choose from, and a slider over the norms of the chosen one."""
    low, high = recorded.span if recorded is not None else UNKNOWN_RANGE
    start = 0.0
    if recorded is not None:
        start = _place(recorded.suggested or recorded.quantile(HIGH) or 10.0**high, low, high)
    step = 10.0**-DIGITS
    controls = (
        Pick("run", "Recorded run", options, chosen),
        Scale("threshold", "Threshold", low, high, start, step=step, log=True, help="of the norm of all gradients"),
    )
    presets = _presets(recorded, low, high) if recorded is not None else ()
    return Station(NAME, TITLE, TEXT, controls, presets, lambda choices, found: Shown("info", ""))


def _presets(recorded: Recorded, low: float, high: float) -> tuple[Preset, ...]:
    tight = recorded.median / (1.5 * FAR_BELOW)
    wanted = [
        ("Suggested", recorded.suggested, "Where the exceptional steps begin: what torchdoctor would propose."),
        ("As the run had it", recorded.in_use, "The threshold that the script itself clips at."),
        ("1.0, as many have it", 1.0, "Copied from one model to the next; whether it suits this one is to be seen."),
        ("The median", recorded.median, "Half of all steps are cut: this is no longer a safety net."),
        ("Far too tight", tight, f"{_how_many(recorded, tight)} cut to the same short length."),
        ("Never acts", 1.3 * recorded.largest, "Above the largest norm: as if there were no clipping."),
    ]
    known = [(label, math.log10(value), text) for label, value, text in wanted if value]
    return tuple(
        Preset(label, {"threshold": _place(10**power, low, high)}, text)
        for label, power, text in known
        if low <= power <= high
    )


def _how_many(recorded: Recorded, threshold: float) -> str:
    share = cut(recorded, threshold).share if threshold else 0.0
    return "Every step is" if share == 1 else f"{percent(share)} of the steps are"


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
    if recorded.broke:
        severity = "info" if severity == "healthy" else severity
        title += f"; NaN or Inf {recorded.broke} is cut by no threshold"
        advice = " ".join([*(() if advice.startswith("torch.") else (advice,)), BROKEN])
    figures = [
        ("threshold", figure(threshold)),
        ("steps cut" if not recorded.broke else "steps cut, of those with a finite norm", f"{found.share:.1%}"),
        ("of the way kept", f"{found.kept:.1%}"),
        ("median norm", figure(recorded.median)),
        ("95 % are below", figure(recorded.quantile(0.95))),
        ("largest", figure(recorded.largest)),
        ("suggested", "none" if recorded.suggested is None else figure(recorded.suggested)),
        ("in use", "none" if recorded.in_use is None else figure(recorded.in_use)),
    ]
    charts = [draw_norms(recorded, found), draw_shares(recorded, found)]
    return Shown(severity, title, explain(recorded), advice, diagnosis, figures, charts)


def judge(recorded: Recorded, norms: Norms, found: Cut) -> tuple[str, str, str, str]:
    """Severity, sentence, advice and the diagnosis that it amounts to."""
    value = figure(found.threshold)
    suggestion = _suggest(recorded, norms)
    if found.share == 0:
        return "info", f"{value} never acts: the largest norm is {figure(recorded.largest)}", suggestion, ""
    share = percent(found.share)
    if recorded.largest <= found.threshold * (1 + ROUNDED):
        said = f"{share} of the steps are cut, none by more than {ROUNDED:.0%}: clipping hardly matters here"
        return "healthy", said, suggestion, ""
    if found.share >= MOST_CLIPPED and found.excess >= FAR_BELOW:
        said = f"Too tight: {share} of the steps are cut, the typical one to {1 / found.excess:.1%} of itself"
        return "warning", said, suggestion, "clipping-too-tight"
    places = find_places(recorded, found.threshold)
    if places.stretch:
        whole = "finite part of the run" if recorded.broke else "run"
        said = f"Cuts {places.stretch} of the {whole}, where the norms are higher"
        said += (
            f", and {count(places.beside, 'spike')} beside it" if places.beside else ": no single steps that stand out"
        )
        return "info", said, suggestion, ""
    exceptional = found.threshold >= (recorded.suggested or norms.recommended) * (1 - ROUNDED)
    if exceptional and found.share > EXCEPTIONAL and norms.trend != "steady":
        late = percent(float((norms.basis > found.threshold * (1 + ALIKE)).mean()))
        said = f"{share} of the steps are cut, {late} in the second half of the run"
        return "info", said, suggestion, ""
    if found.share >= MOST:
        said = f"{share} of the steps are cut: this sets their length rather than catching spikes"
        return "info", said, suggestion, ""
    if found.share > EXCEPTIONAL and not exceptional:
        return "info", f"{share} of the steps are cut: more than the exceptional ones", suggestion, ""
    if not places.spikes and recorded.largest > CALM * recorded.median:
        said = f"{share} of the steps are cut, and none of them stands out of its neighbours: no spikes"
        return "info", said, suggestion, ""
    if not places.spikes:
        said = f"{share} of the steps are cut, none of them far out: clipping hardly matters here"
        return "healthy", said, "A safety net against the batch that has not come yet.", ""
    said = f"Catches the spikes: {share} of the steps are cut, the largest from {figure(recorded.largest)} to {value}"
    return "healthy", said, f"torch.nn.utils.clip_grad_norm_(model.parameters(), {value.replace(',', '')})", ""


def _suggest(recorded: Recorded, norms: Norms) -> str:
    if norms.recommended < LEAST:
        return "Nearly all steps have no gradient at all: no threshold changes that."
    said = "No threshold cuts the exceptional steps of this run alone."
    if recorded.suggested is not None:
        said = f"Where the exceptional begins in this run: {figure(recorded.suggested)}."
    elif norms.trend == "falling":
        share = percent(cut(recorded, norms.recommended).share)
        said = (
            f"No one threshold cuts the exceptional steps of this run alone: its norms fall to {norms.change:.2g} of "
            f"where they began. That of its second half, {figure(norms.recommended)}, cuts {share} of the whole."
        )
    if norms.trend == "rising":
        said += f" The norms grow {figure(norms.change)}-fold: clipping hides that, a lower rate or warmup cures it."
    return said


def explain(recorded: Recorded) -> str:
    parts = [f"Norms were recorded at {recorded.looks:,} of {count(recorded.steps, 'step')}"]
    parts[0] += ", before the script's own clipping." if recorded.before else "; this run does not clip."
    if recorded.looks < recorded.steps:
        parts.append("Each counts for the steps around it.")
    if recorded.trace.merged > 1:
        parts.append(
            f"A point stands for {recorded.trace.merged} norms, with the least and the greatest of them; shares are "
            "estimates between these."
        )
    if recorded.broken:
        parts.append(f"{count(recorded.broken, 'norm')} not finite: no threshold helps against these.")
    if recorded.adaptive:
        parts.append("Its optimizer divides the gradient's size out, so that a threshold matters for spikes only.")
    parts.append(
        f"torchdoctor clipping {recorded.script} measures anew, over its first {LOOK} steps without clipping, and may "
        "find another threshold."
    )
    return " ".join(parts)


def _place(value: float, low: float, high: float) -> float:
    """On the slider, which has places for so many digits."""
    return min(max(round(math.log10(value), DIGITS), low), high)
