"""Every so often the training stands still: checkpoints, garbage collection, something at regular intervals.

## What it means
Most steps are fast and every n-th takes many times as long. A device that is paid for waits meanwhile; a good part of
the run's time goes into something that is not training.

## Why it happens
- Checkpoints are written too often, or hold much more than they need (data, histories, outputs).
- `gc.collect()` or `torch.cuda.empty_cache()` is called in the loop.
- Figures are drawn, samples generated or logs written in the loop.

## How it is detected
Calls of `torch.save`, `gc.collect` and `torch.cuda.empty_cache` during training are timed, with their place. They are
reported if they take 20 % of the training's time and at least a second in all; in a run of a few seconds, if they take
40 % of it, 0.4 s in all and 20 ms each. Otherwise step times (without our own
part, and without validation) are searched for steps of five times the usual length, at least 0.2 s longer, that come at
regular intervals and add up to a quarter of the time.

## How to fix it
Save every so many minutes instead of steps, only what resuming needs, and in a thread; leave garbage to Python.

## Known false alarms
A machine shared with others stalls too, but not at regular intervals. Waiting for the loader at each epoch's start is
input-bound's matter and is not counted.

## References
Mohan et al., "CheckFreq: Frequent, Fine-Grained DNN Checkpointing" (2021).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import PauseFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import TIME_DATA, TIME_OWN, TIME_STEP

RULE = Rule(code="P006", name="periodic-stall", family="throughput", needs=(TIME_STEP,), of_code=True)

PAUSE_SHARE = 0.2
"""Of the training's time; CheckFreq takes 3.5 % for bearable."""
PAUSE_SECONDS = 1.0
"""In all: below it nobody would wait for less."""
LEAST_PAUSES = 3
SHORT_SECONDS, MOST, LONG_CALL = 0.4, 0.4, 0.02
"""A run of a few seconds is a trial: where calls take this share of it, and each is longer than any small checkpoint
takes, a longer run may lose the same share: an info."""
TIMES = 5.0
"""A stall over the usual step. Chosen: batches of uneven length make longer steps too, but seldom fivefold ones."""
LONGER = 0.2
"""Seconds beyond the usual step: where steps take milliseconds, scheduling or garbage collection make fivefold ones."""
STALL_SHARE = 0.25
"""Of the time. Chosen: a quarter is worth a change of the script; less may be what a checkpoint has to cost."""
LEAST_STALLS = 5
REGULAR = 0.8
"""Share of the distances between stalls within a tenth (or one step) of the median distance."""
SKIPPED = 5

FIXES = {
    "torch.save": (
        "Save less often, and only what resuming needs.",
        'if step % 1000 == 0: torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)',
    ),
    "gc.collect": ("Leave garbage to Python: nothing in the loop needs to be collected by hand.", "gc.freeze()"),
    "torch.cuda.empty_cache": (
        "Leave the cache alone: the next step asks for the same memory again.",
        "# torch.cuda.empty_cache()",
    ),
}


@dataclass(frozen=True)
class Stalls:
    steps: tuple[int, ...]
    period: float
    seconds: float
    """lost in all"""
    share: float
    usual: float
    longest: float


def detect(run: Run) -> Iterator[Finding]:
    trace = run.scalar(TIME_STEP)
    training = float(np.nansum(trace.values)) * trace.merged
    if training <= 0:
        return
    last: dict[tuple[str, str | None, int | None], PauseFact] = {}
    for fact in run.facts(PauseFact):
        last[fact.call, fact.file, fact.line] = fact
    pause = max(last.values(), key=lambda f: f.seconds, default=None)
    if (
        pause is not None
        and pause.count >= LEAST_PAUSES
        and (pause.seconds >= max(PAUSE_SECONDS, PAUSE_SHARE * training) or _is_most_of_it(pause, training))
    ):
        brief = pause.seconds < max(PAUSE_SECONDS, PAUSE_SHARE * training)
        yield _paused(run, pause, training, brief)
        return
    stalls = _stalls(run, trace)
    if stalls is not None:
        yield _stalled(stalls, trace)


