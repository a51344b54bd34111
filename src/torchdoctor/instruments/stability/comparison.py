"""Both forms of a pair on the same input, beside the truth in double precision."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchdoctor.errors import UnknownNameError, UsageError
from torchdoctor.instruments.result import Result, plain
from torchdoctor.instruments.stability.pairs import PAIRS, Function, Inputs, Pair
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BLUE, RED
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CLOSE, ROUNDINGS = 1e-3, 32
"""What a right result may be off by: a thousandth, or so many roundings of the type."""
WORST = 10.0
"""Relative error that stands for NaN, infinity and all that is larger."""
RIGHT, WRONG, LOST = "right", "wrong", "lost (0)"
VALUES = {"NaN": "gives NaN", "Inf": "gives infinity", WRONG: "is wrong", LOST: "gives 0"}
GRADIENTS = {
    "NaN": "has a gradient of NaN",
    "Inf": "has an infinite gradient",
    WRONG: "has a wrong gradient",
    LOST: "has no gradient",
}
PALE = {True: "#d9f0e8", False: "#fbe3d6"}


@dataclass(frozen=True)
class Outcome:
    """What one form gives."""

    value: list[float]
    gradient: list[float]
    value_is: str
    """right, NaN, Inf or wrong"""
    gradient_is: str
    error: float
    """the larger relative error of the two"""

    @property
    def right(self) -> bool:
        return self.value_is == self.gradient_is == RIGHT

    @property
    def sentence(self) -> str:
        value, gradient = VALUES.get(self.value_is), GRADIENTS.get(self.gradient_is)
        return " and ".join(part for part in (value, gradient) if part) or "is right"

    @property
    def text(self) -> str:
        """for a table"""
        if self.right:
            return RIGHT
        if self.value_is == RIGHT:
            return f"gradient {self.gradient_is}"
        return (
            self.value_is
            if self.gradient_is in (RIGHT, self.value_is)
            else f"{self.value_is}, gradient {self.gradient_is}"
        )


@dataclass(frozen=True)
class Comparison(Result):
    name: str
    by_hand_code: str
    stable_code: str
    why: str
    rule: str
    dtype: str
    inputs: list[Any]
    by_hand: Outcome
    stable: Outcome
    truth: Outcome
    """the stable form in double precision"""
    size: str
    sizes: list[float]
    by_hand_errors: list[float]
    stable_errors: list[float]
    """relative errors over these sizes"""
    breaks_at: float | None
    """size nearest to the harmless ones at which the form by hand is not right"""

    @property
    def verdict(self) -> str:
        if self.by_hand.right:
            return f"{self.name}: both forms are right here"
        return f"{self.name}: written by hand it {self.by_hand.sentence}; the stable form {self.stable.sentence}"

    def __str__(self) -> str:
        mark = "*" if len(self.truth.value) > 1 else ""
        rows = [
            ("result", _row(self.by_hand.value), _row(self.stable.value), _row(self.truth.value)),
            (f"gradient{mark}", _row(self.by_hand.gradient), _row(self.stable.gradient), _row(self.truth.gradient)),
        ]
        edge = "nowhere that was tried" if self.breaks_at is None else f"where the {self.size} is {self.breaks_at:g}"
        return "\n".join(
            [
                f"{self.verdict}.",
                "",
                *textwrap.wrap(self.why, 100),
                "",
                f"  by hand  {self.by_hand_code}",
                f"  stable   {self.stable_code}",
                f"  input    {'; '.join(_row(i) for i in self.inputs)}  ({self.dtype})",
                *_aligned(("", "by hand", "stable", "true"), *rows),
                *(["  * of the result's last entry"] if mark else []),
                "",
                f"by hand it breaks {edge}; more: torchdoctor explain {self.rule}",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | plain({"verdict": self.verdict})

    def plot(self) -> Figure:
        edge = "holds" if self.breaks_at is None else f"breaks where the {self.size} is {self.breaks_at:g}"
        drawing = new_figure(
            f"{self.name} by hand {edge} ({self.dtype})", self.size, "relative error of result and gradient"
        )
        for name, errors, colour, dash in (
            ("by hand", self.by_hand_errors, RED, "solid"),
            ("stable", self.stable_errors, BLUE, "dash"),
        ):
            drawing.add_scatter(
                x=[f"{s:g}" for s in self.sizes],
                y=[min(max(e, 1e-20), WORST) for e in errors],
                mode="lines+markers",
                line={"color": colour, "dash": dash},
                name=name,
            )
        drawing.update_yaxes(LOG)
        drawing.update_xaxes(type="category")
        drawing.add_hline(WORST, line={"color": RED, "dash": "dot"}, annotation_text="NaN, infinite or all wrong")
        return drawing


@dataclass(frozen=True)
class Overview(Result):
    dtype: str
    rows: list[Comparison]

    def __str__(self) -> str:
        broken = sum(not r.by_hand.right for r in self.rows)
        held = sum(r.stable.right for r in self.rows)
        cells = [
            (r.name, r.by_hand.text, r.stable.text, "" if r.breaks_at is None else f"{r.size} {r.breaks_at:g}", r.rule)
            for r in self.rows
        ]
        head = ("", "by hand", "stable", "breaks at", "see torchdoctor explain")
        return "\n".join(
            [
                f"Written by hand {broken} of {len(self.rows)} break in {self.dtype}; of the stable forms {held} hold.",
                "",
                *_aligned(head, *cells),
                "",
                "stable.show(NAME) has both forms of one, with their results and gradients",
            ]
        )

    def plot(self) -> Figure:
        from plotly.graph_objects import Table

        broken = sum(not r.by_hand.right for r in self.rows)
        drawing = new_figure(f"{broken} of {len(self.rows)} formulas break when written by hand ({self.dtype})", "", "")
        states = [[r.by_hand.right for r in self.rows], [r.stable.right for r in self.rows]]
        drawing.add_trace(
            Table(
                header={"values": ["", "written by hand", "gives", "stable", "gives"], "align": "left"},
                cells={
                    "values": [
                        [r.name for r in self.rows],
                        [r.by_hand_code for r in self.rows],
                        [r.by_hand.text for r in self.rows],
                        [r.stable_code for r in self.rows],
                        [r.stable.text for r in self.rows],
                    ],
                    "align": "left",
                    "fill": {"color": ["white", *(c for s in states for c in ("white", [PALE[ok] for ok in s]))]},
                },
            )
        )
        return drawing


def show(name: str, *inputs: Tensor, dtype: torch.dtype = torch.float32) -> Comparison:
    """Both forms of the pair `name` on the input that breaks one of them, or on inputs of your own."""
    if name not in PAIRS:
        raise UnknownNameError(f"there is no pair {name!r}; {', '.join(PAIRS)}")
    if not dtype.is_floating_point:
        raise UsageError(f"dtype is {dtype}; a floating-point type is needed")
    pair = PAIRS[name]
    given = inputs or pair.make(pair.breaking)
    if not given[0].is_floating_point():
        raise UsageError(f"the first input is of type {given[0].dtype}; it has to be of a floating-point type")
    truth = _outcome(pair.stable, given, None, torch.float64)
    swept = [_compare(pair, pair.make(size), dtype) for size in pair.sizes]
    by_hand, stable = _compare(pair, given, dtype)
    return Comparison(
        name=name,
        by_hand_code=pair.by_hand_code,
        stable_code=pair.stable_code,
        why=pair.why,
        rule=pair.rule,
        dtype=str(dtype).removeprefix("torch."),
        inputs=[i.tolist() for i in given],
        by_hand=by_hand,
        stable=stable,
        truth=truth,
        size=pair.size,
        sizes=list(pair.sizes),
        by_hand_errors=[b.error for b, _ in swept],
        stable_errors=[s.error for _, s in swept],
        breaks_at=next((size for size, (b, _) in zip(pair.sizes, swept, strict=True) if not b.right), None),
    )


def table(dtype: torch.dtype = torch.float32) -> Overview:
    """All pairs, each on the input that breaks the form by hand."""
    return Overview(str(dtype).removeprefix("torch."), [show(name, dtype=dtype) for name in PAIRS])


def _compare(pair: Pair, inputs: Inputs, dtype: torch.dtype) -> tuple[Outcome, Outcome]:
    rounded = tuple(_cast(i, dtype).double() if i.is_floating_point() else i for i in inputs)
    truth = _outcome(pair.stable, rounded, None, torch.float64)
    return _outcome(pair.by_hand, inputs, truth, dtype), _outcome(pair.stable, inputs, truth, dtype)


def _outcome(function: Function, inputs: Sequence[Tensor], truth: Outcome | None, dtype: torch.dtype) -> Outcome:
    first, *others = (_cast(i, dtype) for i in inputs)
    first = first.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        result = function(first, *others)
        (gradient,) = torch.autograd.grad(result.reshape(-1)[-1], first)
    value, slope = result.detach().reshape(-1).tolist(), gradient.reshape(-1).tolist()
    if truth is None:
        return Outcome(value, slope, RIGHT, RIGHT, 0.0)
    close = max(CLOSE, ROUNDINGS * torch.finfo(dtype).eps)
    value_is, off = _judge(value, truth.value, close)
    slope_is, slope_off = _judge(slope, truth.gradient, close)
    return Outcome(value, slope, value_is, slope_is, max(off, slope_off))


def _judge(found: list[float], true: list[float], close: float) -> tuple[str, float]:
    """What it is, and the error as a share of the largest true entry; of 1, where all are smaller."""
    size = max(1.0, *map(abs, true))
    if any(map(math.isnan, found)):
        return "NaN", WORST
    if any(map(math.isinf, found)):
        return "Inf", WORST
    error = max(abs(f - t) for f, t in zip(found, true, strict=True)) / size
    if error <= close:
        return RIGHT, error
    return (LOST if not any(found) else WRONG), error


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _row(values: Any) -> str:
    flat = torch.as_tensor(values).reshape(-1).tolist()
    return ", ".join(map(_number, flat[:6])) + (" ..." if len(flat) > 6 else "")


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    return "-Inf" if value == -math.inf else figure(value + 0.0)


def _aligned(*rows: Sequence[str]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
