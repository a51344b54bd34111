"""A run in a notebook's cell: what was found so far, and the figures that tell most. No script, no widget."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from torchdoctor.findings import Finding
from torchdoctor.plots.activations import draw_dead_units
from torchdoctor.plots.chart import MARKED, SIGNS, Chart
from torchdoctor.plots.costs import draw_memory, draw_time
from torchdoctor.plots.evidence import picture_of
from torchdoctor.plots.layers import draw_gradient_flow, draw_update_ratio
from torchdoctor.plots.losses import draw_loss
from torchdoctor.plots.palette import GREEN, ink
from torchdoctor.plots.rates import draw_gradient_norm, draw_learning_rate
from torchdoctor.plots.svg import can_draw, draw_svg
from torchdoctor.plots.weights import draw_weight_norms
from torchdoctor.rules.ending import judge_ending
from torchdoctor.run import Run

ALWAYS = (draw_loss, draw_gradient_flow, draw_update_ratio)
ON_DEMAND = (draw_gradient_norm, draw_weight_norms, draw_dead_units, draw_learning_rate, draw_time, draw_memory)
"""Shown where a finding is about it."""
FINDINGS_SHOWN = 6
FINE = "\u2713"
WAITING = "waiting for the first step of a training"


class View:
    """What a cell shows; `text` is for where there is no HTML."""

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text

    def bundle(self) -> dict[str, str]:
        """By MIME type, as IPython's display takes it."""
        return {"text/html": self.html, "text/plain": self.text}


def view(run: Run | None, findings: Sequence[Finding]) -> View:
    """The run as it stands; without one, that nothing has begun."""
    if run is None:
        return View(f'<div class="torchdoctor"><b>torchdoctor</b>: {WAITING}</div>', f"torchdoctor: {WAITING}")
    status = str(run.info.get("status") or ("finished" if run.finished else "running"))
    head = f"{run.info.get('name') or 'torchdoctor'}: {status}, {run.steps:,} step{'' if run.steps == 1 else 's'}"
    said = [_describe(f) for f in findings[:FINDINGS_SHOWN]]
    ending = judge_ending(run)
    nothing = "nothing found so far" if not run.finished else "nothing found"
    if not ending.is_sound:
        nothing = f"no cause found, but {ending.fault}" if ending.fault else f"{nothing}; {' and '.join(ending.unseen)}"
    html = [
        '<div class="torchdoctor" style="font-family:system-ui,sans-serif">',
        f"<div><b>{_safe(head)}</b></div>",
        _list(findings) if findings else f"<div>{_sign(GREEN, FINE) if ending.is_sound else ''} {_safe(nothing)}</div>",
        '<div style="display:flex;flex-wrap:wrap;gap:12px;margin-top:8px">',
        *(_figure(chart) for chart in chosen(run, findings)),
        "</div></div>",
    ]
    return View("".join(html), "\n".join([head, *(said or [nothing])]))


def chosen(run: Run, findings: Sequence[Finding]) -> list[Chart]:
    """The figures that are always worth a look, and the one that shows what the first finding is about."""
    charts = [chart for draw in ALWAYS if (chart := draw(run, findings)) is not None]
    if findings:
        others = [chart for draw in ON_DEMAND if (chart := draw(run, findings)) is not None]
        best = picture_of(findings[0], {chart.name: chart for chart in (*charts, *others)})
        if best is not None:
            charts = [best, *(chart for chart in charts if chart.name != best.name)]
    return [chart for chart in charts if can_draw(chart)]


def _list(findings: Sequence[Finding]) -> str:
    """Causes with what to change; what follows from one stands under it."""
    names = {finding.name for finding in findings}
    causes = [f for f in findings if f.consequence_of not in names]
    rows = []
    for finding in causes[:FINDINGS_SHOWN]:
        word = f"{_sign(MARKED[finding.severity], SIGNS[finding.severity])} <b>{finding.severity.value}</b>"
        change = f"<br/><i>change:</i> {_safe(finding.fix.text)}" if finding.fix.text else ""
        named = f"<b>{_safe(finding.name)}</b>{_safe(_since(finding))}"
        follows = ", ".join(_safe(f.name) for f in findings if f.consequence_of == finding.name)
        after = f"<br/><i>follows from it:</i> {follows}" if follows else ""
        rows.append(f"<li>{word} {named}: {_safe(finding.title)}{change}{after}</li>")
    more = len(causes) - FINDINGS_SHOWN
    rest = f"<li>and {more} more</li>" if more > 0 else ""
    return f'<ul style="margin:4px 0;padding-left:20px">{"".join(rows)}{rest}</ul>'


def _sign(colour: str, sign: str) -> str:
    """In its colour, with words in the notebook's own ink beside it: its paper may be light or dark."""
    return f'<span style="color:{ink(colour, "light")}" aria-hidden="true">{sign}</span>'


def _figure(chart: Chart) -> str:
    caption = f'<figcaption style="font-size:12px;max-width:480px">{_safe(chart.title)}</figcaption>'
    return f'<figure style="margin:0">{caption}{draw_svg(chart)}</figure>'


def _describe(finding: Finding) -> str:
    return f"{finding.severity.value}: {finding.title} ({finding.name}{_since(finding)})"


def _since(finding: Finding) -> str:
    return f" since step {finding.first_step:,}" if finding.first_step is not None else ""


def _safe(text: object) -> str:
    """As a page may show it, whatever a run holds."""
    return escape("".join(c if c.isprintable() else " " for c in str(text)), quote=True)