def _is_most_of_it(pause: PauseFact, training: float) -> bool:
    long = pause.seconds >= LONG_CALL * pause.count and pause.count >= LEAST_STALLS
    return long and pause.seconds >= max(SHORT_SECONDS, MOST * training)


def _paused(run: Run, pause: PauseFact, training: float, brief: bool) -> Finding:
    each, every = pause.seconds / pause.count, pause.updates / pause.count
    share = pause.seconds / max(training, pause.seconds)
    text, code = FIXES.get(pause.call, ("Do it less often, or outside the loop.", None))
    return RULE.finding(
        severity=Severity.INFO if brief else Severity.WARNING,
        confidence=0.6 if brief else 0.9,
        proof=Proof.STRUCTURE,
        title=f"{pause.call} holds the training up every {every:.3g} steps ({pause.seconds:.2g} s in all)",
        summary=f"{pause.count} calls of {each:.2g} s each took {share:.0%} of the training's time.",
        where=known(Place(file=pause.file, line=pause.line)),
        first_step=0,
        last_step=run.steps,
        evidence=[
            Evidence(
                f"{pause.count} calls took {pause.seconds:.3g} s; all steps together took {training:.3g} s",
                TIME_STEP.name,
                share,
                PAUSE_SHARE,
            )
        ],
        fix=Fix(text, code),
        symptoms=("slow-steps",),
    )


def _stalls(run: Run, trace: Trace) -> Stalls | None:
    """Long steps at regular intervals, among the steps that are known one by one."""
    raw = trace.first() if trace.merged > 1 else trace
    own, data = run.scalar(TIME_OWN), run.scalar(TIME_DATA)
    values = raw.values - _at(own, raw) - _at(data, raw)
    steps, values = raw.steps[SKIPPED:], np.maximum(values[SKIPPED:], 0.0)
    if len(values) < 4 * LEAST_STALLS:
        return None
    usual = float(np.median(values))
    long = np.flatnonzero(values > max(TIMES * usual, usual + LONGER))
    if len(long) < LEAST_STALLS:
        return None
    distances = np.diff(steps[long])
    period = float(np.median(distances))
    regular = np.mean(np.abs(distances - period) <= max(1.0, 0.1 * period))
    lost = float((values[long] - usual).sum())
    share = lost / float(values.sum())
    if period < 2 or regular < REGULAR or share < STALL_SHARE or lost < PAUSE_SECONDS:
        return None
    return Stalls(tuple(int(s) for s in steps[long]), period, lost, share, usual, float(values[long].max()))


def _at(trace: Trace, like: Trace) -> curves.Floats:
    """The values of one trace at the steps of another; zero where there are none."""
    raw = trace.first() if trace.merged > 1 else trace
    found = dict(zip(raw.steps.tolist(), raw.values.tolist(), strict=True))
    return np.nan_to_num(np.array([found.get(s, 0.0) for s in like.steps.tolist()]))


def _stalled(stalls: Stalls, trace: Trace) -> Finding:
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.8,
        title=f"every {stalls.period:.3g} steps one takes {stalls.longest / max(stalls.usual, 1e-9):.0f} times as long",
        summary=f"A usual step takes {1e3 * stalls.usual:.3g} ms. {len(stalls.steps)} steps at regular distances took "
        f"up to {stalls.longest:.2g} s and cost {stalls.share:.0%} of the time.",
        first_step=stalls.steps[0],
        last_step=stalls.steps[-1],
        evidence=[
            Evidence(
                f"{len(stalls.steps)} long steps, {stalls.period:.3g} apart, lost {stalls.seconds:.3g} s",
                TIME_STEP.name,
                stalls.share,
                STALL_SHARE,
                spark=curves.spark(trace.first().values),
            )
        ],
        fix=Fix(
            f"Look at what the loop does every {stalls.period:.3g} steps (saving, drawing, logging) and do it less "
            "often or in a thread.",
            None,
        ),
        symptoms=("slow-steps",),
    )
