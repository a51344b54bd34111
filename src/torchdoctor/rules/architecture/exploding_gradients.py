"""Gradients grow by orders of magnitude with depth, along a sequence, or all at once in training.

## What it means
Backpropagation multiplies the gradient by every layer's (or time step's) derivative. If these factors are above one,
the product grows exponentially. One such gradient throws the weights far away from anything useful; a few more, and
the loss is NaN.

## Why it happens
- Recurrent weights with a gain above one and long sequences: the same factor, once per time step.
- Deep stacks without normalisation whose layers amplify a little each.
- No clipping where single batches meet a cliff in the loss surface.

## How it is detected
Either over depth: from the first looks on, the root mean square of the gradient rises by a factor of 1000 or more from
the late layers back to the early ones, in the order of depth and spread over the layers, and training is harmed (the
loss does not fall, turns non-finite, or an update is larger than the weights). The first look alone is enough where
nearly every layer has more than the one behind it: behind a normalisation the first updates inflate the weights, which
shrinks their gradients and hides the rise from all later looks. Or the signal itself grows a hundredfold and more over
eight and more layers of usual weights without normalisation, as in a stack of residual blocks: then every layer's
gradient is as much too large, and the loss climbs or turns non-finite. Or over time steps, in recurrent models: at the
first look a change of the recurrent weights by one percent would change the loss by its own size or more (norm of
gradient times norm of weight over loss, a number without units that is 1 to 10 in nets that train), nothing clips the
gradient, and the loss climbs, turns non-finite, or (without gates) loses less than a fifth of its start. Or over
training, in recurrent models: the gradient norm jumps to a hundred times its own history, unclipped, after updates that
were small (so the learning rate was not to blame), and the loss is worse afterwards. Or within one pass: in a step that
was run again with every operation checked, the first infinity was made by an operation on its own result (the same line
again and again, a cumulative product, a power), after losses of usual size. Jumps in other models are left to the rules
on learning rate and data, and gates that the first weights pin already, in a run that learned little, to
saturated-activations.

## How to fix it
Clip the gradient norm before the step. For sequences: truncate backpropagation, use an LSTM or GRU, start the recurrent
matrix orthogonal. For depth: normalisation, skip connections, an initialisation that keeps the scale (Kaiming, Xavier).

## Known false alarms
A single corrupt batch can look like an explosion in a recurrent model; look at the samples of that step as well.

## References
Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013.
Bengio, Simard, Frasconi, "Learning long-term dependencies with gradient descent is difficult", 1994.
Poole et al., "Exponential expressivity in deep neural networks through transient chaos", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity
from torchdoctor.rules import baseline, curves, movement
from torchdoctor.rules.architecture import gates, overflow
from torchdoctor.rules.architecture.depth import Layer, Profile, hidden, is_recurrent, profile, stacks
from torchdoctor.rules.architecture.recurrence import applications, unrolled
from torchdoctor.rules.loss_curve import broken_at, loss_curve
from torchdoctor.rules.places import call_places, receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import (
    ACTIVATION,
    CLIP_NORM,
    CLIP_THRESHOLD,
    GRADIENT_GLOBAL_L2,
    GRADIENT_L2,
    UPDATE_RATIO,
    WEIGHT_L2,
)

RULE = Rule(
    code="A002",
    name="exploding-gradients",
    family="architecture",
    needs=(GRADIENT_L2,),
    explains=(
        "nonfinite-parameters",
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "dead-relu",
        "saturated-activations",
        "clipping-too-tight",
        "log-of-zero",
        "division-by-zero",
        "exp-overflow",
        "half-precision-overflow",
        "loss-scale-collapse",
        "weight-norm-growth",
        "abnormal-distribution",
        "bad-initialization-scale",
    ),
)

RISE = 1e3
"""Early over late gradient. Convolutions see many positions, so a factor of 30 towards the input is usual."""
ORDER = -0.8
STRICT_ORDER = -0.95
"""For a single look, which has nothing to average: nearly every layer has to have more than the one behind it."""
MIN_HIDDEN = 4
EARLY_LOOKS = 10
"""Before training has changed the picture, or ended it."""
JUMP = 100.0
"""Over the median of all looks before. Healthy recurrent nets scatter within a factor of 10 (Pascanu et al., 2013)."""
MIN_HISTORY = 8
CALM = 0.05
"""Relative update before the jump: a twentieth of the weights a step is already fast, above it the rate is suspect."""
WORSE = 1.2
GROWN = 100.0
"""Spread of the last quarter's outputs over the first quarter's."""
SENSITIVE = 100.0
"""Norm of gradient times norm of weight over loss: the loss changes by this many percent for one percent of weight."""
GATED = (*gates.GATED, "LSTMCell", "GRUCell")
LITTLE, STUCK, LONG_ENOUGH = 0.2, 0.8, 100
"""Share of the first loss that is gone, below which a steep start has done harm, where the loss of a constant guess is
known and not left behind after so many steps."""
SHARE_OF_WEIGHTS = 1.0
"""An update as large as the weights it changes."""
DEEP = 8
"""Weight matrices on top of each other from which on growth is a matter of depth."""
USUAL_GAIN = 2.0
"""Root mean square weight times sqrt(fan_in): no usual start exceeds 1.7, so no layer by itself is too large."""


@dataclass(frozen=True)
class Jump:
    step: int
    norm: float
    usual: float
    norms: curves.Curve


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    found, held = False, gates.hold_back(run)
    for layers in stacks(run):
        rise = rising(run, layers)
        if rise is not None and (harm := _harm(run, rise)):
            found = True
            yield _over_depth(run, rise, harm)
            continue
        grown = growth(run, layers)
        if grown is not None and (harm := _climb(run)):
            found = True
            yield _over_blocks(layers, grown, harm)
            continue
        recurrent = tuple(layer for layer in layers if is_recurrent(layer)) or unrolled(run, layers)
        if held is not None and any(layer.module == held[0] for layer in recurrent):
            found = True
            continue
        steep = sensitivity(run, recurrent)
        if steep is not None and steep[1] >= SENSITIVE and (harm := _climb(run) or _standstill(run, steep[0])):
            found = True
            yield _over_time(run, *steep, harm)
            continue
        jump = _jump(run) if recurrent else None
        if jump is not None and (harm := _harm_after(run, jump.step)):
            found = True
            yield _over_training(run, recurrent, jump, harm)
    steep = None if found else sensitivity(run, _loose(run))
    if steep is not None and steep[1] >= SENSITIVE and (harm := _climb(run) or _standstill(run, steep[0])):
        found = True
        yield _over_time(run, *steep, harm)
    grown_at_once = None if found else overflow.within_one_pass(run)
    if grown_at_once is not None:
        yield overflow.finding(run, RULE, *grown_at_once)
    elif not found and broken_at(run) is None:
        norms = _norms(run)
        if len(norms) >= MIN_HISTORY and norms.broke_at is None:
            ratio = float(norms.values.max() / max(np.median(norms.values), 1e-30))
            if 1 <= ratio < JUMP / 10:
                signal = CLIP_NORM if len(run.scalar(CLIP_NORM)) else GRADIENT_GLOBAL_L2
                text = f"the largest gradient norm is {ratio:.1f} times the median"
                yield RuledOut(RULE.name, text, signal.name, ratio)


def rising(run: Run, layers: tuple[Layer, ...]) -> Profile | None:
    """The hidden layers' gradients where they grow towards the input, else None."""
    until = broken_at(run)
    found = profile(run.matrix(GRADIENT_L2), layers, None if until is None else max(until, 1), EARLY_LOOKS)
    if found is None or len(found) < MIN_HIDDEN + 1:
        return None
    inner = hidden(found)
    if 0 < inner.fall <= 1 / RISE and inner.order <= ORDER and inner.gradual:
        return inner
    untouched = profile(run.matrix(GRADIENT_L2), layers, None, 1)
    if untouched is None or len(untouched) < MIN_HIDDEN + 1:
        return None
    inner = hidden(untouched)
    return inner if _trend(inner) >= RISE and inner.order <= STRICT_ORDER and inner.gradual else None


