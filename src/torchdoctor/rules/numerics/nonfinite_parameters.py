"""Parameters or buffers hold NaN or Inf.

## What it means
A weight, a bias or a running statistic is NaN or infinite. Whatever goes through that layer comes out NaN, so does
the loss, and no further step can repair it: NaN minus a gradient is NaN. A checkpoint written from here on is
worthless.

## Why it happens
- Before the first update: a checkpoint that was saved after an earlier run had already failed, an initialisation that
  divides by zero, memory from `torch.empty` that was never filled.
- Later: one update with a NaN or infinite gradient. That is the end of a chain whose cause lies before it: bad data, an
  overflow, a logarithm of zero, a learning rate that let the weights explode.

## How it is detected
Parameters and buffers are counted for non-finite values from the first step on. If they are there before any update,
the finding stands by itself and is proved. If they come later it is what is left to say when nothing before
them in the chain (data, gradients, rate) explains them; the order in which things became non-finite is in the
evidence.
Where the weights stayed whole and no operation was found to have made a loss or gradient non-finite, the first such
step is told here: `--on-nonfinite` or a gradient scaler left its update out, or the script saw it by itself and ended.

## How to fix it
If they were there from the start, check what was loaded: `all(t.isfinite().all() for t in state.values())`, and fill
what `torch.empty` made. If they came later, go to the first entry of the chain; until it is found,
`clip_grad_norm_(..., error_if_nonfinite=True)` stops the run before the weights are lost. Go back to the last
checkpoint in which every tensor is finite.

## Known false alarms
Buffers may hold infinities on purpose (causal masks of -inf, running minima that start at inf): of buffers only NaN
counts.

## References
PyTorch documentation, "torch.nn.utils.clip_grad_norm_" and "torch.empty". Goodfellow, Bengio and Courville, "Deep
Learning" (2016), chapter 4.1 on overflow and underflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import GAVE_UP, NO_BACKWARD, BirthFact, HealthFact, NonfiniteFact, OrderFact, RemedyFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules.nonfinite import chain, first, loss_broke_at
from torchdoctor.rules.remedies import describe, was_put_right
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN, WEIGHT

RULE = Rule(
    code="N008",
    name="nonfinite-parameters",
    family="numerics",
    needs=((WEIGHT["nonfinite"], NonfiniteFact),),
    explains=("no-parameter-update", "bad-initialization-scale", "dead-relu", "saturated-activations"),
    fallback=True,
)


REPLAY = Fix("Run the captured step again with every operation checked: that names what made it.", "torchdoctor replay")


@dataclass(frozen=True)
class Broken:
    """One parameter or buffer that holds NaN or Inf."""

    name: str
    role: str
    step: int
    count: int


def detect(run: Run) -> Iterator[Finding]:
    broken = sorted(_from_facts(run) + _from_counts(run), key=lambda b: b.step)
    if not broken:
        if not run.facts(BirthFact):
            yield from _unexplained(run)
        return
    start = broken[0].step
    together = {b.name: b for b in reversed(broken) if b.step == start}
    from_start = _was_there_before_training(run, start)
    names = list(together)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    yield RULE.finding(
        severity=Severity.ERROR,
        confidence=0.98 if from_start else 0.9,
        title=f"{shown} held NaN or Inf {'before the first update' if from_start else f'from step {start} on'}",
        summary=_summary(from_start, start, len(names)),
        fix=_fix(run, from_start, names[0]),
        evidence=[
            *(
                Evidence(f"{b.role} {b.name}: {b.count} non-finite values", WEIGHT["nonfinite"].name, b.count, 0.0)
                for b in list(together.values())[:5]
            ),
            *chain(run),
        ],
        proof=Proof.STRUCTURE,
        where=[Place(module=n.rpartition(".")[0] or None, parameter=n) for n in names[:5]],
        first_step=start,
        symptoms=("nan-at-first-step",) if from_start else ("nan-later",),
    )


def _unexplained(run: Run) -> Iterator[Finding]:
    """The weights are whole, and what made a loss or gradient non-finite is not known."""
    remedy, broke = run.last_fact(RemedyFact), loss_broke_at(run)
    kept_out = sorted([*remedy.skipped, *(step for step, _ in remedy.rolled_back)]) if remedy is not None else []
    kept_out += [remedy.halted] if remedy is not None and remedy.halted is not None else []
    names = sorted({f.name for _, f in run.facts_at(NonfiniteFact) if f.role == "gradient"})
    unknown = {h.unsupported["birth"] for h in run.facts(HealthFact) if "birth" in h.unsupported}
    if kept_out:
        what = f"the gradient of {names[0]}" if names else "the loss or a gradient"
        title = f"{what} was not finite at step {min(kept_out)}, and its update was not made"
        ended = remedy is not None and remedy.halted is not None
    elif broke is not None and unknown:
        ended = GAVE_UP in unknown
        title = f"the loss was not finite at step {broke}, and " + (
            "the script ended there" if ended else "the weights stayed as they were"
        )
    else:
        return
    start = min(kept_out, default=broke)
    if NO_BACKWARD in unknown:
        yield _without_backward(run, start)
        return
    yield RULE.finding(
        severity=Severity.ERROR if ended else Severity.WARNING,
        confidence=0.9,
        title=title,
        summary="The weights are as they were before that step. What made it was not found while it trained.",
        fix=REPLAY,
        evidence=[*(Evidence(line) for line in describe(run)), *chain(run)],
        proof=Proof.STRUCTURE,
        where=[Place(module=n.rpartition(".")[0] or None, parameter=n) for n in names[:5]] if kept_out else [],
        first_step=start,
        symptoms=("nan-later",),
    )


def _without_backward(run: Run, step: int | None) -> Finding:
    """A program that computed losses, and of which no backward pass was seen."""
    loss = first(run, "loss")
    fact = loss[1] if loss is not None else None
    value = "NaN" if fact is not None and fact.nan else "infinite"
    place = Place(file=fact.file, line=fact.line) if fact is not None and fact.file else None
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.9,
        title=f"a loss was {value}, and no backward pass was seen in this program",
        summary="The loss was seen outside of any training step, so its origin was not searched for.",
        fix=Fix(
            "Check what goes into the loss: the batch, the targets, and the outputs of the model.",
            "with torch.autograd.set_detect_anomaly(True, check_nan=True): ...",
        ),
        evidence=[Evidence(f"the first loss that was not finite was {value}", LOSS_TRAIN.name), *chain(run)],
        proof=Proof.STRUCTURE,
        where=[place] if place is not None else [],
        first_step=step,
        symptoms=("nan-at-first-step",),
    )


def _from_facts(run: Run) -> list[Broken]:
    found = []
    for step, fact in run.facts_at(NonfiniteFact):
        is_parameter = fact.role == "weight"
        is_buffer = fact.role == "buffer" and fact.nan > 0 and not was_put_right(run, step)
        if is_parameter or is_buffer:
            found.append(Broken(fact.name, "parameter" if is_parameter else "buffer", step, fact.count))
    return found


def _from_counts(run: Run) -> list[Broken]:
    trace, found = run.matrix(WEIGHT["nonfinite"]), []
    for part in (trace.head, trace):
        if part is None or not len(part):
            continue
        for i, name in enumerate(trace.columns):
            bad = np.flatnonzero((part.high[:, i] > 0) & np.isfinite(part.high[:, i]))
            if len(bad):
                found.append(Broken(name, "parameter", int(part.steps[bad[0]]), int(part.high[bad[0], i])))
    return found


def _was_there_before_training(run: Run, step: int) -> bool:
    """Seen at the first step, and no batch can have brought it there. (With a closure, looks come after the update.)"""
    if step > 0 or any(order.closure for order in run.facts(OrderFact)):
        return False
    loss, batch = loss_broke_at(run), first(run, "input", "target")
    return (loss is None or loss >= step) and (batch is None or batch[0] > step)


def _summary(from_start: bool, step: int, count: int) -> str:
    many = "a parameter or buffer" if count == 1 else f"{count} parameters or buffers"
    if from_start:
        return (
            f"Before anything was trained, {many} held values that are not finite: they were loaded or initialised so."
        )
    return f"From step {step} on {many} are not finite. Nothing that follows can be trained; the cause lies before it."


def _fix(run: Run, from_start: bool, name: str) -> Fix:
    if not from_start and any("replay" in h.unsupported.get("birth", "") for h in run.facts(HealthFact)):
        return REPLAY
    if from_start:
        return Fix(
            "Check the checkpoint or the initialisation that filled it.",
            'assert all(t.isfinite().all() for t in model.state_dict().values()), "non-finite weights"',
        )
    return Fix(
        f"Find what made the update of {name} non-finite; stop before the weights are lost.",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)",
    )
