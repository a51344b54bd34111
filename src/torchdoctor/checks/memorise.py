"""One batch can be learned by heart, down to the least that its loss can be."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

from torchdoctor.checks import input_dependence
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, said_before, skipped
from torchdoctor.checks.repeats.updating import update
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.one_batch import first_samples, is_taken, samples_in
from torchdoctor.instruments.overfitting.loss_reading import floor_of_loss, read_loss
from torchdoctor.instruments.overfitting.overfit import OverfitResult, memorise
from torchdoctor.instruments.state import untouched
from torchdoctor.rules import find
from torchdoctor.rules.curves import figure

CHECK = Check(
    name="memorise",
    asks="one batch can be learned by heart",
    part=PROCEDURE,
    order=65,
    quick=False,
    diagnoses=(
        *("capacity-too-low", "missing-nonlinearity", "disconnected-parameters", "frozen-parameters"),
        *("vanishing-gradients", "inputs-and-labels-unrelated", "wrong-loss-for-task", "loss-sign-flipped"),
        *("misplaced-activation", "shape-broadcast-in-loss", "unnormalized-inputs", "dead-relu"),
        *("nonfinite-parameters", "nan-in-inputs", "softmax-before-cross-entropy", "sigmoid-before-bce-with-logits"),
    ),
)
LOOK_CLOSER = "print(torchdoctor.overfit_batch(model, batch, loss_fn))"
SIZES = (16, 4)
"""Samples that are to be learned: the fewer where steps are slow."""
STEPS = 200
SECONDS = 25.0
"""That it may take; most models are done in a tenth of it."""
UPDATES = 300
"""That it takes at the most, about, with all rates that are tried."""
FELL = 0.5
"""Of the first loss: what a loss whose floor is not known must have lost to count as learned."""
MEANT = ("capacity-too-low", "missing-nonlinearity", "frozen-parameters")
"""What may be: a linear model, a narrow code, a head on features that stay as they are."""
COLLAPSED = ("dead-relu", "representation-collapse")
"""The outputs are one and the same after the trial: of the training, where they were not before it."""
INCONCLUSIVE = ("learning-rate-too-low", "learning-rate-too-high")
"""It was on its way when the steps were over."""


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped("there is no batch to learn")
    batch, cost = _affordable(bench)
    if batch is None:
        return skipped(
            f"an update takes {cost:.1f} s, and some {UPDATES} may be needed: torchdoctor.overfit_batch does it"
        )
    target = _target(bench, batch)
    result = memorise(bench.subject, batch, steps=STEPS, target=target, progress=False)
    figures = _figures(result)
    if result.success and target is not None:
        return passed(f"{_came(result)}; how low it can go is not known", **figures)
    if result.success:
        return passed(
            f"{_samples(result)} in {result.steps} updates: loss {figure(result.losses[0])} to {figure(result.end)}, "
            f"floor {figure(result.floor)}",
            **figures,
        )
    return _not_learned(bench, result, figures)


def _affordable(bench: Bench) -> tuple[Any, float]:
    """A batch whose updates are quick enough, and what one takes."""
    cost = math.inf
    for size in SIZES:
        whole = bench.train[0]
        count = samples_in(whole)
        batch = first_samples(whole, size) if count is not None and count > size else whole
        batch = whole if batch is None or not is_taken(bench.subject, batch) else batch
        with untouched(*bench.subject.parts, *bench.optimizers, *bench.schedulers, *bench.scalers):
            update(bench, [batch])
            begun = perf_counter()
            update(bench, [batch])
            cost = perf_counter() - begun
        if cost * UPDATES <= SECONDS:
            return batch, cost
    return None, cost


def _target(bench: Bench, batch: Any) -> float | None:
    """Half of the first loss, where its floor is not known."""
    with untouched(*bench.subject.parts):
        reading = read_loss(bench.subject, batch)
    known = floor_of_loss(reading).known or not math.isfinite(reading.value) or reading.value <= 0
    return None if known else (1 - FELL) * reading.value


def _not_learned(bench: Bench, result: OverfitResult, figures: dict[str, Any]) -> Outcome:
    reason = result.reason
    came = _came(result)
    if not result.floor_known and math.isfinite(result.goal) and (reason is None or not reason.proven):
        return skipped(f"{came}, and how low it can go is not known", **figures)
    if reason is None or (reason.name in INCONCLUSIVE and not reason.proven):
        return skipped(f"{came}, and was still falling after {STEPS} updates", **figures)
    known = find(reason.name) is not None
    if not known and result.end < (1 - FELL) * result.losses[0]:
        return skipped(f"{came}; it may have a floor that is not known, as where scores are bounded", **figures)
    if reason.name in COLLAPSED and _depends_on_inputs(bench):
        return _collapsed(result, figures)
    trained = any(p.requires_grad for p in bench.model.parameters())
    severity = (
        Severity.INFO if reason.name in MEANT and trained else Severity.ERROR if reason.proven else Severity.WARNING
    )
    told = said_before(bench, reason.name)
    return failed(
        f"{came}, and not to {figure(result.goal)}: {'' if reason.proven or not known else 'probably '}{reason.text}"
        + (f" (as {told[0]} says)" if told else ""),
        reason.name if known else None,
        Fix(reason.fix, LOOK_CLOSER),
        severity=told[1].severity if told else severity,
        evidence=_evidence(result),
        consequence_of=reason.name if told else None,
        proven=reason.proven,
        **figures,
    )


def _depends_on_inputs(bench: Bench) -> bool:
    """Before any training."""
    told = bench.outcomes.get(input_dependence.CHECK.name)
    if told is None:
        with bench.experiment():
            told = input_dependence.perform(bench)
    return told.passed is True


def _collapsed(result: OverfitResult, figures: dict[str, Any]) -> Outcome:
    return failed(
        f"{_came(result)}, and not to {figure(result.goal)}: after training on one batch the outputs are the same for "
        "every sample, though they depend on the inputs before it",
        None,
        Fix(
            "Look for what loses the samples on the way: many layers without skip connections, units that die at this "
            "learning rate, or a penalty (e.g. a VAE's KL term) that weighs too much early in training.",
            LOOK_CLOSER,
        ),
        severity=Severity.WARNING if result.floor_known and result.guess is not None else Severity.INFO,
        evidence=_evidence(result),
        proven=False,
        **figures,
    )


def _evidence(result: OverfitResult) -> tuple[str, ...]:
    floor = f"floor of this loss: {figure(result.floor)} ({result.floor_words})"
    return (floor, *(f"ruled out: {text}" for text in result.ruled_out))


def _came(result: OverfitResult) -> str:
    least = min((loss for loss in result.losses if math.isfinite(loss)), default=math.nan)
    return f"the loss of {_samples(result)} goes from {figure(result.losses[0])} to {figure(least)}"


def _samples(result: OverfitResult) -> str:
    return f"{result.samples} samples" if result.samples else "one batch"


def _figures(result: OverfitResult) -> dict[str, Any]:
    return {
        "memorised": result.success,
        "steps": result.steps,
        "first": result.losses[0] if result.losses else None,
        "last": result.end,
        "goal": result.goal,
        "floor": result.floor,
        "reason": result.reason.name if result.reason is not None else None,
        "samples": result.samples,
    }
