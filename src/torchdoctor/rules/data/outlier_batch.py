"""A batch with atypical inputs or targets makes the loss spike.

## What it means
The loss jumps on single steps, because the batch of that step holds samples far outside the usual range. One such step
can undo many: its gradient is as much larger as its error, adaptive optimizers remember it for a thousand steps, and
batch-norm statistics take it up. If the samples stay in the data, it comes back in every epoch.

## Why it happens
- Corrupt records: a sensor's error code, a unit mixed up (cents and euros, 0..255 among 0..1), a misplaced comma.
- Values that a division or logarithm near zero blew up.
- Real but extreme values of a heavy-tailed quantity, not transformed.

## How it is detected
Every training loss is compared with the running mean and deviation of those before it. On a step that stands 6 mean
deviations above it the batch is looked at: the size of each sample (root mean square) against the others of its batch
and against what batches usually have, and the largest target against the usual targets. A sample five times as large
as usual, or a target eight times, on a step whose loss spikes, is reported with its indices in the batch, if a tenth of
all spikes come with one. A target under twenty times the usual must outweigh all others of its batch, and batches with
targets as large as it alone makes them must be rare among those that were looked at: what comes again and again (a rare
reward) is a part of the task. It must also stand apart: where targets of all sizes from four times the usual on
make the loss spike, the largest of them is the end of a tail.

## How to fix it
Look at the samples that are named. Remove or correct what is wrong; clip or transform (logarithm, quantiles) what is
real. A robust loss (Huber) and gradient clipping limit the damage that the next one does.

## Known false alarms
Data with heavy tails has such values in every batch: then they are usual, and nothing is reported. On a GPU the batch
is gone when the loss is known, so only steps that were looked at anyway can show it.

## References
Huber, "Robust Estimation of a Location Parameter" (1964). Chowdhery et al., "PaLM" (2022), section 5.1, on skipping
batches around loss spikes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from torchdoctor.facts import TRAIN, SpikeFact
from torchdoctor.findings import Evidence, Finding, Fix, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.curves import figure
from torchdoctor.rules.places import call_places
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import (
    BATCH_SIZE,
    INPUT_MAX,
    INPUT_MEAN,
    INPUT_MIN,
    INPUT_STD,
    LOSS_TRAIN,
    TARGET_MEAN,
    TARGET_STD,
)

RULE = Rule(
    code="D004",
    name="outlier-batch",
    family="data",
    needs=(LOSS_TRAIN, INPUT_STD),
    explains=(
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "exploding-gradients",
        "missing-warmup",
        "batch-too-small",
        "dead-relu",
        "saturated-activations",
        "nonfinite-parameters",
        "exp-overflow",
        "half-precision-overflow",
        "clipping-too-tight",
        "weight-norm-growth",
        "abnormal-distribution",
        "overfitting",
        "majority-class-collapse",
        "unnormalized-inputs",
        "underfitting",
        "validation-better-than-training",
    ),
)

LARGE_SAMPLE = 5.0
"""Root mean square of the largest sample over the usual one; of ten normal values five times as much never comes."""
LARGE_TARGET = 8.0
BEYOND_TAILS = 20.0
"""A target so many times the usual is none of the tails that targets have (of ten thousand products of two normal
values the largest is about 12 times the usual); below it a target must outweigh the rest of its batch, and be rare."""
APART = 1.6
"""An accident stands apart. A target is the end of a tail where others, from half of LARGE_TARGET up to its own size,
make the loss spike, too, and each is less than so many times the one before."""
LEAST_IN_TAIL = 4
LONGEST_AGO = 2.0
"""A step so many times as late as the last measured batch is not compared with it: targets that an agent estimates
itself grow while it learns."""
RECURRING = 0.15
"""Share of the batches looked at whose targets are as large as one such target alone would make them: then it is a
part of the task (a rare reward, a rare event), not an accident."""
LARGE_BATCH = 3.0
"""The whole batch over the usual one."""
LEAST_SHARE = 0.1
"""Of the spikes, that come with something out of range: where nearly all come without, it is not what makes them."""
SPIKE = 1.5
"""Loss over the usual loss: less does no harm worth telling."""


@dataclass(frozen=True)
class Usual:
    """What batches that were looked at have in the middle."""

    input_size: float
    input_high: float
    target_size: float | None
    target_sizes: curves.Floats
    """of all batches that were looked at"""
    batch: float | None
    """samples"""
    targets_until: float = math.inf
    """step of the last batch whose targets were measured"""
    tail: float = 0.0
    """up to this size targets of all sizes made the loss spike"""

    def recurs(self, size: float) -> bool:
        """Whether batches whose targets are of that size are nothing out of the ordinary."""
        return float((self.target_sizes >= size).mean()) >= RECURRING


@dataclass(frozen=True)
class Outlier:
    step: int
    fact: SpikeFact
    role: str
    times: float
    samples: tuple[int, ...]


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    spikes = [(step, f) for step, f in run.facts_at(SpikeFact) if f.loss >= SPIKE * abs(f.usual)]
    usual = typical(run)
    if usual is None or not spikes:
        return
    usual = replace(usual, tail=_tail([fact.target_high for _, fact in spikes], usual))
    outliers = [o for step, fact in spikes for o in examine(step, fact, usual)]
    if len({o.step for o in outliers}) >= LEAST_SHARE * len(spikes) and outliers:
        yield _finding(run, outliers, len(spikes), usual)
        return
    compared = sum(f.input_size is not None and math.isfinite(f.input_size) for _, f in spikes)
    if compared and not outliers and usual.tail < LARGE_TARGET:
        text = f"the batches at {compared} of {len(spikes)} steps with a spiking loss are of the usual size"
        yield RuledOut(RULE.name, text, SpikeFact.kind, float(compared))


def typical(run: Run) -> Usual | None:
    mean, std = run.scalar(INPUT_MEAN, TRAIN).values, run.scalar(INPUT_STD, TRAIN).values
    low, high = run.scalar(INPUT_MIN, TRAIN).values, run.scalar(INPUT_MAX, TRAIN).values
    if not len(std) or len(mean) != len(std) or len(low) != len(high) or not len(low):
        return None
    size = curves.median(np.hypot(mean, std))
    peak = curves.median(np.maximum(np.abs(low), np.abs(high)))
    target_mean, target_std = run.scalar(TARGET_MEAN, TRAIN).values, run.scalar(TARGET_STD, TRAIN).values
    same = len(target_mean) == len(target_std) > 0
    targets = np.hypot(target_mean, target_std) if same else np.zeros(0)
    target = curves.median(targets) if np.isfinite(targets).any() else None
    batches = run.scalar(BATCH_SIZE, TRAIN).values
    batch = curves.median(batches) if np.isfinite(batches).any() else None
    last = float(run.scalar(TARGET_STD, TRAIN).steps[-1]) if same else math.inf
    return Usual(size, peak, target, targets, batch, last) if size > 0 else None


def _tail(highs: list[float | None], usual: Usual) -> float:
    """How far up the largest targets of spikes follow each other closely, in usual sizes; 0 where too few do."""
    sizes = {high / usual.target_size for high in highs if high is not None and usual.target_size}
    end, links = LARGE_TARGET / 2, 0
    for size in sorted(sizes):
        if LARGE_TARGET / 2 <= size <= APART * end:
            end, links = size, links + 1
    return end if links >= LEAST_IN_TAIL else 0.0


def examine(step: int, fact: SpikeFact, usual: Usual) -> list[Outlier]:
    """What in this batch is out of the usual range: inputs, targets or both."""
    found = []
    if fact.input_size is not None and fact.sample_sizes and fact.sample_typical is not None:
        beyond = (fact.input_high or 0.0) >= LARGE_BATCH * usual.input_high
        limit = LARGE_SAMPLE * max(usual.input_size, 0.0)
        large = tuple(i for i, size in zip(fact.samples, fact.sample_sizes, strict=False) if size >= limit)
        if beyond and (large or fact.input_size >= LARGE_BATCH * usual.input_size):
            found.append(Outlier(step, fact, "input", fact.sample_sizes[0] / usual.input_size, large))
    is_known = step <= LONGEST_AGO * max(usual.targets_until, 1.0)
    if fact.target_high is not None and usual.target_size and is_known and not fact.target_integral:
        times = fact.target_high / usual.target_size
        alone = fact.target_high / math.sqrt(usual.batch) if usual.batch else math.inf
        strange = alone >= usual.target_size and not usual.recurs(alone) and times > usual.tail
        if times >= BEYOND_TAILS or (times >= LARGE_TARGET and strange):
            found.append(Outlier(step, fact, "target", times, tuple(fact.target_samples[:1])))
    return found


def _finding(run: Run, outliers: list[Outlier], spikes: int, usual: Usual) -> Finding:
    worst = max(outliers, key=lambda o: o.times)
    steps = sorted({o.step for o in outliers})
    size = usual.input_size if worst.role == "input" else usual.target_size or 0.0
    fact = worst.fact
    seen = fact.sample_sizes[0] if worst.role == "input" else fact.target_high or 0.0
    where = f"sample {worst.samples[0]} of the batch" if worst.samples else "the whole batch"
    loss = run.scalar(LOSS_TRAIN)
    texts = [
        f"step {o.step}: {o.role} of sample {o.samples[0] if o.samples else 'all'}, {o.times:.0f} times"
        for o in outliers
    ]
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.93 if worst.times >= 20 or len(steps) > 1 else 0.85,
        title=f"{worst.role.capitalize()}s {figure(worst.times)} times the usual size make the loss spike "
        f"at step {worst.step}",
        summary=f"On {len(steps)} of {spikes} steps with a spiking loss the batch holds {worst.role}s far outside the "
        f"usual range; at step {worst.step} it is {where}.",
        where=call_places(run, "backward"),
        first_step=steps[0],
        last_step=steps[-1],
        evidence=[
            Evidence(
                f"at step {worst.step} the loss is {figure(fact.loss)} against {figure(fact.usual)} before",
                LOSS_TRAIN.name,
                fact.loss,
                fact.usual + 6 * fact.noise,
                curves.spark(loss.values),
            ),
            Evidence(
                f"the largest {worst.role} of that batch has size {figure(seen)}, usual is {figure(size)} ({where})",
                SpikeFact.kind,
                worst.times,
                LARGE_SAMPLE if worst.role == "input" else LARGE_TARGET,
            ),
            *([Evidence("; ".join(texts[:5]), SpikeFact.kind)] if len(outliers) > 1 else []),
        ],
        fix=Fix(
            "Look at these samples; remove or correct what is wrong, and clip or transform what is real.",
            "x = x.clamp(-5, 5)  # standardised inputs; or nn.HuberLoss() for targets"
            if worst.role == "input"
            else "criterion = nn.HuberLoss()  # or drop rows whose target is out of range",
        ),
        symptoms=("spikes",),
    )
