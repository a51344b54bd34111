"""What a learning-rate range test has found, to print, to plot and to set."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.instruments.learning_rate.curve import Sweep, band, trace
from torchdoctor.instruments.learning_rate.trust import Doubt
from torchdoctor.instruments.result import Result
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BAND, BLUE, GREEN, GREY, ORANGE, PURPLE, RED

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HEADROOM = 1.5
"""Of the fall, above the start: what the picture shows of an explosion."""
FLAT = 0.5
"""Of the loss: the least that counts as a fall in the picture, so that noise does not look like one."""
ADVICE = re.compile(r"[;.] ")
"""Before it a doubt says what was seen, behind it what to do: a title has room for the first."""
WIDTH = 100
"""Of the text, in characters."""


@dataclass(frozen=True)
class LearningRates(Result):
    recommended: float | None
    """what to set: the mean of valley, tenth and turn on the logarithmic axis, as far as they are known; None where no
    rate made the loss fall"""
    steepest: float | None
    tenth: float | None
    valley: float | None
    turn: float | None
    """where the loss was lowest; None where the sweeps were cut while it still fell"""
    divergence: float | None
    """where half of what the loss had gained was lost again"""
    by_seed: list[float]
    """the recommendation of each sweep alone"""
    group_rates: list[float]
    """the recommendation for each parameter group"""
    doubts: list[Doubt]
    sweeps: list[Sweep] = field(repr=False)
    scout: Sweep | None = field(repr=False)
    """the quick sweep over the whole range, if there was one"""
    smoothing: float
    mode: str
    optimizer: str

    @property
    def trusted(self) -> bool:
        return not self.doubts

    @property
    def warnings(self) -> list[str]:
        return [d.text for d in self.doubts]

    def apply(self, optimizer: Any) -> None:
        """Sets the recommendation on this optimizer, group by group."""
        if self.recommended is None:
            raise UsageError(f"there is no learning rate to set: {'; '.join(self.warnings)}")
        groups = optimizer.param_groups
        if len(groups) != len(self.group_rates):
            raise UsageError(
                f"rates were found for {len(self.group_rates)} parameter groups, and here are {len(groups)}"
            )
        if any("initial_lr" in group for group in groups):
            raise UsageError(
                "a scheduler is attached to this optimizer and would set its own rates again; build both anew with "
                f"lr={self.recommended:.2g}"
            )
        for group, rate in zip(groups, self.group_rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def __str__(self) -> str:
        if self.recommended is None:
            lines = ["No learning rate to recommend."]
        elif self.trusted:
            lines = [f"Set the learning rate to {self.recommended:.2g} ({self.optimizer})."]
        else:
            lines = [f"Perhaps {self.recommended:.2g} as the learning rate ({self.optimizer}), but with doubts:"]
        for text in self.warnings:
            lines += textwrap.wrap(f"warning: {text}.", WIDTH, initial_indent="  ", subsequent_indent="    ")
        if self.recommended is None:
            return "\n".join([*lines, self._swept()])
        if len(self.group_rates) > 1:
            lines.append(f"  parameter groups: {', '.join(f'{rate:.2g}' for rate in self.group_rates)}")
        lines += ["  It lies amid", *(f"    {n:<22}{rate}  {what}" for n, rate, what in self._rules())]
        return "\n".join([*lines, self._fall(), self._swept()])

    def _rules(self) -> list[tuple[str, str, str]]:
        tenth = "the loss did not diverge" if self.divergence is None else f"it diverges at {self.divergence:.2g}"
        turn = ("lowest loss", self.turn, "rates above it lose again what was gained")
        if self.turn is None and self.divergence is not None:
            turn = ("lowest loss", None, "the loss hardly fell")
        elif self.turn is None:
            highest = max(float(s.rates[-1]) for s in self.sweeps)
            turn = ("highest rate tried", highest, "the loss still fell there: raise high=")
        rows = (
            ("steepest descent", self.steepest, "where the loss falls fastest"),
            ("valley", self.valley, "two thirds of the way down to the lowest loss"),
            ("tenth of divergence", self.tenth, tenth),
            turn,
        )
        return [(name, "-".ljust(8) if rate is None else f"{rate:<8.2g}", what) for name, rate, what in rows]

    def _fall(self) -> str:
        start, lowest = self._levels()
        seeds = ""
        if len(self.by_seed) > 1:
            seeds = f"; the seeds one by one say {min(self.by_seed):.2g} to {max(self.by_seed):.2g}"
        return f"  The loss fell from {start:.3g} to {lowest:.3g}{seeds}."

    def _swept(self) -> str:
        longest = max(self.sweeps, key=lambda s: len(s.rates))
        count = len(self.sweeps)
        text = f"  {count} {self.mode} sweep{'s' * (count != 1)} from {longest.rates[0]:.2g} to {longest.rates[-1]:.2g}"
        if self.scout is not None and len(self.scout.rates):
            text += f", after a quick one from {self.scout.rates[0]:.2g} to {self.scout.rates[-1]:.2g}"
        updates = sum(len(s.rates) for s in (*self.sweeps, *((self.scout,) if self.scout else ())))
        return f"{text}: {updates} updates, all undone."

    def _levels(self) -> tuple[float, float]:
        traces = [trace(s, self.smoothing) for s in self.sweeps]
        start = float(np.median([t.start for t in traces]))
        return start, start - float(np.median([max(t.fall, 0.0) for t in traces]))

    def _title(self) -> str:
        if self.recommended is None:
            unmoved = any(d.name == "unmoved" for d in self.doubts)
            return "No learning rate in this range moved the loss" if unmoved else "No learning rate made the loss fall"
        end = "had not diverged yet" if self.divergence is None else f"diverges at {self.divergence:.2g}"
        fastest = "hardly falls" if self.steepest is None else f"falls fastest at {self.steepest:.2g}"
        if not self.trusted:
            return f"About {self.recommended:.2g}, with doubts: {ADVICE.split(self.warnings[0])[0]}"
        return f"Set {self.recommended:.2g}: the loss {fastest} and {end}"

    def plot(self) -> Figure:
        start, lowest = self._levels()
        fall = max(start - lowest, FLAT * abs(start))
        ends = [lowest - 0.3 * fall, start + HEADROOM * fall]
        chart = new_figure(self._title(), "learning rate", "loss", xaxis=LOG if self.mode == "exponential" else {})
        self._draw_losses(chart)
        for name, rate, colour, dash in (
            ("steepest descent", self.steepest, ORANGE, "dot"),
            ("valley", self.valley, PURPLE, "dot"),
            ("tenth of divergence", self.tenth, GREY, "dot"),
            ("lowest loss", self.turn, BLUE, "dot"),
            ("divergence", self.divergence, RED, "dash"),
            ("recommended", self.recommended, GREEN, "solid"),
        ):
            if rate is not None:
                line = {"color": colour, "dash": dash, "width": 3 if name == "recommended" else 2}
                chart.add_scatter(x=[rate, rate], y=ends, mode="lines", name=f"{name} {rate:.2g}", line=line)
        known = [rate for rate in (self.steepest, self.valley, self.tenth) if rate is not None]
        if known:
            chart.add_vrect(min(known), max(known), fillcolor=BAND, line_width=0, layer="below")
        chart.update_yaxes(range=ends)
        return chart

    def _draw_losses(self, chart: Figure) -> None:
        if self.scout is not None and len(self.scout.rates):
            line = {"color": GREY, "width": 1}
            chart.add_scatter(x=self.scout.rates, y=self.scout.losses, name="quick sweep", line=line, opacity=0.5)
        for sweep in self.sweeps:
            marker = {"color": BLUE, "size": 4, "opacity": 0.25}
            name, first = "batches", sweep is self.sweeps[0]
            chart.add_scatter(
                x=sweep.rates,
                y=sweep.losses,
                mode="markers",
                marker=marker,
                name=name,
                legendgroup=name,
                showlegend=first,
            )
        drawn = band([trace(s, self.smoothing) for s in self.sweeps])
        if len(self.sweeps) > 1:
            edges = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
            chart.add_scatter(x=drawn.rates, y=drawn.low, showlegend=False, **edges)
            fill = {"fill": "tonexty", "fillcolor": "rgba(0, 114, 178, 0.2)", "name": "band of the seeds"}
            chart.add_scatter(x=drawn.rates, y=drawn.high, **fill, **edges)
        chart.add_scatter(x=drawn.rates, y=drawn.middle, name="smoothed", line={"color": BLUE, "width": 2.5})
