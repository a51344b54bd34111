"""What several seeds say: each variant's spread, variants against each other, and the verdict on a claimed gain."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchdoctor.experiments.comparison import LEVEL, Paired, Spread, detectable
from torchdoctor.findings import Finding
from torchdoctor.instruments.result import Result, plain
from torchdoctor.plots.figure import new_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FIRST, OTHER, BETWEEN = "#0072B2", "#D55E00", "#999999"
"""Okabe and Ito's blue, vermilion and grey, which colour-blind people tell apart."""
JITTER = 0.12
TITLE_WIDTH = 100


@dataclass
class VariantSpread:
    """One variant over seeds."""

    name: str
    command: str
    how: list[str]
    seed_words: str
    seeds: list[int]
    values: list[float | None]
    """of the metric, by seed; None where the run failed or gave no finite number"""
    spread: Spread | None
    failed: list[dict[str, Any]] = field(default_factory=list)
    """{"seed", "status", "error", "log", "tail"} of runs without a value"""
    folders: list[str | None] = field(default_factory=list)
    metrics: dict[str, Spread] = field(default_factory=dict)
    """of all metrics that its runs have"""
    per_run: list[dict[str, float]] = field(default_factory=list)
    """by seed, each metric's value"""
    settings: dict[str, str] = field(default_factory=dict)
    seeded: list[str] = field(default_factory=list)
    """calls of the script whose seed was replaced, in words"""
    beginnings: list[str | None] = field(default_factory=list)
    """by seed, a digest of the run's first losses; None where none were seen"""
    unmoved: bool = False
    """all its runs are equal to the bit: the seed did not reach it"""


@dataclass
class Against:
    """A variant against the one that it is held against, seed by seed."""

    baseline: str
    name: str
    paired: Paired
    p_adjusted: float | None = None
    """after Holm, where several were compared"""
    same: bool = False
    """each pair has the same value and, as far as they were seen, the same first losses, to the bit"""
    seen: bool = False
    """the first losses of every pair were"""

    @property
    def told_apart(self) -> bool:
        return self.paired.told_apart if self.p_adjusted is None else self.p_adjusted <= 1.0 - LEVEL

    @property
    def p(self) -> float:
        return self.paired.p if self.p_adjusted is None else self.p_adjusted


