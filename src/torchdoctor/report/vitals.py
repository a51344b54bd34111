"""The vital signs of a run at one moment: little data, taken at once, so that it can be drawn again at any size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.findings import Ending, Finding, Proof, Verdict
from torchdoctor.last_seen import RUNNING
from torchdoctor.rules.ending import judge_ending
from torchdoctor.rules.movement import HEALTHY_UPDATES
from torchdoctor.rules.step_time import read_step_time
from torchdoctor.run import Run, Trace
from torchdoctor.summary import LOGGED_LOSS, seen_or_logged, trend

LOOKS = 16
"""Last looks whose median is a layer's present state: single batches jump about."""
STEPS = 64
"""Last steps for speed."""
FAINT = 1e3
"""A gradient so many times smaller than the largest is marked; the same fall as in vanishing-gradients."""
CLEARLY = 3.0
"""An update is marked so many times outside the healthy band: the band has no sharp edges."""
NO_ENDING = Ending()
CURVES = 3
"""Losses that are drawn: of more optimizers the first ones."""


@dataclass(frozen=True)
class Curve:
    """A loss over the steps."""

    name: str
    trace: Trace
    trend: str

    @property
    def last(self) -> float:
        return float(self.trace.last(1).values[-1])


@dataclass(frozen=True)
class Layer:
    """One weight's present state; NaN where a figure was not measured."""

    name: str
    norm: float = math.nan
    ratio: float = math.nan
    """change of a step over the weight"""
    broken: bool = False
    """NaN or Inf in its last gradient"""
    faint: bool = False

    @property
    def ratio_side(self) -> int:
        """-1 clearly below, 1 clearly above the healthy band, else 0; 0 where nothing can be said of it."""
        low, high = HEALTHY_UPDATES
        if self.broken:
            return 0
        return int(self.ratio > high * CLEARLY) - int(self.ratio < low / CLEARLY)

    @property
    def remarkable(self) -> tuple[bool, bool, bool, int]:
        """The larger, the sooner this layer is shown where not all have room."""
        return self.broken, self.norm == 0, self.faint, abs(self.ratio_side)


@dataclass(frozen=True)
class Vitals:
    name: str
    status: str
    steps: int
    started: float | None = None
    ended: float | None = None
    losses: tuple[Curve, ...] = ()
    validation: Curve | None = None
    layers: tuple[Layer, ...] = ()
    """in the order of the forward pass"""
    step_seconds: float | None = None
    samples_per_second: float | None = None
    shares: tuple[tuple[str, float], ...] = ()
    """of a step's time, by part"""
    memory: tuple[tuple[str, float], ...] = ()
    """bytes, of the process and of its device"""
    ending: Ending = NO_ENDING
    findings: tuple[Finding, ...] | None = None
    """None while nobody has examined it yet"""
    examined: int | None = None
    """steps that there were then, where that is known"""

    def elapsed(self, now: float) -> float | None:
        """Seconds that it has trained; None where its end is not known."""
        end = now if self.status == RUNNING else self.ended
        return max(0.0, end - self.started) if self.started is not None and end is not None else None


def take(run: Run, findings: Sequence[Finding] | None = None) -> Vitals:
    """Read them off a run; each signal is read once."""
    session = _session(run.info)
    curves = [_curve(f"train {key}".strip(), run.scalar(signals.LOSS_TRAIN, key)) for key in _loss_keys(run)]
    validation = _curve("validation", seen_or_logged(run, signals.LOSS_VALIDATION, LOGGED_LOSS))
    memory = [("memory", run.scalar(signals.MEMORY_HOST)), ("device", run.scalar(signals.MEMORY_DEVICE))]
    seconds = _recent(run.scalar(signals.TIME_STEP))
    return Vitals(
        name=str(run.info.get("name") or ""),
        status=str(run.info.get("status") or ("finished" if run.finished else RUNNING)),
        steps=run.steps,
        started=_moment(session.get("started")),
        ended=_moment(session.get("ended")),
        losses=tuple(c for c in curves if c is not None),
        validation=validation,
        layers=_layers(run),
        step_seconds=seconds,
        samples_per_second=_recent(run.scalar(signals.SAMPLES_PER_SECOND)),
        shares=_shares(run),
        ending=judge_ending(run),
        memory=tuple((name, value) for name, t in memory if (value := _recent(t)) is not None),
        findings=None if findings is None else tuple(findings),
    )


def sure_findings(verdict: Verdict, before: Verdict | None, finished: bool) -> tuple[Finding, ...]:
    """Those that may be told: of a run that still trains a statistical one only when the examination before had it."""
    known = {f.name for f in before.findings} if before is not None else set()
    told = [f for f in verdict.findings if finished or f.proof is Proof.STRUCTURE or f.name in known]
    names = {f.name for f in told}
    return tuple(f if f.consequence_of in names else replace(f, consequence_of=None) for f in told)


def _loss_keys(run: Run) -> list[str]:
    keys = run.keys(signals.LOSS_TRAIN)
    return [""] if "" in keys else keys[:CURVES]


def _curve(name: str, trace: Trace) -> Curve | None:
    return Curve(name, trace, trend(trace)) if len(trace) else None


def _layers(run: Run) -> tuple[Layer, ...]:
    """Matrices and kernels; biases and gains would hide them."""
    norms, ratios = run.matrix(signals.GRADIENT_L2), run.matrix(signals.UPDATE_RATIO)
    broken = run.matrix(signals.GRADIENT["nonfinite"])
    known = dict.fromkeys([*run.parameters, *norms.columns])
    seen = {*norms.columns, *ratios.columns}
    names = [n for n in known if n in seen]
    heavy = [n for n in names if n not in run.parameters or len(run.parameters[n].shape) > 1] or names
    norm_of, ratio_of = _levels(norms), _levels(ratios)
    bad = _last_looks(broken)
    largest = max((v for v in norm_of.values() if math.isfinite(v)), default=math.nan)
    return tuple(
        Layer(
            name,
            norm := norm_of.get(name, math.nan),
            ratio_of.get(name, math.nan),
            bad.get(name, 0.0) > 0 or math.isinf(norm),
            0 < norm < largest / FAINT,
        )
        for name in heavy
    )


def _levels(trace: Trace) -> dict[str, float]:
    """The median over the last looks of each column."""
    levels = {}
    late = trace.last(LOOKS).values
    for i, name in enumerate(trace.columns):
        measured = late[:, i][~np.isnan(late[:, i])]
        if len(measured):
            levels[name] = float(np.median(measured))
    return levels


def _last_looks(trace: Trace) -> dict[str, float]:
    last = trace.last(1).values
    return {name: float(value) for name, value in zip(trace.columns, last[-1], strict=True)} if len(last) else {}


def _recent(trace: Trace) -> float | None:
    late = trace.last(STEPS).values
    known = late[np.isfinite(late)]
    return float(np.median(known)) if len(known) else None


def _shares(run: Run) -> tuple[tuple[str, float], ...]:
    found = read_step_time(run)
    return tuple(found.shares().items()) if found is not None else ()


def _session(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last one: what a run did before it was resumed is not its present."""
    sessions = info.get("sessions")
    last = sessions[-1] if isinstance(sessions, list) and sessions else None
    return last if isinstance(last, dict) else info


def _moment(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