def _trend(inner: Profile) -> float:
    """First over last layer on the line through the logarithms."""
    if not np.all(np.isfinite(inner.values) & (inner.values > 0)):
        return 0.0
    depth = np.arange(len(inner))
    return float(np.exp(min(-np.polyfit(depth, np.log(inner.values), 1)[0] * (len(inner) - 1), 700.0)))


def _harm(run: Run, rise: Profile) -> str | None:
    broke, loss = broken_at(run), loss_curve(run)
    if broke is not None:
        return f"the loss or the weights are no longer finite from step {broke} on"
    if loss is not None and loss.stuck:
        return f"the loss does not fall ({curves.figure(loss.begin)} to {curves.figure(loss.end)})"
    trace = run.matrix(UPDATE_RATIO)
    if not len(trace):
        return None
    updates = trace.select([layer.name for layer in rise.layers]).first(EARLY_LOOKS).values
    largest = float(np.max(updates[np.isfinite(updates)], initial=0.0))
    if largest >= SHARE_OF_WEIGHTS:
        return f"an update changes a layer by {largest:.1f} times its own size"
    return None


def growth(run: Run, layers: tuple[Layer, ...]) -> Profile | None:
    """Spread of the layers' outputs at the first look, where it grows from layer to layer though no layer is large."""
    spread, weights = run.matrix(ACTIVATION["std"]).first(1), run.matrix(WEIGHT_L2).first(1)
    if any("Norm" in p.module_type for p in run.parameters.values()) or not len(spread) or not len(weights):
        return None
    inner = tuple(x for x in layers[:-1] if x.module in spread.columns and x.name in weights.columns)
    if len(inner) < DEEP:
        return None
    gains = [float(weights.column(x.name).values[0]) / math.sqrt(x.units) for x in inner]
    values = np.array([float(spread.column(x.module).values[0]) for x in inner])
    seen = Profile(inner, values)
    grows = np.isfinite(values).all() and seen.fall >= GROWN and seen.order >= -ORDER and seen.gradual
    return seen if grows and max(gains) <= USUAL_GAIN else None