@dataclass
class SeedSpread(Result):
    """`str()` is the verdict in a few lines, `.plot()` a strip of the seeds by variant."""

    metric: str
    which: str
    """last or best"""
    higher_is_better: bool
    seeds: list[int]
    variants: list[VariantSpread]
    against: list[Against] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    noise: float | None = None
    """how far two single runs of the first variant lie apart by their seeds alone, in 95 of 100 pairs"""
    claimed: float | None = None
    best: str | None = None
    """of a sweep"""
    other_metrics: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return "\n".join([self.verdict, *self.details()])

    @property
    def verdict(self) -> str:
        """One sentence."""
        unmoved = [v.name for v in self.variants if v.unmoved]
        if unmoved:
            return (
                f"Nothing can be said: the seed has no effect on {unmoved[0]}, all of its runs have the same losses to "
                f"the bit. It was passed {self.variants[0].seed_words}; try --seed-arg NAME, --seed-env NAME or "
                "--override-seeds."
            )
        if self.best is not None:
            return self._verdict_of_sweep()
        compared = [self._sentence(a) for a in self.against] + [
            f"{v.name} cannot be compared: {len(v.seeds) - len(v.failed)} of its {len(v.seeds)} runs gave a finite "
            f"{self.metric}."
            for v in self.variants[1:]
            if v.name not in {a.name for a in self.against}
        ]
        if compared:
            return " ".join(compared)
        first = self.variants[0]
        if first.spread is None:
            return f"No run of {first.name} gave a finite {self.metric}."
        return f"{self.metric} of {first.name}: {describe(first.spread)}."

    def details(self) -> list[str]:
        lines = [f"  {v.name}: {describe(v.spread)}" for v in self.variants if v.spread and len(self.variants) > 1]
        for a in self.against if self.best is None else ():
            lines += [f"  {line}" for line in describe_test(a)]
        if self.noise is not None and not self.against:
            lines += self._of_one()
        return lines + [f"  note: {note}" for note in self.notes]

    def _of_one(self) -> list[str]:
        spread = self.variants[0].spread
        if spread is None or spread.sd is None or self.noise is None:
            return []
        least = detectable(spread.n) * spread.sd * math.sqrt(2.0)
        return [
            f"  two single runs differ by up to {shown(self.noise, self.noise)} for no other reason than their seeds "
            "(95 of 100 pairs)",
            f"  {spread.n} seeds each would show a difference of {shown(least, least)} or more (80 of 100 attempts)",
        ]

    def _sentence(self, a: Against) -> str:
        p = a.paired
        gain = p.difference if self.higher_is_better else -p.difference
        size = shown(abs(p.difference), p.high - p.low)
        interval = f"95 % interval {signed(p.low, p.high - p.low)} to {signed(p.high, p.high - p.low)}"
        if a.same:
            return say_same([a.name, a.baseline], self.metric, a.seen)
        if p.difference == p.sd == 0:
            return (
                f"{a.name} is not shown to differ from {a.baseline}: they train differently, and {self.metric} is the "
                "same for every seed."
            )
        if not a.told_apart:
            less = "higher" if p.difference > 0 else "lower"
            within = f"within their noise ({interval})"
            if p.told_apart:
                within = f"within what chance does to one of several comparisons (p = {_p(a.p)} after Holm, {interval})"
            return (
                f"{a.name} is not shown to differ from {a.baseline}: {self.metric} is {size} {less} over {p.n} seeds, "
                f"{within}."
            )
        better = "better" if gain > 0 else "worse"
        return f"{a.name} is {better} than {a.baseline}: {self.metric} by {size} over {p.n} seeds ({interval})."

    def _verdict_of_sweep(self) -> str:
        best = next(v for v in self.variants if v.name == self.best)
        tied = [a.name for a in self.against if not a.told_apart]
        value = describe(best.spread) if best.spread is not None else ""
        words = f"The best {self.metric} has {best.name}: {value}"
        if not self.against:
            return f"{words}."
        if not tied:
            return f"{words}; all {len(self.against)} others are worse beyond the noise of seeds."
        return f"{words}; {len(tied)} of the {len(self.against)} others cannot be told from it."

    def to_dict(self) -> dict[str, Any]:
        told = super().to_dict() | {"schema": 1, "verdict": self.verdict}
        told["findings"] = [f.to_dict() for f in self.findings]
        told["against"] = [plain(a) | {"told_apart": a.told_apart} for a in self.against]
        return told

    def plot(self) -> Figure:
        """A strip of the seeds of every variant, with mean and interval; runs of one seed are joined by a line."""
        direction = "higher" if self.higher_is_better else "lower"
        title = "<br>".join(textwrap.wrap(self.verdict, TITLE_WIDTH))
        figure = new_figure(title, "variant", f"{self.metric} ({direction} is better)", showlegend=False)
        if len(self.variants) == 2:
            self._join(figure)
        for i, v in enumerate(self.variants):
            points = [(s, x) for s, x in zip(v.seeds, v.values, strict=True) if x is not None]
            colour = OTHER if (v.name == self.best or (self.best is None and i)) else FIRST
            figure.add_scatter(
                x=[i + JITTER * _offset(j, len(points)) for j in range(len(points))],
                y=[x for _, x in points],
                text=[f"seed {s}" for s, _ in points],
                mode="markers",
                marker={"color": colour, "size": 9, "opacity": 0.6},
                name=v.name,
            )
            if v.spread is not None and v.spread.low is not None:
                self._mark_mean(figure, i, v.spread, colour)
        figure.update_xaxes(tickvals=list(range(len(self.variants))), ticktext=[v.name for v in self.variants])
        return figure

    def _mark_mean(self, figure: Figure, at: int, spread: Spread, colour: str) -> None:
        half = (spread.high or spread.mean) - spread.mean
        figure.add_scatter(
            x=[at + 2.2 * JITTER],
            y=[spread.mean],
            error_y={"type": "data", "array": [half], "thickness": 2, "width": 8, "color": colour},
            mode="markers",
            marker={"color": colour, "symbol": "diamond", "size": 12},
            hovertext=[f"mean {spread.mean:.6g}, 95 % interval {spread.low:.6g} to {spread.high:.6g}"],
        )

    def _join(self, figure: Figure) -> None:
        first, second = self.variants
        for a, b in zip(first.values, second.values, strict=True):
            if a is not None and b is not None:
                line = {"color": BETWEEN, "width": 1}
                figure.add_scatter(x=[0, 1], y=[a, b], mode="lines", line=line, hoverinfo="skip")


