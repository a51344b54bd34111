"""Training goes on from a checkpoint without its optimizer's or its schedule's state.

## What it means
The weights come back, the rest of the training does not: moments start from zero, so the first updates are far larger
or noisier than those before the break, and a schedule begins anew, with a learning rate that the weights have long
outgrown. The loss jumps at the resume, and time is spent on getting back.

## Why it happens
- The checkpoint holds `model.state_dict()` only.
- It holds everything, and only the model's part is loaded.
- The optimizer's state is loaded, the scheduler's (or the count of epochs) is not.

## How it is detected
By state: at the first update of an optimizer, its parameters had just been filled by `load_state_dict` and its own
state was empty. That this is a resume, and not a fine-tuning, is known where the checkpoint held an optimizer's state
that nobody loaded, where this very process had trained these weights before with an optimizer of the same kind, or
where it writes checkpoints to the same path. A copy that was only ever in memory must make the loss or the rate jump;
else it is an info. The learning rate must be the one that the training had, or began with; a training set of another
size speaks for a transfer, and nothing is said then.

## How to fix it
Save and load all of it: `{"model": ..., "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
"epoch": epoch}`, and go on counting from there.

## Known false alarms
Fine-tuning from pretrained weights (no trace of an optimizer, another rate, other data, a new head) is not reported.
Neither are restarts from the weights a training began with (folds, searches, rewinding) and trainings that load
weights again and again by design (federated rounds, meta-learning). Plain SGD without a schedule has no state to lose.

## References
PyTorch tutorial, "Saving and loading a general checkpoint in PyTorch".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import TRAIN, LoaderFact, OptimizerFact, ResumeFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.places import known, receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN

RULE = Rule(
    code="T014",
    name="resume-without-state",
    family="procedure",
    needs=(ResumeFact,),
    explains=(
        "missing-warmup",
        "outlier-batch",
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "scheduler-misuse",
    ),
)

WHOLE = 0.99
"""Share of the optimizer's elements that came from the checkpoint; a new head means fine-tuning."""
RATE_JUMP = 1.5
"""A rate so many times what it was before the break: the schedule began anew."""
JUMP_SIGMAS = 4.0
"""Median of ten losses over their own scatter: by chance under one in 10,000."""
ROUNDS = 4
"""So many resumes in one process are a method."""
WINDOW = 10


def detect(run: Run) -> Iterator[Finding]:
    seen = run.facts_at(ResumeFact)
    if len(seen) >= ROUNDS or _is_transfer(run):
        return
    for step, fact in seen:
        if fact.share < WHOLE or fact.start or not _is_resume(fact) or not _same_rate(fact):
            continue
        moments = fact.empty and not fact.loaded and _has_moments(run.optimizers.get(fact.optimizer))
        jump = _rate_jump(run, fact, step)
        schedule = jump is not None and jump >= RATE_JUMP and not fact.scheduler_loaded
        if moments or schedule:
            yield _finding(run, step, fact, moments, jump if schedule else None)
            return


def _is_harmful(run: Run, step: int, fact: ResumeFact, jump: float | None) -> bool:
    """A checkpoint in a file is there to resume from; a copy in memory may be a student, a pruned or a best model."""
    if fact.saved_optimizer or fact.file_written or jump is not None:
        return True
    loss = loss_curve(run)
    if loss is None:
        return False
    steps, values = loss.curve.steps, loss.curve.values
    before, after = values[steps < step][-3 * WINDOW :], values[steps >= step][:WINDOW]
    if len(before) < WINDOW or len(after) < WINDOW // 2:
        return False
    return float(np.median(after)) > float(np.median(before)) + JUMP_SIGMAS * max(curves.noise(before), 1e-12)


def _is_resume(fact: ResumeFact) -> bool:
    return fact.saved_optimizer or fact.earlier is not None or fact.file_written


