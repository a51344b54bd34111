"""Labels fit the loss, targets are finite and of a size that can be reached, and classes are balanced or handled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.data.balance import (
    CLASSES,
    LEAST_LABELS,
    Labels,
    goes_in_unchanged,
    is_soft,
    judge_balance,
    judge_many,
    labels_of,
)
from torchdoctor.checks.data.contamination import contaminated
from torchdoctor.checks.data.positions import Positions, judge_padding, positions_of
from torchdoctor.checks.data.sources import Source, target_of
from torchdoctor.checks.model.looks import Look, Looks, looks_of, targets_of
from torchdoctor.checks.model.records import found, outcome_of, record_of, worst_of
from torchdoctor.findings import Evidence, Fix, Severity
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.probes.loss_calls import LossCall
from torchdoctor.rules import baseline
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data import invalid_labels, nan_in_targets, unnormalized_inputs
from torchdoctor.rules.data.unnormalized_inputs import EXTREME, LARGE_TARGET
from torchdoctor.rules.nonfinite import Outcome as Effect
from torchdoctor.rules.nonfinite import counted
from torchdoctor.run import Run

CHECK = Check(
    name="label-values",
    asks="labels fit the loss",
    part=DATA,
    order=20,
    diagnoses=("invalid-labels", "nan-in-targets", "class-imbalance", "unnormalized-inputs"),
)
REACHED = 3.0
"""The size of targets over that of the outputs: within it the model already speaks their scale."""


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped(bench.without("training batch"))
    looks, run = looks_of(bench), record_of(bench)
    source = Source(bench.train_loader, bench.train)
    finding = found(invalid_labels.detect(run))
    misfit = outcome_of(finding) if finding is not None else None
    labels = labels_of(bench, looks, source, run) if looks.error is None else None
    judged = worst_of(_judge_finite(bench, looks, source), misfit)
    if looks.error is not None:
        return judged or skipped(f"the training step fails: {type(looks.error).__name__}: {looks.error}"[:240])
    positions = positions_of(bench, looks) if labels is None else None
    judged = worst_of(
        judged,
        judge_padding(positions),
        _judge_ignored(looks),
        _judge_all_labels(bench, looks, run),
        judge_balance(labels, run),
        judge_many(bench, looks, source, run),
        _judge_numbers(bench, looks, run),
    )
    return judged or _pass(labels, positions, run)


# -- NaN -----------------------------------------------------------------------------------------


def _judge_finite(bench: Bench, looks: Looks, source: Source) -> Outcome | None:
    for step, look in enumerate(looks.train):
        for target in _held_targets(bench, look):
            seen = contaminated(target, look, step)
            if seen is None or any(_equal(target, given) for given in look.inputs):  # the inputs again
                continue
            handled = look.loss is not None and not look.broke
            kept = replace(seen, outcome=Effect.HANDLED if handled else Effect.BROKE)
            end = "they are masked out of the loss" if handled else "the loss becomes NaN with them"
            text = f"{seen.what} in the targets of batch {step} ({counted('sample', seen.samples)}); {end}"
            severity = Severity.INFO if handled else Severity.ERROR
            return failed(text, nan_in_targets.RULE.name, nan_in_targets.repair(kept), severity=severity)
    stored = source.labels
    if stored is not None and stored.dtype.kind == "f" and not np.isfinite(stored).all():
        bad = source.indices[np.flatnonzero(~np.isfinite(stored))]
        return failed(
            f"{len(bad)} of {len(stored)} targets are NaN or Inf: {counted('sample', tuple(map(int, bad)))}",
            nan_in_targets.RULE.name,
            Fix("Drop the samples whose target is missing.", "keep = torch.isfinite(y); X, y = X[keep], y[keep]"),
            count=len(bad),
        )
    return None


def _equal(one: Tensor, other: Tensor) -> bool:
    """NaN where the other has NaN, too."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other.to(one.device)) | (one.isnan() & other.to(one.device).isnan())).all())


def _held_targets(bench: Bench, look: Look) -> list[Tensor]:
    """As the batch holds them and as the loss got them."""
    return [t for t in (*batch_tensors(target_of(look.batch)), *targets_of(bench, look)) if t.is_floating_point()]


# -- ignored -------------------------------------------------------------------------------------


def _judge_ignored(looks: Looks) -> Outcome | None:
    """No batch has a label that counts. Where another loss goes with it, labels may be rare and the rest be learned."""
    calls = [call for look in looks.train for call in look.calls]
    if not calls or any(not look.calls for look in looks.train) or not all(map(_is_ignored, calls)):
        return None
    count, value = sum(call.target.numel() for call in calls if call.target is not None), _ignore_index(calls[0])
    return failed(
        f"all {count} targets of the {len(looks.train)} batches looked at are {value}, the ignore_index that the loss "
        "leaves out: there is nothing to learn from",
        invalid_labels.RULE.name,
        Fix(
            "Look at how the labels are masked, and at what is left of them where they are shifted.",
            f"print((labels != {value}).sum(-1))  # labels that count, of each sample",
        ),
        count=count,
    )