def _loose(run: Run) -> tuple[Layer, ...]:
    """The cell where a script applies layers that no model of its own holds together, but one optimizer does."""
    parts = stacks(run)
    if len(parts) < 2 or len(run.optimizers) != 1:
        return ()
    return unrolled(run, tuple(layer for part in parts for layer in part), applications(run))


def sensitivity(run: Run, recurrent: tuple[Layer, ...]) -> tuple[Layer, float] | None:
    """The recurrent matrix whose change moves the loss most at the first look, where nothing clips."""
    gradients, weights, loss = run.matrix(GRADIENT_L2).first(1), run.matrix(WEIGHT_L2).first(1), loss_curve(run)
    if not len(gradients) or not len(weights) or loss is None or not len(loss.curve) or clips_by_norm(run):
        return None
    start = abs(float(loss.curve.values[0]))
    both = [layer for layer in recurrent if layer.name in gradients.columns and layer.name in weights.columns]
    measured = [
        (layer, float(gradients.column(layer.name).values[0]) * float(weights.column(layer.name).values[0]) / start)
        for layer in both
        if start > 0
    ]
    return max(measured, key=lambda pair: pair[1], default=None)


def _climb(run: Run) -> str | None:
    broke, loss = broken_at(run), loss_curve(run)
    if broke is not None:
        return f"the loss or the weights are no longer finite from step {broke} on"
    if loss is not None and loss.end > WORSE * loss.curve.values[0] > 0:
        return f"the loss climbs from {curves.figure(float(loss.curve.values[0]))} to {curves.figure(loss.end)}"
    return None


def _standstill(run: Run, layer: Layer) -> str | None:
    """Gates that stand still at a steep start are saturated; that is another finding."""
    loss, guess = loss_curve(run), baseline.chance(run)
    if loss is None or guess is None or run.steps < LONG_ENOUGH or layer.module_type in GATED:
        return None
    if loss.fell < LITTLE and loss.end >= STUCK * guess:
        return f"the loss hardly falls ({curves.figure(loss.begin)} to {curves.figure(loss.end)})"
    return None


