"""The record of a run as tables for people: what it takes to repeat it, and the figures that sum it up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torchdoctor.findings import Verdict
from torchdoctor.report.headlines import RUNNING
from torchdoctor.report.replayed import moment
from torchdoctor.report.text import clean
from torchdoctor.rules.curves import figure

LONG = 4000
"""Characters of one value that a page shows: a diff can be longer than all the rest."""

SHORT = 60.0
"""Seconds of a run whose costs are told in seconds."""

TIMES = ("started", "ended")
"""Fields that are seconds since 1970; any other number is a number."""
DEEP = 20
"""Tables within tables that are unfolded: a file may hold thousands, a record has two."""

Row = tuple[str, str]


def describe_figures(verdict: Verdict, summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """The few that stand under the verdict."""
    run = verdict.run
    lasted = _lasted(run.get("started"), run.get("ended"))
    found: list[tuple[str, str | None]] = [
        ("steps", f"{int(run.get('steps') or 0):,}"),
        ("training loss", _change(summary.get("loss_at_start"), summary.get("loss_at_end"))),
        ("best validation loss", _number(summary.get("best_validation_loss"))),
        ("validation accuracy", _percent(summary.get("final_validation_accuracy"))),
        ("learning rate", _number(summary.get("learning_rate"))),
        ("samples a second", _number(summary.get("samples_per_second"))),
        ("time", _span(lasted) if lasted is not None else None),
        ("status" if run.get("status") == RUNNING else "ended", str(run.get("status") or "")),
        ("cost of watching", _cost(run.get("overhead"), lasted)),
    ]
    return [{"name": name, "value": clean(value)} for name, value in found if value]


def describe_record(verdict: Verdict) -> list[dict[str, Any]]:
    """Parts with a name and rows; those without a row are left out."""
    run = verdict.run
    parts = {
        "Hyperparameters": _hyperparameters(run.get("hyperparameters")),
        "Command and seeds": _rows({k: run.get(k) for k in ("argv", "cwd", "seeds", "torch_threads")}),
        "Code": _rows(_table(run.get("git"))),
        "Packages": _rows({**_table(run.get("packages")), "python": _table(run.get("python")).get("version")}),
        "Hardware": _rows({**_table(run.get("hardware")), "platform": run.get("platform")}),
    }
    shown = {"hyperparameters", "argv", "cwd", "seeds", "torch_threads", "git", "packages", "python", "hardware"}
    rest = {k: v for k, v in run.items() if k not in shown | {"platform", "process", "sessions", "format", "origin"}}
    times = {k: moment(v) for k in TIMES if isinstance(v := rest.get(k), int | float)}
    parts["Everything else"] = _rows({**rest, **times})
    return [{"name": name, "rows": rows, "open": name == "Hyperparameters"} for name, rows in parts.items() if rows]


def _hyperparameters(held: Any) -> list[Row]:
    found: list[Row] = []
    for optimizer in held if isinstance(held, list) else []:
        groups = optimizer.get("groups") if isinstance(optimizer, Mapping) else None
        for number, group in enumerate(map(_table, groups) if isinstance(groups, list) else []):
            values = {k: v for k, v in group.items() if v is not None and v is not False}
            said = ", ".join(f"{k} {_plain(v)}" for k, v in values.items())
            found.append((clean(f"{optimizer.get('optimizer')} group {number}"), clean(said)))
    return found


def _table(held: Any) -> Mapping[str, Any]:
    """What a file calls a table, if it is one."""
    return held if isinstance(held, Mapping) else {}


def _rows(held: Mapping[str, Any]) -> list[Row]:
    return [
        (clean(str(name)), clean(_plain(value))[:LONG]) for name, value in _flat(held) if value not in (None, "", {})
    ]


def _flat(held: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for name, value in held.items():
        if not isinstance(value, Mapping) or not value:
            yield f"{before}{name}", value
        elif depth < DEEP:
            yield from _flat(value, f"{before}{name}.", depth + 1)
        else:
            yield f"{before}{name}", "..."


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return figure(value)
    try:
        return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    except (ValueError, RecursionError):  # a number of too many digits, lists within lists without end
        return "too long to show"


def _lasted(began: Any, ended: Any) -> float | None:
    known = isinstance(began, float) and isinstance(ended, float) and math.isfinite(ended - began)
    return ended - began if known and ended >= began else None


def _number(value: Any) -> str | None:
    return figure(value) if isinstance(value, int | float) else None


def _percent(value: Any) -> str | None:
    return f"{value:.1%}" if isinstance(value, int | float) else None


def _cost(share: Any, lasted: float | None) -> str | None:
    """Of a short run in seconds: its first steps are looked at closely, which is much of little."""
    if not isinstance(share, int | float):
        return None
    return f"{share:.1%}" if lasted is None or lasted > SHORT else f"{share * lasted:.1f} s"


def _change(first: Any, last: Any) -> str | None:
    return f"{figure(first)} to {figure(last)}" if isinstance(first, float) and isinstance(last, float) else None


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
