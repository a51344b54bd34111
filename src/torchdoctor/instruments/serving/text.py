"""A comparison with samples from use in words and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from torchdoctor.errors import UsageError
from torchdoctor.instruments.tables import listed, table
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BAND, BLUE, RED
from torchdoctor.report.text import count as counted
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data.training_serving_skew import FAR

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from torchdoctor.instruments.serving.skew import FeatureShift, Skew

SHOWN, SHOWN_FITTING = 8, 3
LEAST_RATIO, LEAST_CHANCE = 1e-3, 1e-6


def describe(found: Skew) -> str:
    return "\n".join(_lines(found))


def _lines(found: Skew) -> Iterator[str]:
    against = f"{counted(found.samples, 'sample')} from use against {counted(found.trained, 'training sample')}"
    if found.finding is None:
        yield f"No skew found: {_nothing_found(found)} ({against})."
    else:
        finding = found.finding
        yield f"{finding.severity.value.upper()}  {finding.name} ({finding.code})  {finding.title}"
        yield f"  {against}"
        for mismatch in found.mismatches if found.explanation or len(found.mismatches) > 1 else ():
            yield f"  {mismatch['text']}"
        yield f"  fix: {finding.fix.text}"
    rows = [_row(f, found.too_few is not None) for f in _shown(found)]
    if rows:
        yield ""
        hidden = len(found.features) - len(rows)
        head = (found.unit, "training", "in use", "mean moved", "spread", "PSI", "outside", "chance")
        yield from table((*head, ""), rows)
        if hidden:
            yield f"  and {hidden} more in .features, or by --json FILE"
    yield ""
    yield from (f"note: {note}" for note in found.notes)
    if found.not_compared:
        yield f"not compared: {'; '.join(found.not_compared)}"


def _nothing_found(found: Skew) -> str:
    if found.too_few is not None:
        outside = [f.name for f in found.features if f.outside > 0]
        beyond = f"not all lie within the range of training ({listed(outside, 3)}), which may be chance"
        ranges = beyond if outside else "they lie within the range of training"
        return f"too few samples to compare means and spreads, which takes {found.too_few}; {ranges}"
    if found.features:
        many = len(found.features)
        if many == 1:
            return "mean, spread and range are those of training, as far as so many samples can tell"
        return f"none of {many} {found.unit}s is off beyond chance and by enough"
    if found.tokens is not None:
        return "token ids occur as often as in training"
    return "shape and range fit, and nothing else could be compared"


def _shown(found: Skew) -> list[FeatureShift]:
    shifted = found.shifted
    return found.features[: min(SHOWN, max(len(shifted), SHOWN_FITTING))]


def _row(f: FeatureShift, few: bool) -> tuple[str, ...]:
    return (
        f.name,
        f"{figure(f.trained_mean)} +- {figure(f.trained_std)}",
        f"{figure(f.used_mean)} +- {figure(f.used_std)}",
        f"{f.moved:+.2f} sd" if np.isfinite(f.moved) else "-",
        f"x {figure(f.ratio)}" if np.isfinite(f.ratio) else "-",
        "-" if few else f"{f.distance:.2f}" if f.distance < 100 else "> 100",
        f"{f.outside:.0%}",
        f"{f.chance:.2g}" if f.chance > LEAST_CHANCE else f"< {LEAST_CHANCE:g}",
        "shifted" if f.shifted else "too few" if few else "fits",
    )


def draw(found: Skew) -> Figure:
    known = [f for f in found.features if np.isfinite(f.moved) and np.isfinite(f.ratio)]
    if not known:
        raise UsageError("there are no features to draw: they could not be compared")
    drawn = new_figure(
        _title(found), "mean in use - mean in training, in standard deviations", "spread in use / training"
    )
    ratio = np.geomspace(np.sqrt(0.5), np.sqrt(2), 101)
    room = np.maximum(2 * FAR - ratio**2 - 1 / ratio**2 + 2, 0) / (1 + 1 / ratio**2)
    edge = np.sqrt(room)
    drawn.add_scatter(
        x=[*edge, *-edge[::-1]],
        y=[*ratio, *ratio[::-1]],
        fill="toself",
        fillcolor=BAND,
        line={"width": 0},
        name=f"close enough (PSI below {FAR:g})",
        hoverinfo="skip",
    )
    for members, colour, name in (
        ([f for f in known if not f.shifted], BLUE, "fits, or within chance"),
        ([f for f in known if f.shifted], RED, "shifted"),
    ):
        drawn.add_scatter(
            x=[f.moved for f in members],
            y=[max(f.ratio, LEAST_RATIO) for f in members],
            mode="markers+text" if len(members) <= 12 else "markers",
            text=[f.name for f in members],
            textposition="top center",
            marker={"color": colour, "size": 9},
            name=name,
            hovertemplate="%{text}<br>mean moved %{x:.2f} sd<br>spread x %{y:.3g}<extra></extra>",
        )
    drawn.update_yaxes(LOG)
    return drawn


def _title(found: Skew) -> str:
    shifted = found.shifted
    if found.explanation is not None:
        return f"Samples from use do not fit: {found.explanation['text']}"
    if not shifted and found.too_few is not None:
        return f"{counted(found.samples, 'sample')} from use: too few to compare means and spreads"
    if len(found.features) == 1:
        return f"The inputs in use {'are not' if shifted else 'are'} like those of training"
    if not shifted:
        return f"None of {len(found.features)} {found.unit}s has shifted beyond chance"
    return f"{len(shifted)} of {len(found.features)} {found.unit}s have shifted: {listed([f.name for f in shifted], 3)}"