def clips_by_norm(run: Run) -> bool:
    """Return whether gradients are cut at a finite norm: a threshold of infinity only measures it."""
    thresholds = [run.scalar(CLIP_THRESHOLD, key).values for key in run.keys(CLIP_THRESHOLD)]
    return any(np.isfinite(values).any() for values in thresholds) if thresholds else run.has(CLIP_NORM)


def _norms(run: Run) -> curves.Curve:
    """Norm before clipping where it is known, else of the gradient as applied."""
    keys = run.keys(GRADIENT_GLOBAL_L2)
    clip = curves.read(run.scalar(CLIP_NORM))
    if len(clip) or clip.broke_at is not None:
        return clip
    return (
        curves.read(run.scalar(GRADIENT_GLOBAL_L2, keys[0])) if len(keys) == 1 else curves.read(run.scalar(CLIP_NORM))
    )


def _jump(run: Run) -> Jump | None:
    """The first look whose norm stands far above all history and was applied unclipped."""
    if clips_by_norm(run):
        return None
    norms = _norms(run)
    values = norms.values
    for i in range(MIN_HISTORY, len(values)):
        usual = float(np.median(values[:i]))
        if values[i] >= JUMP * usual > 0 and _was_calm(run, int(norms.steps[i])):
            return Jump(int(norms.steps[i]), float(values[i]), usual, norms)
    broke = _overflowed_at(run)
    if broke is not None and int((norms.steps < broke).sum()) >= MIN_HISTORY and _was_calm(run, broke):
        return Jump(broke, float("inf"), float(np.median(values[norms.steps < broke])), norms)
    return None


def _overflowed_at(run: Run) -> int | None:
    """The first look whose norm is infinite. NaN has other causes, too: a batch with NaN in it, the root of zero."""
    keys = run.keys(GRADIENT_GLOBAL_L2)
    trace = run.scalar(GRADIENT_GLOBAL_L2, keys[0]) if len(keys) == 1 else Trace.empty()
    rows = np.flatnonzero(np.isinf(trace.high))
    return int(trace.steps[rows[0]]) if len(rows) else None


def _was_calm(run: Run, step: int) -> bool:
    moved = movement.read(run)
    if moved is None:
        return False
    before = moved.until(step - 1).middle_S
    before = before[np.isfinite(before)]
    return bool(len(before)) and float(np.median(before)) < CALM


def _harm_after(run: Run, step: int) -> str | None:
    broke, loss = broken_at(run), loss_curve(run)
    if broke is not None and broke >= step:
        return f"the loss or the weights are no longer finite from step {broke} on"
    if loss is None:
        return None
    before = loss.curve.values[loss.curve.steps < step][-50:]
    after = loss.curve.values[loss.curve.steps > step][:50]
    if len(before) >= 3 and len(after) >= 3 and np.median(after) > WORSE * np.median(before) > 0:
        return f"the loss went from {np.median(before):.3g} before the jump to {np.median(after):.3g} after it"
    return None


def _over_depth(run: Run, rise: Profile, harm: str) -> Finding:
    first, last = rise.layers[0], rise.layers[-1]
    factor = float(rise.values[0] / rise.values[-1]) if rise.values[-1] > 0 else 1 / rise.fall
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.88,
        title=f"gradients grow by a factor of {curves.figure(factor)} from {last.name} back to {first.name}",
        summary=f"Each of {len(rise)} layers amplifies the gradient on its way back, so the first ones get updates "
        "that tear them apart.",
        where=[Place(module=layer.module, parameter=layer.name) for layer in rise.layers[:2]],
        evidence=[
            Evidence(
                f"gradient of {first.name} (root mean square): {rise.values[0]:.1e}; "
                f"of {last.name}: {rise.values[-1]:.1e}",
                GRADIENT_L2.name,
                factor,
                RISE,
                spark=tuple(float(v) for v in np.log10(np.maximum(rise.values, 1e-45))),
            ),
            Evidence(harm),
        ],
        fix=Fix(
            "Start the layers so that they keep the scale, and add normalisation; clip until that is done.",
            "nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')\n"
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)",
        ),
        symptoms=("diverging", "nan-later"),
    )


