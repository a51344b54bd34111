"""Attention puts all weight on one key from the start, or none on any in particular.

## What it means
Attention weights are a softmax over scores. Where the scores are large, nearly all weight falls on one key and the
softmax passes next to no gradient: which key that is cannot be learned any more. Where they are all alike, every query
gets the same average, and the layer does no more than pooling.

## Why it happens
- The scores are not divided by the square root of the head's width, or multiplied by it.
- Queries and keys are not normalised or started too large; in long trainings their scores grow until the entropy
  collapses, often with a spike of the loss.
- A temperature with the wrong sign or size, or query and key projections that are never trained, keep it uniform.

## How it is detected
On looks the entropy of the attention weights is taken relative to that of uniform weights over the keys that are not
masked. Usual initialisations start above 0.8. It is a warning if half of the attentions start below 0.4 and the loss
has not fallen by half since (below 0.2: by nine tenths); if they start well, fall below 0.05, and the loss makes no
progress from then on; or if an attention stays uniform to five digits throughout a training whose loss has not fallen
by half.

## How to fix it
Divide the scores by `sqrt(head width)`, or let `F.scaled_dot_product_attention` do it; normalise queries and keys
(QK-norm) and warm the learning rate up where scores grow during training.

## Known false alarms
Heads that learn to look at one key are what attention is for: a low entropy that comes while the loss falls is not
reported. Biases that favour near positions lower the entropy from the start; they are reported only if the loss does
not fall. A query projection started at zero is uniform in the beginning only.

## References
Vaswani et al., "Attention is all you need", section 3.2.1 (2017). Zhai et al., "Stabilizing Transformer training by
preventing attention entropy collapse" (2023). Dehghani et al., "Scaling Vision Transformers to 22 billion parameters"
(2023), on normalised queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.loss_curve import LossCurve, broken_at, loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ATTENTION

ENTROPY, LOGIT = ATTENTION["entropy"], ATTENTION["logit"]

RULE = Rule(
    code="A013",
    name="attention-collapse",
    family="architecture",
    needs=(ENTROPY,),
    explains=(
        "vanishing-gradients",
        "exploding-gradients",
        "saturated-activations",
        "bad-initialization-scale",
        "learning-rate-too-low",
        "learning-rate-oscillation",
        "clipping-too-tight",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "overfitting",
        "weight-norm-growth",
        "majority-class-collapse",
        "abnormal-distribution",
    ),
)

SHARP_START = 0.4
"""Relative entropy at the first looks. Default initialisations give above 0.8, those without a scale above 0.5."""
VERY_SHARP = 0.2
"""No bias that favours near positions gets there: the scores themselves are too large by far."""
COLLAPSED = 0.05
FELL = 5.0
"""First entropy over the limit: an attention that began sharp has not collapsed in training."""
UNIFORM = 1 - 1e-5
"""Scores that differ by less than a hundredth. Small fresh models reach 0.9999."""
LEARNED, SOLVED = 0.5, 0.9
"""Share of the loss that is gone: half of it in a model whose attention works, most of it in one that has its task."""
PROGRESS = 0.02
"""Of the loss at the onset: less than that since then is none; chosen to stay above what the choice
of batches moves."""
MIN_LOOKS, MIN_STEPS = 5, 50


@dataclass(frozen=True)
class Layer:
    name: str
    first: float
    end: float
    lowest: float
    onset: int | None
    """the first step from which on it stayed collapsed"""
    trace: Trace


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    trace, until = run.matrix(ENTROPY), broken_at(run)
    if until is not None:
        trace = trace.between(0, until - 1)
    layers = [layer for name in trace.columns if (layer := _layer(name, trace.column(name)))]
    loss = loss_curve(run)
    if not layers or loss is None or run.steps < MIN_STEPS:
        return
    said = _sharp(run, layers, loss) or _collapsed(run, layers, loss) or _uniform(run, layers, loss)
    if said is not None:
        yield said
    elif all(layer.first > SHARP_START and COLLAPSED < layer.end < UNIFORM for layer in layers):
        least = min(layer.end for layer in layers)
        yield RuledOut(RULE.name, f"the entropy of attention stays above {least:.2f}", ENTROPY.name, least)


def _layer(name: str, trace: Trace) -> Layer | None:
    finite = np.isfinite(trace.values)
    steps, values = trace.steps[finite], trace.values[finite]
    if len(values) < MIN_LOOKS:
        return None
    above = np.flatnonzero(values >= COLLAPSED)
    onset = None if len(above) and above[-1] == len(values) - 1 else int(steps[above[-1] + 1 if len(above) else 0])
    end = float(np.median(values[-max(2, len(values) // 4) :]))
    return Layer(name, float(np.median(values[:2])), end, float(values.min()), onset, trace)


def _sharp(run: Run, layers: list[Layer], loss: LossCurve) -> Finding | None:
    sharp = [layer for layer in layers if layer.first < SHARP_START]
    if 2 * len(sharp) < len(layers) or not sharp:
        return None
    learned = loss.fell >= (SOLVED if np.median([layer.first for layer in sharp]) < VERY_SHARP else LEARNED)
    return _finding(
        run,
        sharp,
        loss,
        severity=Severity.INFO if learned else Severity.WARNING,
        title=f"attention looks at a single key from the first step on ({sharp[0].name})",
        summary="The scores are so large from the start that the softmax over them is nearly one or zero everywhere. "
        "It passes hardly any gradient, so where to look cannot be learned.",
        fix=Fix(
            "Divide the scores by the square root of the head's width before the softmax.",
            "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])",
        ),
        threshold=SHARP_START,
        value=min(layer.first for layer in sharp),
    )


def _collapsed(run: Run, layers: list[Layer], loss: LossCurve) -> Finding | None:
    gone = [la for la in layers if la.onset is not None and la.first > FELL * COLLAPSED and la.end < COLLAPSED]
    if 2 * len(gone) < len(layers) or not gone:
        return None
    onset = min(la.onset for la in gone if la.onset is not None)
    before, since = loss.fell_until(onset), loss.fell
    if since - before > PROGRESS or since >= LEARNED + 0.4:
        return None
    return _finding(
        run,
        gone,
        loss,
        severity=Severity.WARNING,
        title=f"the entropy of attention has collapsed since step {onset} ({gone[0].name})",
        summary="The scores have grown until nearly all weight falls on one key, and the loss has made no progress "
        "since.",
        fix=Fix(
            "Normalise queries and keys before their product, lower the rate or warm it up.",
            "q, k = F.normalize(q, dim=-1) * scale, F.normalize(k, dim=-1)  # or nn.RMSNorm on both",
        ),
        threshold=COLLAPSED,
        value=min(layer.end for layer in gone),
        onset=onset,
    )


def _uniform(run: Run, layers: list[Layer], loss: LossCurve) -> Finding | None:
    alike = [layer for layer in layers if layer.lowest >= UNIFORM]
    if not alike or loss.fell >= LEARNED:
        return None
    return _finding(
        run,
        alike,
        loss,
        severity=Severity.WARNING,
        title=f"attention stays uniform: every key gets the same weight ({alike[0].name})",
        summary="The scores of all keys are equal throughout the training, so the layer only averages. Queries and "
        "keys have no influence.",
        fix=Fix(
            "Check the scale of the scores, the dimension of the softmax, and that the query and key projections "
            "get gradients and are in the optimizer.",
            "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])",
        ),
        threshold=UNIFORM,
        value=min(layer.lowest for layer in alike),
    )


def _finding(
    run: Run,
    layers: list[Layer],
    loss: LossCurve,
    *,
    severity: Severity,
    title: str,
    summary: str,
    fix: Fix,
    threshold: float,
    value: float,
    onset: int | None = None,
) -> Finding:
    worst = min(layers, key=lambda layer: layer.end)
    evidence = [
        Evidence(
            f"{worst.name}: entropy relative to uniform weights {worst.first:.3g} at the start, {worst.end:.3g} at the "
            "end (usual at the start: above 0.8)",
            ENTROPY.name,
            value,
            threshold,
            curves.spark(worst.trace.values),
        )
    ]
    logits = run.matrix(LOGIT)
    most = logits.column(worst.name).values if worst.name in logits.columns else np.zeros(0)
    most = most[np.isfinite(most)]
    if len(most):
        evidence.append(Evidence(f"largest score {curves.figure(float(most.max()))}", LOGIT.name, float(most.max())))
    text = f"the loss went from {curves.figure(loss.begin)} to {curves.figure(loss.end)}"
    evidence.append(Evidence(text, value=loss.fell if math.isfinite(loss.fell) else None, spark=loss.spark))
    return RULE.finding(
        severity=severity,
        confidence=0.85,
        title=title,
        summary=summary,
        where=[Place(module=layer.name.removeprefix("attention after ")) for layer in layers[:4]],
        first_step=onset if onset is not None else 0,
        evidence=evidence,
        fix=fix,
        symptoms=("slow-descent", "flat-after-drop") if severity is Severity.WARNING else (),
    )
