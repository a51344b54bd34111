"""Where the time of a usual step goes: the whole, waiting and our own share from all usual steps, the other parts in
the proportion that they have to one another on the same few.

Those parts are known on steps that are read in full. Some of these are looked at closely, which makes every part many
times as long; between those lie quiet ones. Of the steps that are only counted, several are written together: the
whole is known of each, waiting and our own time of all of them (see attach/steady.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchdoctor.rules import curves
from torchdoctor.run import Floats, Ints, Run, Trace
from torchdoctor.signals import TIME_BACKWARD, TIME_DATA, TIME_FORWARD, TIME_OPTIMIZER, TIME_OWN, TIME_STEP

DATA, FORWARD, BACKWARD, UPDATE, OWN, REST = "data", "forward", "backward", "update", "torchdoctor", "other"
COMPUTING = {FORWARD: TIME_FORWARD, BACKWARD: TIME_BACKWARD, UPDATE: TIME_OPTIMIZER}
WHOLE = "whole"
QUIET, CLOSE_LOOK = 0.1, 3.0
"""Quantile of our own time on steps that are read in full which the quiet ones have at least, and how many times it a
close look takes: on steps of a millisecond quiet ones were seen at 1 to 1.3 times it, the step after a look at 5, looks
at 50 and more."""
HICCUP = 3.0
"""Times the median without waiting, above which a step says nothing of a usual one: it compiles, writes, or the
machine was busy with something else."""
LATE = 256
"""Last quiet steps that say how it is now."""

Rows = dict[str, Floats]


@dataclass(frozen=True)
class StepTime:
    """Seconds."""

    steps: Ints
    parts: Rows
    """of quiet steps, one by one"""
    usual: tuple[Ints, Floats]
    """where each stretch of usual steps begins, and how many steps it has"""
    sums: Rows
    """whole, waiting and our own time of each stretch"""

    def levels(self, first: int, last: int) -> dict[str, float]:
        """Mean seconds of each part in these steps; together they are the whole step."""
        whole, waiting, own = (self._mean(name, first, last) for name in (WHOLE, DATA, OWN))
        rows = (self.steps >= first) & (self.steps <= last)
        means = {name: float(values[rows].mean()) for name, values in self.parts.items()}
        held = sum(seconds for name, seconds in means.items() if name in COMPUTING)
        free = max(means[WHOLE] - means.get(DATA, 0.0) - held, 0.0)
        inside = min(max(means[OWN] - free, 0.0), held)  # our hooks run between the parts and inside them
        bare = {name: seconds * (1 - inside / held) for name, seconds in means.items() if name in COMPUTING}
        bare[REST] = max(free - means[OWN], 0.0)
        own = min(own, whole - waiting)
        scale = (whole - waiting - own) / (sum(bare.values()) or 1.0)
        levels = {DATA: waiting, OWN: own, **{name: scale * seconds for name, seconds in bare.items()}}
        return {name: levels[name] for name in (DATA, *COMPUTING, OWN, REST) if name in levels}

    def _mean(self, name: str, first: int, last: int) -> float:
        begins, sizes = self.usual
        rows = (begins >= first) & (begins <= last)
        rows = rows if rows.any() else np.ones(len(begins), bool)
        return float(self.sums[name][rows].sum() / sizes[rows].sum())

    def shares(self) -> dict[str, float]:
        """Of a step as it is lately, without parts that it has not; they add up to one."""
        levels = self.levels(int(self.steps[-LATE:][0]), int(np.iinfo(np.int64).max))
        whole = sum(levels.values())
        return {
            name: seconds / whole for name, seconds in levels.items() if seconds or name in self.parts or name == REST
        }


def read_step_time(run: Run) -> StepTime | None:
    """None where no step is known with a part of it."""
    known = {WHOLE: run.scalar(TIME_STEP), DATA: run.scalar(TIME_DATA), OWN: run.scalar(TIME_OWN)}
    known = {name: trace for name, trace in known.items() if _is_known(trace.values)}
    parts = {name: trace for name, signal in COMPUTING.items() if len(trace := run.scalar(signal))}
    if WHOLE not in known or not (parts or DATA in known):
        return None
    traces = _comparable({**known, **parts})
    steps, rows = _together(traces)
    if not len(steps):
        return None
    rows.setdefault(OWN, np.zeros(len(steps)))
    limit = CLOSE_LOOK * float(np.quantile(rows[OWN], QUIET)) if OWN in known else np.inf
    quiet, usual = _quiet_steps(steps, rows, limit), _usual_steps({name: traces[name] for name in known}, limit)
    return None if quiet is None or usual is None else StepTime(*quiet, *usual)


def _quiet_steps(steps: Ints, rows: Rows, limit: float) -> tuple[Ints, Rows] | None:
    """Those without hiccups on which every part is known that is known on most."""
    steps, rows = _pick(rows[OWN] <= limit, steps, rows)
    rows = {name: values for name, values in rows.items() if name not in COMPUTING or _is_known(values)}
    seen = np.all([values > 0 for name, values in rows.items() if name == WHOLE or name in COMPUTING], axis=0)
    if not seen.any() or not rows.keys() & {DATA, *COMPUTING}:
        return None
    steps, rows = _pick(seen, steps, rows)
    even = _without_hiccups(rows[WHOLE] - rows.get(DATA, 0.0))  # none where loaders within loaders are waited for twice
    return _pick(even, steps, rows) if even.any() else None


def _usual_steps(known: dict[str, Trace], limit: float) -> tuple[tuple[Ints, Floats], Rows] | None:
    """Stretches from one step with our own time to the next: a step that was read in full, or several counted ones."""
    own = known.get(OWN, known[WHOLE])
    steps, rows = _together({name: trace for name, trace in known.items() if name != OWN})
    at = np.searchsorted(own.steps, steps, side="right") - 1
    steps, rows = _pick(at >= 0, steps, rows)
    if not len(steps):
        return None
    at, begins = np.unique(at[at >= 0], return_index=True)
    sizes = np.diff(np.append(begins, len(steps)))
    sums = {name: np.add.reduceat(values, begins) for name, values in rows.items()}
    each = own.values[at] if OWN in known else np.zeros(len(at))
    sums = {DATA: np.zeros(len(at)), **sums, OWN: each * sizes}
    rest = (sums[WHOLE] - sums[DATA]) / sizes
    usual = (each <= limit) & (rest > 0)
    if not usual.any():
        return None
    usual[usual] = _without_hiccups(rest[usual])
    return (steps[begins][usual], sizes[usual]), {name: values[usual] for name, values in sums.items()}


def _without_hiccups(seconds: Floats) -> np.ndarray:
    return (seconds > 0) & (seconds <= HICCUP * np.median(seconds))


def _pick(chosen: np.ndarray, steps: Ints, rows: Rows) -> tuple[Ints, Rows]:
    return steps[chosen], {name: values[chosen] for name, values in rows.items()}


def _together(traces: dict[str, Trace]) -> tuple[Ints, Rows]:
    """Values at the steps that all have, 0 where one is not finite."""
    common, rows = curves.rows_in_common(*traces.values())
    at = {name: trace.values[row] for (name, trace), row in zip(traces.items(), rows, strict=True)}
    return common, {name: np.where(np.isfinite(values), values, 0.0).astype(np.float64) for name, values in at.items()}


def _comparable(traces: dict[str, Trace]) -> dict[str, Trace]:
    """As they are where each row holds the same steps in all. Merged rows of other steps cannot be compared: then it is
    the first and the last looks, which are known one by one."""
    first, *others = traces.values()
    if all(t.merged == first.merged and np.array_equal(t.steps, first.steps) for t in others):
        return traces
    return {name: _one_by_one(trace) for name, trace in traces.items()}


def _one_by_one(trace: Trace) -> Trace:
    if trace.merged == 1:
        return trace
    ends = [end for end in (trace.first(), trace.last()) if end.merged == 1]
    steps = np.concatenate([end.steps for end in ends] or [trace.steps[:0]])
    values = np.concatenate([end.values for end in ends] or [trace.values[:0]])
    known, rows = np.unique(steps, return_index=True)
    return Trace.raw(known, values[rows])


def _is_known(values: Floats) -> bool:
    """What is zero on most looks was not seen on those: without a loader, forward's begin is known on few."""
    return bool(len(values)) and bool((np.isfinite(values) & (values > 0)).mean() > 0.5)