def _over_blocks(layers: tuple[Layer, ...], grown: Profile, harm: str) -> Finding:
    first, last = grown.layers[0], grown.layers[-1]
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.93,
        title=f"signal and gradients grow by a factor of {curves.figure(grown.fall)} over {len(layers)} layers without "
        "normalisation",
        summary="No layer is too large by itself, but each block adds to what it gets and nothing brings the scale "
        "back, so the gradients are as much too large and no ordinary learning rate survives them.",
        where=[Place(module=layer.module, parameter=layer.name) for layer in (last, first)],
        first_step=0,
        evidence=[
            Evidence(
                f"spread of the output of {first.module}: {curves.figure(float(grown.values[0]))}; of {last.module}: "
                f"{curves.figure(float(grown.values[-1]))}",
                ACTIVATION["std"].name,
                grown.fall,
                GROWN,
                spark=tuple(float(v) for v in np.log10(np.maximum(grown.values, 1e-45))),
            ),
            Evidence(harm),
        ],
        fix=Fix(
            "Normalise what goes into each block, or let each block start as nothing; clip until that is done.",
            "x = x + self.block(self.norm(x))  # self.norm = nn.LayerNorm(width)",
        ),
        symptoms=("diverging", "nan-later"),
    )


def _over_time(run: Run, layer: Layer, sensitivity: float, harm: str) -> Finding:
    step = receiver(run, "step", "optimizer")
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.85,
        title=f"the gradient explodes over the time steps of {layer.module or layer.name}, and nothing clips it",
        summary="The recurrent weights are applied once per time step, the gradient is multiplied by them as often, "
        "and it comes out so large that no ordinary learning rate survives it.",
        where=[Place(module=layer.module, parameter=layer.name), *call_places(run, "step")],
        first_step=0,
        evidence=[
            Evidence(
                f"a change of {layer.name} by 1 % would change the loss by {curves.figure(sensitivity)} % of itself, "
                "at the first look",
                GRADIENT_L2.name,
                sensitivity,
                SENSITIVE,
            ),
            Evidence(harm),
        ],
        fix=Fix(
            "Clip the gradient norm before the step; a GRU or LSTM, or shorter sequences, help as well.",
            f"torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\n{step}.step()",
        ),
        symptoms=("nan-later", "diverging"),
    )


def _over_training(run: Run, recurrent: tuple[Layer, ...], jump: Jump, harm: str) -> Finding:
    step = receiver(run, "step", "optimizer")
    bound = curves.figure(2 * jump.usual)
    size = (
        "overflowed" if not np.isfinite(jump.norm) else f"jumped to {jump.norm / jump.usual:.0f} times its usual size"
    )
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.85,
        title=f"the gradient {size} at step {jump.step}, and nothing clipped it",
        summary=f"In a recurrent model ({recurrent[0].module or recurrent[0].module_type}) the gradient grew over the "
        "time steps until one update threw the weights off.",
        where=[
            *(Place(module=layer.module, parameter=layer.name) for layer in recurrent[:1]),
            *call_places(run, "step"),
        ],
        first_step=jump.step,
        evidence=[
            Evidence(
                f"gradient norm at step {jump.step}: {curves.figure(jump.norm)}, median before it: "
                f"{curves.figure(jump.usual)}",
                GRADIENT_GLOBAL_L2.name,
                jump.norm / jump.usual,
                JUMP,
                spark=curves.spark(np.log10(np.maximum(jump.norms.values, 1e-30))),
            ),
            Evidence("the updates before it were small, so the learning rate alone does not explain it"),
            Evidence(harm),
        ],
        fix=Fix(
            "Clip the gradient norm before the step, somewhat above its usual size.",
            f"torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm={bound})\n{step}.step()",
        ),
        symptoms=("nan-later", "diverging", "spikes"),
    )