def _is_ignored(call: LossCall) -> bool:
    target = call.target
    if call.function not in CLASSES or target is None or target.is_floating_point() or not target.numel():
        return False
    return bool((target == _ignore_index(call)).all())


def _ignore_index(call: LossCall) -> int:
    return int(call.options.get("ignore_index", -100))


# -- range -----------------------------------------------------------------------------------------


def _judge_all_labels(bench: Bench, looks: Looks, run: Run) -> Outcome | None:
    """The stored labels of both splits against the outputs, where those of training go into the loss as they are."""
    call = next((c for c in reversed(baseline.loss_calls(run)) if c.function in CLASSES), None)
    if call is None or is_soft(call) or not goes_in_unchanged(looks.train[0], CLASSES):
        return None
    if not Source(bench.train_loader, bench.train).keeps_targets:
        return None
    for name, loader, batches in (
        ("training", bench.train_loader, bench.train),
        ("validation", bench.validation_loader, bench.validation),
    ):
        source = Source(loader, batches)
        labels = source.labels
        if labels is None or not np.isfinite(labels).all() or not source.keeps_targets:
            continue
        kept = labels[labels != call.ignore_index] if call.ignore_index is not None else labels
        if not len(kept):
            continue
        seen = replace(call, target_low=float(kept.min()), target_high=float(kept.max()), ignored=0.0)
        misfit = invalid_labels.misfit_of(run, seen)
        if misfit is not None and misfit.severity is not Severity.INFO:
            where = f"{len(labels)} {name} labels run from {kept.min():g} to {kept.max():g}"
            return Outcome(False, misfit.title, misfit.severity, "invalid-labels", (Evidence(where),), misfit.fix)
    return None


# -- numbers -----------------------------------------------------------------------------------------


def _judge_numbers(bench: Bench, looks: Looks, run: Run) -> Outcome | None:
    call, spread = baseline.only_call(run), baseline.targets(run)
    numeric = (*baseline.SQUARED, *baseline.ABSOLUTE)
    if call is None or spread is None or call.function not in numeric or not math.isfinite(spread.std):
        return None
    size = math.hypot(spread.mean, spread.std)
    samples = sum(len(t) for look in looks.train for t in targets_of(bench, look)[:1] if t.dim())
    if spread.std <= 1e-6 * size and samples >= LEAST_LABELS:
        text = f"all targets of the {samples} samples looked at are {figure(spread.mean)}: there is nothing to learn"
        return failed(text, None, Fix("Look at how targets are made.", "print(y.min(), y.max(), y.std())"))
    before = bench.outcomes.get("input-values")
    if size < LARGE_TARGET or _outputs_reach(looks, size) or (before is not None and before.diagnosis is not None):
        return None
    return failed(
        f"targets have mean {figure(spread.mean)} and spread {figure(spread.std)}, and the outputs start near "
        f"{figure(_output_size(looks) or 0.0)}: most of the training would go into reaching that level",
        unnormalized_inputs.RULE.name,
        Fix(
            "Standardise the targets with the training set's mean and spread, and undo it on predictions.",
            "mean, std = y_train.mean(), y_train.std(); y_train = (y_train - mean) / std",
        ),
        severity=Severity.WARNING if size >= EXTREME else Severity.INFO,
        size=size,
    )


def _output_size(looks: Looks) -> float | None:
    sizes = [float(c.input.float().square().mean().sqrt()) for look in looks.train for c in look.calls[:1]]
    return sorted(sizes)[len(sizes) // 2] if sizes else None


def _outputs_reach(looks: Looks, size: float) -> bool:
    given = _output_size(looks)
    return given is None or REACHED * given >= size


# -- well --------------------------------------------------------------------------------------------


def _pass(labels: Labels | None, positions: Positions | None, run: Run) -> Outcome:
    said = list(_described(labels, positions, run))
    return passed("; ".join(said)) if said else skipped("no target that could be judged was found")


def _described(labels: Labels | None, positions: Positions | None, run: Run) -> Iterator[str]:
    calls = baseline.loss_calls(run)
    if labels is not None:
        counts = labels.counts
        most, least = max(counts.values()) / len(labels.values), min(counts.values()) / len(labels.values)
        shares = f"{least:.0%}" if f"{least:.0%}" == f"{most:.0%}" else f"{least:.0%} to {most:.0%}"
        yield f"{labels.said} of {len(counts)} classes, {shares} each"
        width = calls[-1].classes
        if labels.whole and width is not None and width > len(counts):
            yield f"{width - len(counts)} of {width} outputs never occur"
    elif calls and calls[-1].target_low is not None:
        low, high = min(c.target_low for c in calls if c.target_low is not None), calls[-1].target_high or 0.0
        yield f"targets of {calls[-1].function} from {figure(low)} to {figure(high)}"
        if calls[-1].classes is not None:
            yield f"{calls[-1].classes} classes"
            yield str(positions) if positions is not None else "how often each class occurs was not examined"
    else:
        spread = baseline.targets(run)
        if spread is not None:
            yield f"targets with mean {figure(spread.mean)} and spread {figure(spread.std)}"
