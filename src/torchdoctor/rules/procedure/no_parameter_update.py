"""The training loop runs, and no parameter ever changes.

## What it means
Batches are fetched, losses are computed, and the model at the end is bit for bit the model at the start. Whatever the
loss curve shows is noise between batches.

## Why it happens
- `optimizer.step()` (or the whole update) is never called, or stands in a branch that is never taken.
- `loss.backward()` is missing, so there is nothing to step along.
- `zero_grad()` stands between `backward()` and `step()`: the gradients are gone when they are needed.
- The learning rate is zero: a schedule that starts or ends at zero, a typo, a value divided as an integer.
- The optimizer was built on other tensors than the model's (see parameters-not-optimized).
- A gradient scaler skips every step because every gradient overflows.

## How it is detected
By state: every parameter that an optimizer holds is compared, bit for bit, with what it was at the first look; or
backwards ran and no optimizer was ever stepped (while training runs: in hundreds of them; where it was broken off, also
in fewer if gradients were cleared again and again); or the learning rates of all groups were zero on every update; or
the gradients were all zero whenever the optimizer stepped and the order of calls shows that they had been cleared
(weight decay may then still shrink the weights). The order of calls also says which of the reasons it is, and where.

## How to fix it
The order of one update is: `zero_grad`, forward, `backward`, (clip), `step`, then the scheduler. Print
`optimizer.param_groups[0]["lr"]` and one weight before and after a step to see the repair work.

## Known false alarms
A script that builds an optimizer but only evaluates does not call backward and is not reported. Models that are
updated by hand (`p -= lr * p.grad`) change outside an optimizer and are not reported.

## References
PyTorch tutorial, "Optimizing Model Parameters"; PyTorch documentation, torch.optim ("Taking an optimization step").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import OptimizerFact, OrderFact, PhaseFact, WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.places import call_places, call_site, known, receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT_GLOBAL_L2, LEARNING_RATE, STEP_SKIPPED

RULE = Rule(
    code="T005",
    name="no-parameter-update",
    family="procedure",
    needs=(PhaseFact,),
    explains=(
        "learning-rate-too-low",
        "learning-rate-decayed-too-early",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "disconnected-parameters",
        "vanishing-gradients",
        "majority-class-collapse",
        "stale-evaluation",
        "missing-zero-grad",
    ),
)

MIN_UPDATES = 3
"""A warm-up schedule may begin with a rate of zero for an update or two."""
MIN_BACKWARDS = 5
"""Fewer backwards without a step are a look at gradients (saliency, a smoke test), not a training."""
MIN_DISCARDED = 8
"""Gradients cleared unused in a run that was broken off. Chosen: more than a look at a few batches. While it runs they
prove nothing: importances of weights and gradients of single samples are read and cleared like that before a step."""
MIN_BACKWARDS_SO_FAR = 256
"""The same where training still runs or was broken off, and gradients are not cleared unused: the first update of an
accumulation may have been to come."""


@dataclass(frozen=True)
class Reason:
    """Why nothing moves, in words, with its repair."""

    title: str
    text: str
    fix: str
    code: str
    calls: tuple[str, ...] = ("step",)


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    phase, wiring = run.phase, run.last_fact(WiringFact)
    if phase is None or not run.optimizers or (wiring is not None and wiring.changed_outside):
        return
    if phase.updates == 0:
        broken_off = run.info.get("status") == "interrupted" and phase.discarded < MIN_DISCARDED
        least = MIN_BACKWARDS_SO_FAR if broken_off or not run.finished else MIN_BACKWARDS
        if phase.backwards >= least or (not phase.backwards and phase.passes_unknown >= least):
            yield _never_stepped(run, phase)
        return
    if phase.updates < MIN_UPDATES:
        return
    held = wiring.total - len({*wiring.frozen, *wiring.unheld}) if wiring else 0
    unchanged = len(wiring.unchanged) if wiring else 0
    still = wiring is not None and wiring.updates >= MIN_UPDATES and unchanged == held > 0 and not _has_moved(run)
    rateless, gradientless = _rates_are_zero(run), _gradients_are_zero(run)
    cleared = any(_cleared_before_step(f) for f in run.facts(OrderFact))
    if still or rateless or (gradientless and (cleared or phase.backwards == 0)):
        yield _finding(run, phase, held if still else 0, _reason(run, phase, rateless, cleared, gradientless))
    elif wiring is not None and wiring.compared and wiring.updates >= MIN_UPDATES and not unchanged:
        count = f"all {held}" if wiring.compared >= held else f"{wiring.compared} of {held}"
        text = f"{count} parameters that an optimizer holds were compared with their start: each changed"
        yield RuledOut(RULE.name, text)


def _has_moved(run: Run) -> bool:
    """Parameters changed at any time: of a later fold, or at the end of a descent, single steps may change nothing."""
    return any(f.changed_outside or (f.compared and not f.unchanged) for f in run.facts(WiringFact))


def _rates_are_zero(run: Run) -> bool:
    traces = [run.scalar(LEARNING_RATE, key) for key in run.keys(LEARNING_RATE)]
    return bool(traces) and all(len(t) * t.merged >= MIN_UPDATES and not np.any(t.high) for t in traces)


def _gradients_are_zero(run: Run) -> bool:
    traces = [run.scalar(GRADIENT_GLOBAL_L2, key) for key in run.keys(GRADIENT_GLOBAL_L2)]
    return bool(traces) and all(len(t) >= MIN_UPDATES and bool((t.high == 0).all()) for t in traces)


def _reason(run: Run, phase: PhaseFact, rateless: bool, cleared: bool, gradientless: bool) -> Reason:
    step = receiver(run, "step", "optimizer")
    skipped = run.scalar(STEP_SKIPPED)
    if rateless:
        return Reason(
            "the learning rate is 0 on every update",
            "Every group of every optimizer has a learning rate of zero, so a step changes nothing.",
            "Give the optimizer a rate above zero, and print what the scheduler makes of it.",
            f'print({step}.param_groups[0]["lr"])  # must be above 0, for example 1e-3',
        )
    if phase.backwards == 0:
        return Reason(
            "backward is never called",
            "The optimizer steps, but no backward ever ran, so no parameter has a gradient.",
            "Call backward on the loss before the step.",
            f"loss.backward()\n{step}.step()",
        )
    if cleared:
        return Reason(
            "zero_grad between backward and step clears the gradients that the step needs",
            "Gradients are computed and then cleared before the optimizer can use them.",
            "Move zero_grad in front of backward.",
            f"{step}.zero_grad()\nloss.backward()\n{step}.step()",
            ("zero_grad", "step"),
        )
    if len(skipped) and bool((skipped.low == 1).all()):
        return Reason(
            "the gradient scaler skips every update",
            "Every gradient overflows in half precision, so the scaler drops every step.",
            "Look at the loss's size, start from a smaller scale, or use bfloat16, which needs no scaler.",
            "with torch.autocast(device_type, dtype=torch.bfloat16):",
        )
    if gradientless:
        return Reason(
            "every gradient is zero when the optimizer steps",
            "Backward runs, but what reaches the parameters is exactly zero.",
            "Look at what lies between the parameters and the loss: a dead activation, a cleared gradient, a constant.",
            "print([p.grad.norm() for p in model.parameters() if p.grad is not None])",
        )
    return Reason(
        "the optimizer steps, but every parameter stays bit for bit the same",
        "Updates are made and none of them changes a single bit of the parameters that the optimizer holds.",
        "Check that the gradients belong to the tensors that the optimizer holds, and that the rate is not tiny.",
        f'print({step}.param_groups[0]["lr"], [p.grad is None for p in {step}.param_groups[0]["params"]])',
    )


def _cleared_before_step(order: OrderFact) -> bool:
    """zero_grad came after the last backward and before the step."""
    calls = order.calls[: order.calls.index("step")] if "step" in order.calls else order.calls
    if order.closure or "backward" not in calls:
        return False
    return "zero_grad" in calls[len(calls) - list(reversed(calls)).index("backward") :]


def _never_stepped(run: Run, phase: PhaseFact) -> Finding:
    optimizer = next(iter(run.optimizers.values()))
    site = call_site(run, "backward")
    computed = f"{phase.backwards} backwards" if phase.backwards else f"{phase.passes_unknown} passes, 0 backwards"
    reason = Reason(
        f"optimizer.step() is never called ({computed}, 0 updates)",
        f"An optimizer ({optimizer.type}) was built and losses are computed, but it is never asked to make a step.",
        "Call backward on the loss, then step.",
        (f"{site.code}\n" if site and site.code else "loss.backward()\n") + "optimizer.step()",
        ("backward",),
    )
    return _finding(run, phase, 0, reason)


def _finding(run: Run, phase: PhaseFact, still: int, reason: Reason) -> Finding:
    evidence = [Evidence(f"{phase.backwards} backwards, {phase.updates} updates", value=float(phase.updates))]
    if still:
        text = f"all {still} parameters that the optimizer holds are bit for bit what they were at the start"
        evidence.append(Evidence(text, value=0.0))
    rates = [curves.greatest(run.scalar(LEARNING_RATE, k).high) for k in run.keys(LEARNING_RATE)]
    rates = [rate for rate in rates if math.isfinite(rate)]
    if rates:
        evidence.append(Evidence(f"largest learning rate seen: {max(rates):g}", LEARNING_RATE.name, max(rates)))
    loss = loss_curve(run)
    if loss is not None and len(loss.curve):
        evidence.append(Evidence(f"the loss stays around {loss.end:.4g}", spark=loss.spark))
    built: list[OptimizerFact] = list(run.optimizers.values())
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.99,
        proof=Proof.STRUCTURE,
        title=f"no parameter is updated: {reason.title}",
        summary=f"{reason.text} The model at the end is the model at the start.",
        where=known(*call_places(run, *reason.calls), *(Place(file=o.file, line=o.line) for o in built)),
        first_step=0,
        last_step=phase.updates,
        evidence=evidence,
        fix=Fix(reason.fix, reason.code),
        symptoms=("flat-from-start", "stuck-at-chance"),
    )
