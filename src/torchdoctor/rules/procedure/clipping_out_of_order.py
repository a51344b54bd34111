"""Gradients are clipped at the wrong moment, or the wrong ones are.

## What it means
Clipping only protects an update if it stands between the last backward and the step, on the gradients that the step
uses, in their true size. After the step it changes gradients that nobody reads any more; before a scaler has divided
the loss scale out it compares norms that are thousands of times too large with the threshold, so that nearly every
gradient is cut to nothing; on other tensors it does nothing at all.

## Why it happens
The line was added at the end of the loop, or before backward; mixed precision was added later and `unscale_` was
forgotten; the parameters were taken from a generator that an optimizer had already used up, from another model, or
from a copy.

## How it is detected
By state: the norm that clipping saw is, bit for bit or nearly so, the norm that the step before had already applied,
and the applied norms exceed the threshold freely; or clipping sees a norm of zero while the applied gradients are not
zero. The order of calls must agree with it. Clipping before unscaling is read from the order (clip, then unscale, then
step) with a scale above one.

## How to fix it
`loss.backward()`, then `clip_grad_norm_(model.parameters(), max_norm)`, then `optimizer.step()`. With a scaler:
`scaler.scale(loss).backward(); scaler.unscale_(optimizer); clip_grad_norm_(...); scaler.step(optimizer)`.

## Known false alarms
Several optimizers that are clipped and stepped in turn are only judged by a norm of zero. Clipping a part of the
parameters on purpose leaves the norm above the threshold and is not reported. A scaler that is switched off, or whose
scale is one, makes the order meaningless, and nothing is reported.

## References
PyTorch documentation, torch.nn.utils.clip_grad_norm_; "Automatic Mixed Precision examples", gradient clipping.
Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import ClipFact, OrderFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.curves import figure
from torchdoctor.rules.places import call_places, known, receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import CLIP_NORM, GRADIENT_GLOBAL_L2, SCALE

RULE = Rule(
    code="T011",
    name="clipping-out-of-order",
    family="procedure",
    needs=(ClipFact, OrderFact),
    explains=(
        "clipping-too-tight",
        "clipping-by-value",
        "exploding-gradients",
        "vanishing-gradients",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "learning-rate-oscillation",
        "nonfinite-parameters",
        "half-precision-overflow",
        "half-precision-underflow",
        "weight-norm-growth",
        "dead-relu",
    ),
)

LEAST_LOOKS = 3
SLACK = 1.001
"""Norms are summed in different orders by clipping and by the look."""


@dataclass(frozen=True)
class Reason:
    title: str
    summary: str
    fix: Fix
    evidence: tuple[Evidence, ...]
    severity: Severity = Severity.ERROR


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    orders = [f.calls for f in run.facts(OrderFact) if not f.closure and "backward" in f.calls]
    clips = [f for f in run.facts(ClipFact) if math.isfinite(f.threshold)]  # at infinity it measures the norm
    if not clips:
        return
    reason = _before_unscaling(run, orders) or _nothing_clipped(run) or _useless(run, orders, clips)
    if reason is not None:
        yield _finding(run, clips, reason)
        return
    clipped = [calls for calls in orders if "clip" in calls]
    if clipped and len(run.optimizers) == 1 and all(map(_in_order, clipped)):
        yield RuledOut(RULE.name, "gradients are clipped between backward and step")


def _in_order(calls: Sequence[str]) -> bool:
    """The last clip comes after the last backward and before the step."""
    return "clip" in calls and _last(calls, "clip") > _last(calls, "backward")


def _last(calls: Sequence[str], name: str) -> int:
    return len(calls) - 1 - list(reversed(calls)).index(name)


def _before_unscaling(run: Run, orders: list[list[str]]) -> Reason | None:
    scale = run.scalar(SCALE)
    if not len(scale) or not curves.greatest(scale.high) > 1:
        return None
    scaled = [c for c in orders if "clip" in c and "unscale" in c]
    wrong = [c for c in scaled if c.index("clip") < c.index("unscale") and c.index("clip") > c.index("backward")]
    if not wrong or len(wrong) < len(scaled):
        return None
    size, step = curves.greatest(scale.high), receiver(run, "step", "optimizer")
    norms = run.scalar(CLIP_NORM)
    seen = f"; clipping saw norms around {figure(curves.median(norms.values))}" if len(norms) else ""
    return Reason(
        "gradients are clipped before they are unscaled",
        f"The gradients still carry the loss scale ({figure(size)}) when they are compared with the threshold, so "
        "they are cut to a tiny fraction of what was meant.",
        Fix("Unscale before clipping.", f"scaler.unscale_({step})"),
        (Evidence(f"order of calls: {' '.join(wrong[0])}; scale {figure(size)}{seen}", SCALE.name, size, 1.0),),
    )


def _nothing_clipped(run: Run) -> Reason | None:
    """Clipping always sees a norm of zero, and the gradients are not zero."""
    norms = run.scalar(CLIP_NORM)
    applied = [run.scalar(GRADIENT_GLOBAL_L2, key) for key in run.keys(GRADIENT_GLOBAL_L2)]
    largest = max((float(np.max(t.high, initial=0.0, where=~np.isnan(t.high))) for t in applied), default=0.0)
    if len(norms) * norms.merged < LEAST_LOOKS or np.any(norms.high != 0) or not largest > 0:
        return None
    return Reason(
        "clipping acts on nothing: it always sees a norm of zero",
        "The tensors that are clipped have no gradients: a generator of parameters that was already used up, another "
        "model, a copy, or gradients that are computed only afterwards.",
        Fix(
            "Ask the model that is trained for its parameters, each time, after backward.",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
        ),
        (
            Evidence(
                f"clipping saw a norm of 0 on all of {len(norms) * norms.merged} calls, the gradients applied reach "
                f"{figure(largest)}",
                CLIP_NORM.name,
                0.0,
                largest,
            ),
        ),
    )


def _useless(run: Run, orders: list[list[str]], clips: list[ClipFact]) -> Reason | None:
    """Every clip comes after the step that it was meant for, or before the backward."""
    clipping = [c for c in orders if "clip" in c]
    if len(run.optimizers) != 1 or not clipping or any(_in_order(c) for c in clipping):
        return None
    if not all(c.after_step for c in clips):
        return None
    threshold = min(c.threshold for c in clips)
    applied = run.scalar(GRADIENT_GLOBAL_L2)
    beyond = float(np.mean(applied.high > SLACK * threshold)) if len(applied) else 0.0
    evidence = [Evidence(f"order of calls: {' '.join(clipping[-1])}")]
    repeated = _repeats(run.scalar(CLIP_NORM), applied)
    if repeated:
        text = f"on {repeated} looks the norm that was clipped is the one that the step before had already applied"
        evidence.append(Evidence(text, CLIP_NORM.name, float(repeated), 1.0))
    if clips[-1].how == "norm" and beyond > 0:
        text = f"{beyond:.0%} of the gradients applied exceed the threshold of {figure(threshold)}"
        evidence.append(Evidence(text, GRADIENT_GLOBAL_L2.name, curves.greatest(applied.high), threshold))
    function = "clip_grad_norm_" if clips[-1].how == "norm" else "clip_grad_value_"
    step = receiver(run, "step", "optimizer")
    return Reason(
        "gradients are clipped where it has no effect: not between backward and step",
        "The clipped gradients are those of an update that was already made (or are overwritten by the next backward), "
        "so nothing is ever limited.",
        Fix(
            "Move the clipping between backward and step.",
            f"torch.nn.utils.{function}(model.parameters(), {threshold:g})\n{step}.step()",
        ),
        tuple(evidence),
    )


def _repeats(norms: Trace, applied: Trace) -> int:
    """Looks at which clipping saw the norm that was applied one step earlier."""
    before = dict(zip(applied.first().steps.tolist(), applied.first().values.tolist(), strict=True))
    first = norms.first()
    pairs = [
        (value, before.get(step - 1)) for step, value in zip(first.steps.tolist(), first.values.tolist(), strict=True)
    ]
    return sum(old is not None and old > 0 and abs(value - old) < 1e-3 * old for value, old in pairs)


def _finding(run: Run, clips: list[ClipFact], reason: Reason) -> Finding:
    places = [Place(file=c.file, line=c.line) for c in clips if c.file]
    return RULE.finding(
        severity=reason.severity,
        confidence=0.96,
        proof=Proof.STRUCTURE,
        title=reason.title,
        summary=reason.summary,
        where=known(*places, *call_places(run, "step")),
        first_step=0,
        evidence=reason.evidence,
        fix=reason.fix,
        symptoms=("diverging", "spikes")
        if "effect" in reason.title or "nothing" in reason.title
        else ("slow-descent",),
    )