def _is_transfer(run: Run) -> bool:
    """The training set changes in the course of the run."""
    sets = {(f.samples, f.dataset) for f in run.facts(LoaderFact) if f.phase == TRAIN and f.samples}
    return len(sets) > 1


def _same_rate(fact: ResumeFact) -> bool:
    before = [*fact.saved_initial_rates, *fact.saved_rates]
    return not before or not fact.rates or any(np.isclose(fact.rates[0], rate) for rate in before)


def _has_moments(optimizer: OptimizerFact | None) -> bool:
    if optimizer is None or not optimizer.groups:
        return False
    group = optimizer.groups[0]
    return bool(group.get("momentum")) or "betas" in group or optimizer.type not in ("SGD", "LBFGS")


def _rate_jump(run: Run, fact: ResumeFact, step: int) -> float | None:
    """The rate after the break over the one before it."""
    before = fact.saved_rates[0] if fact.saved_rates else None
    if fact.earlier is not None:
        earlier = run.scalar(LEARNING_RATE, f"{fact.earlier}.0")
        last = earlier.values[earlier.steps < step]
        before = float(last[-1]) if len(last) else before
    return fact.rates[0] / before if fact.rates and before else None


def _finding(run: Run, step: int, fact: ResumeFact, moments: bool, jump: float | None) -> Finding:
    optimizer = run.optimizers.get(fact.optimizer)
    kind = optimizer.type if optimizer else "the optimizer"
    evidence = [
        Evidence(
            f"at step {step} {fact.share:.0%} of the weights came from load_state_dict and {kind} "
            + ("had no state" if fact.empty else "kept its state"),
            value=fact.share,
            threshold=WHOLE,
        )
    ]
    if fact.saved_optimizer and fact.empty:
        evidence.append(Evidence("an optimizer's state was saved and was not loaded"))
    if fact.saved_progress:
        evidence.append(Evidence(f"the checkpoint says {fact.saved_progress}"))
    if jump is not None:
        text = f"the learning rate is {jump:.3g} times what it was before the break"
        evidence.append(Evidence(text, LEARNING_RATE.name, jump, RATE_JUMP))
    evidence.extend(_loss_jump(run, step))
    lost = " and ".join([*(["its moments"] if moments else []), *(["the schedule"] if jump is not None else [])])
    name = receiver(run, "step", "optimizer")
    code = f'{name}.load_state_dict(checkpoint["optimizer"])'
    if jump is not None or fact.saved_scheduler:
        code += '\nscheduler.load_state_dict(checkpoint["scheduler"])'
    return RULE.finding(
        severity=Severity.WARNING if _is_harmful(run, step, fact, jump) else Severity.INFO,
        confidence=0.9 if fact.saved_optimizer else 0.8,
        proof=Proof.STRUCTURE,
        title=f"training is resumed at step {step} without {lost}",
        summary=f"The weights were loaded from a checkpoint and {lost} of the training that made them "
        "were not, so the first updates do not fit the weights.",
        where=known(
            Place(file=fact.file, line=fact.line),
            Place(file=optimizer.file, line=optimizer.line) if optimizer else Place(),
        ),
        first_step=step,
        last_step=step,
        evidence=evidence,
        fix=Fix("Save the optimizer's and the scheduler's state beside the model's, and load all of them.", code),
        symptoms=("loss-jump-at-resume",),
    )


def _loss_jump(run: Run, step: int) -> list[Evidence]:
    loss = loss_curve(run)
    if loss is None or step == 0:
        return []
    steps, values = loss.curve.steps, loss.curve.values
    before, after = values[steps < step][-WINDOW:], values[steps >= step][:WINDOW]
    if len(before) < 3 or len(after) < 3:
        return []
    text = (
        f"the training loss went from {np.median(before):.3g} before the break to as much as {after.max():.3g} after it"
    )
    return [Evidence(text, LOSS_TRAIN.name, float(after.max()), float(np.median(before)), spark=loss.spark)]
