"""The training step waits for its data.

## What it means
A large part of every step is spent until the loader hands over the next batch. The model, and the device it runs on,
stand idle meanwhile: a faster device would change nothing, and most of what is paid for it is waiting.

## Why it happens
- `num_workers=0`: samples are read, decoded and augmented one after the other in the training process itself.
- Too few workers for the work a sample needs, or a disk or network that cannot deliver faster.
- Work in `__getitem__` that could be done once: decoding, resizing, tokenising, opening a file for every sample.
- Workers that are started anew in every short epoch (no `persistent_workers`).

## How it is detected
The time inside the loader's `next` is measured on every step and set against the time from one update to the next. The
first steps are left out. A warning needs 40 % of the time spent waiting, at least 5 ms a step and 150 microseconds a
sample: indexing, pairing and collating small tensors from memory costs less than that and is natural for small models;
then an info is given at most.

## How to fix it
`DataLoader(..., num_workers=4, pin_memory=True, persistent_workers=True)`, with as many workers as there are cores to
spare. Do what does not change from epoch to epoch once, and store it. If everything fits into memory, keep it as one
tensor on the device and index it, without a loader. Read large sequential files instead of many small ones.

## Known false alarms
A loader that waits for something other than data by intent (a simulator, another process). Very short runs in which
starting the workers is most of the time.

## References
PyTorch documentation, "torch.utils.data" and "Performance Tuning Guide". Mohan et al., "Analyzing and Mitigating Data
Stalls in DNN Training" (2021).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import TRAIN, LoaderFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_SIZE, TIME_DATA, TIME_STEP

RULE = Rule(
    code="P001",
    name="input-bound",
    family="throughput",
    needs=(TIME_STEP, TIME_DATA),
    explains=("device-underfilled", "periodic-stall"),
)

WARN_SHARE, TELL_SHARE = 0.4, 0.3
"""Share of the time spent waiting: without it the run would be 1.7, or 1.4, times as fast."""
WARN_SECONDS, TELL_SECONDS = 5e-3, 1e-3
"""Waiting in a step that is worth a change."""
COLLATING = 150e-6
"""Seconds a sample that indexing, drawing a partner and stacking tensors in memory take at most (measured: 5 to 15
microseconds for a TensorDataset, 60 for random pairs, twice that where others work beside; trigrams of a text 350)."""
SKIPPED = 5
LEAST_STEPS = 20


def detect(run: Run) -> Iterator[Finding]:
    data, step = run.scalar(TIME_DATA), run.scalar(TIME_STEP)
    waits, totals = _common(data, step)
    if len(waits) < LEAST_STEPS or totals.sum() <= 0:
        return
    share, wait = float(waits.sum() / totals.sum()), float(waits.mean())
    if share < TELL_SHARE or wait < TELL_SECONDS or np.mean(waits / np.maximum(totals, 1e-12) > TELL_SHARE / 2) < 0.1:
        return
    loader = next((f for f in reversed(run.facts(LoaderFact)) if f.phase == TRAIN), None)
    sizes = run.scalar(BATCH_SIZE, TRAIN).values
    samples = float(np.median(sizes)) if len(sizes) else loader.batch_size if loader and loader.batch_size else None
    costly = samples is None or wait / samples >= COLLATING
    severe = share >= WARN_SHARE and wait >= WARN_SECONDS and costly
    yield RULE.finding(
        severity=Severity.WARNING if severe else Severity.INFO,
        confidence=0.9 if share >= 0.6 else 0.8,
        title=f"The step waits for data {share:.0%} of its time ({1e3 * wait:.3g} of {1e3 * totals.mean():.3g} ms)",
        summary=(
            f"Of every step, {1e3 * wait:.3g} ms pass until the loader delivers. Without that the run would be "
            f"{1 / max(1 - share, 0.02):.1f} times as fast."
        ),
        fix=_fix(loader, costly),
        evidence=[
            Evidence(
                f"{share:.0%} of the time is spent in the loader",
                TIME_DATA.name,
                share,
                WARN_SHARE,
                curves.spark(waits / totals),
            ),
            *_loader_evidence(loader, wait, samples),
        ],
        first_step=int(step.steps[0]),
        last_step=int(step.steps[-1]),
        symptoms=("slow-steps",),
    )


def _common(data: curves.Trace, step: curves.Trace) -> tuple[curves.Floats, curves.Floats]:
    """Waiting and whole time of the same steps, without the first ones."""
    steps, at_data, at_step = np.intersect1d(data.steps, step.steps, return_indices=True)
    waits, totals = data.values[at_data].astype(np.float64), step.values[at_step].astype(np.float64)
    keep = np.isfinite(waits) & np.isfinite(totals) & (totals > 0)
    keep[: min(SKIPPED, len(steps) // 4)] = False
    return waits[keep], totals[keep]


def _loader_evidence(loader: LoaderFact | None, wait: float, samples: float | None) -> Iterator[Evidence]:
    if samples:
        yield Evidence(
            f"{1e6 * wait / samples:.0f} microseconds a sample, {samples:.0f} samples a batch", TIME_DATA.name
        )
    if loader is not None:
        workers = "no workers" if not loader.workers else f"{loader.workers} workers"
        yield Evidence(f"the loader over {loader.dataset} has {workers}", None, float(loader.workers))


def _fix(loader: LoaderFact | None, costly: bool) -> Fix:
    if not costly:
        return Fix(
            "The data is in memory: index the tensors by a batch of indices instead of collating samples one by one.",
            "for idx in torch.randperm(len(X)).split(batch_size): xb, yb = X[idx], y[idx]",
        )
    if loader is None:
        return Fix(
            "Prepare the next batch in a worker while this one is trained on.", "DataLoader(dataset, num_workers=4)"
        )
    size = loader.batch_size or 32
    if not loader.workers:
        return Fix(
            "Let workers prepare the batches while the model trains; do in advance what is the same in every epoch.",
            f"DataLoader(dataset, batch_size={size}, shuffle=True, num_workers=4, persistent_workers=True)",
        )
    return Fix(
        "More workers, or less work a sample: store what is the same in every epoch.",
        f"DataLoader(dataset, batch_size={size}, num_workers={2 * loader.workers}, persistent_workers=True)",
    )