def describe(spread: Spread) -> str:
    """0.912 (standard deviation 0.006, 95 % interval 0.904 to 0.920, 5 seeds)."""
    if spread.sd is None or spread.low is None or spread.high is None:
        return f"{spread.mean:.5g} (1 seed, so its spread is not known)"
    width = spread.high - spread.low
    return (
        f"{shown(spread.mean, spread.sd)} (standard deviation {shown(spread.sd, spread.sd)}, 95 % interval "
        f"{shown(spread.low, width)} to {shown(spread.high, width)}, {spread.n} seeds)"
    )


def say_same(names: Sequence[str], metric: str, seen: bool) -> str:
    """Of variants that nothing tells apart. What was not seen may have been rounded by whoever printed it."""
    named = f"{', '.join(names[:-1])} and {names[-1]}"
    if seen:
        return f"{named} gave the same, to the bit, for every seed: the change does not reach the training."
    return f"{named} gave the same {metric} for every seed: the change does not reach it."


def describe_test(against: Against) -> list[str]:
    p = against.paired
    if against.same:
        return []
    least = f", the least that {p.n} pairs can give" if p.p_flips <= p.least_p_flips and p.p_flips > 0.01 else ""
    holm = f" ({_p(against.p_adjusted)} after Holm)" if against.p_adjusted is not None else ""
    lines = [f"paired t test p = {_p(p.p)}{holm}; sign-flip permutation test p = {_p(p.p_flips)}{least}"]
    if math.isfinite(p.effect):
        lines.append(
            f"effect size d = {p.effect:.2f} (95 % interval {p.effect_low:.2f} to {p.effect_high:.2f}); "
            f"larger in {p.share_better:.0%} of the pairs"
        )
    if p.seeds_needed is None:
        lines.append("no affordable number of seeds would tell a difference of this size apart")
    elif not against.told_apart or p.seeds_needed > p.n:
        again = "to find it again" if against.told_apart else "to be found"
        lines.append(
            f"a difference of this size takes about {p.seeds_needed:,} seeds each {again} in 80 of 100 attempts"
        )
    return lines


def shown(value: float, width: float) -> str:
    """With as many digits as the width of its interval bears: three of that are told."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    if not width or not math.isfinite(width):
        return f"{value:.4g}"
    digits = 2 - math.floor(math.log10(abs(width)))
    if digits > 7 or abs(value) >= 1e7:
        return f"{value:.3g}"
    return f"{value:,.{max(0, digits)}f}"


def signed(value: float, width: float) -> str:
    text = shown(value, width)
    return text if text.startswith("-") else f"+{text}"


def _p(value: float) -> str:
    return "less than 0.0001" if value < 1e-4 else f"{value:.2g}"


def _offset(number: int, count: int) -> float:
    return 0.0 if count < 2 else 2.0 * number / (count - 1) - 1.0
