"""Initial weights are so large or so small that the first loss, or the signal behind it, is far off.

## What it means
A fresh classifier knows nothing, so its first loss should be about ln(C) for C classes; a fresh regression should be
about as wrong as predicting zero. A first loss many times higher means that the model starts out sure of random
answers: training spends its first steps, and often much more, on undoing that, or diverges. Weights that start too
small do the reverse: the signal fades from layer to layer until the output no longer depends on the input, and with it
the gradient.

## Why it happens
`torch.randn` or `nn.init.normal_` with its default spread of 1 instead of 1/sqrt(fan_in); a gain applied twice; a token
embedding (spread 1) tied to the output layer; a spread copied from another architecture.

## How it is detected
Too large: the first training loss of cross-entropy, binary cross-entropy, squared or absolute error is compared with
what chance gives (ln C, ln 2, the targets' own size). It has to be at least three times that (ten times for regression,
whose scale is looser), or not finite though the inputs are, and at least one layer has to have a gain (root mean square
weight times sqrt(fan_in)) of 4 or more, where the usual initialisations have 0.6 to 1.7, or the layers together have
to amplify the signal a hundredfold. A high first loss with normal weights comes from elsewhere: inputs, targets, or a
compound loss. Too small: half of the layers have a gain of 0.2 or less, the product of all gains is below 1e-4 in a
model without normalisation, and the loss does not leave its first level for the first fifth of the run.

## How to fix it
Leave PyTorch's default initialisation, or use `kaiming_normal_` (ReLU) or `xavier_uniform_` (tanh, linear); for
transformers a normal with spread 0.02. Start the output layer small.

## Known false alarms
Fine-tuned models start below chance, which is fine. Losses with a scale of their own (a sum over pixels, a weighted
compound) are compared only where the loss call itself shows that its scores are far off.

## References
Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
He et al., "Delving deep into rectifiers", 2015.
Karpathy, "A recipe for training neural networks", 2019 ("verify loss at init").
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from torchdoctor.facts import TRAIN, GraphFact, LossCallFact, ModuleFact, NonfiniteFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.architecture.depth import EMBEDDINGS, Layer, initializer, stacks
from torchdoctor.rules.loss_curve import broken_at, first_loss, loss_curve, loss_keys
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACTIVATION, LOSS_TRAIN, TARGET_MEAN, TARGET_STD, WEIGHT_L2, Signal

RULE = Rule(
    code="A006",
    name="bad-initialization-scale",
    family="architecture",
    needs=(LOSS_TRAIN, WEIGHT_L2),
    explains=(
        "vanishing-gradients",
        "exploding-gradients",
        "dead-relu",
        "nonfinite-parameters",
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "learning-rate-too-low",
        "clipping-too-tight",
        "plateau-or-saddle",
        "missing-warmup",
        "weight-norm-growth",
    ),
)

LOUD = 4.0
"""Gain (root mean square weight times sqrt(fan_in)). PyTorch's default is 0.58, Xavier 1, tanh 1.67, Kaiming 1.41."""
CLASSIFICATION, REGRESSION = 3.0, 10.0
"""First loss over chance. Usual initialisations give 1.0 to 1.5 for classification."""
AMPLIFIED = 100.0
"""Spread of the last layer's output over the first one's: layers that each amplify a little, one after the other."""
QUIET = 1e-4
"""Product of the gains: a signal of one arrives at the output as a ten-thousandth, below the biases' noise."""
FAINT = 0.2
"""Gain of the layer in the middle: a third of PyTorch's default. A signal that fades at usual gains fades by depth."""
QUIET_LAYERS = 2
WAITING = 0.2
"""Share of the run after which a loss that has not moved is waiting for the weights to grow."""
NORMS = ("Norm",)


@dataclass(frozen=True)
class Chance:
    """What the first loss should be, and why."""

    loss: float
    ratio: float
    text: str


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    keys = loss_keys(run)
    if len(keys) != 1 or (start := first_loss(run, keys[0])) is None:
        return
    _, loss = start
    gains = layer_gains(run)
    loud = [(layer, gain) for layer, gain in gains if gain >= LOUD]
    grown = amplification(run)
    amplified = gains if not loud and grown is not None and grown[1] >= AMPLIFIED * grown[0] else loud
    chance = _chance(run)
    if not math.isfinite(loss):
        if amplified and not any(f.role in ("input", "target") for f in run.facts(NonfiniteFact)):
            yield _too_large(run, loss, chance, amplified, grown)
        return
    if chance is None:
        return
    if loss >= chance.ratio * chance.loss and amplified and _scores_are_far_off(run, chance):
        yield _too_large(run, loss, chance, amplified, grown)
    elif _fades(run, gains):
        yield _too_small(run, loss, gains)
    elif chance.loss / chance.ratio < loss < chance.ratio * chance.loss:
        text = f"the first loss, {curves.figure(loss)}, is about what chance gives ({chance.text})"
        yield RuledOut(RULE.name, text, LOSS_TRAIN.name, loss)


def layer_gains(run: Run) -> list[tuple[Layer, float]]:
    """Each weight matrix with its gain at the first look, tied embeddings that serve as output layer included."""
    weights = run.matrix(WEIGHT_L2).first(1)
    if not len(weights):
        return []
    outputs = {n for f in run.facts(GraphFact) for node in f.nodes for n in node.get("parameters", ())}
    layers = [layer for stack in stacks(run) for layer in stack]
    for name, fact in run.parameters.items():
        if fact.module_type in EMBEDDINGS and name in outputs:
            layers.append(Layer(name, fact.module, fact.module_type, tuple(fact.shape)))
    found = []
    for layer in layers:
        if layer.name in weights.columns:
            norm = float(weights.column(layer.name).values[0])
            if math.isfinite(norm):
                found.append((layer, norm / math.sqrt(layer.size) * math.sqrt(layer.fan_in)))
    return found


def amplification(run: Run) -> tuple[float, float] | None:
    """Spread of the first and of the last weight layer's output at the first look."""
    spread = run.matrix(ACTIVATION["std"]).first(1)
    with_weights = {p.module for p in run.parameters.values() if len(p.shape) >= 2}
    names = [n for n, m in run.modules.items() if n in with_weights and m.order is not None and n in spread.columns]
    if len(spread) == 0 or len(names) < QUIET_LAYERS + 1:
        return None
    values = spread.select(names).values[0]
    first, last = float(values[0]), float(values[-1])
    return (first, last) if first > 0 and not math.isnan(last) else None


def _first_call(run: Run) -> LossCallFact | None:
    return next((f for f in run.facts(LossCallFact) if f.phase == TRAIN), None)


def _chance(run: Run) -> Chance | None:
    call = _first_call(run)
    functions = {f.function for f in run.facts(LossCallFact) if f.phase == TRAIN}
    if call is None or len(functions) != 1 or call.reduction not in (None, "mean"):
        return None
    if call.function == "cross_entropy" and (call.classes or 0) >= 2:
        return Chance(
            math.log(call.classes or 2), CLASSIFICATION, f"ln {call.classes} = {math.log(call.classes or 2):.2f}"
        )
    if call.function.startswith("binary_cross_entropy") and not call.weighted:
        return Chance(math.log(2), CLASSIFICATION, "ln 2 = 0.69")
    mean, std = _first(run, TARGET_MEAN), _first(run, TARGET_STD)
    if mean is None or std is None or mean**2 + std**2 == 0:
        return None
    if call.function == "mse_loss":
        size = mean**2 + std**2
        return Chance(size, REGRESSION, f"{curves.figure(size)}, the mean square of the targets")
    if call.function in ("l1_loss", "smooth_l1_loss", "huber_loss"):
        size = math.sqrt(mean**2 + std**2)
        return Chance(size, REGRESSION, f"{curves.figure(size)}, the size of the targets")
    return None


def _first(run: Run, signal: Signal) -> float | None:
    trace = run.scalar(signal, TRAIN).first(1)
    return float(trace.values[0]) if len(trace) and math.isfinite(trace.values[0]) else None


def _scores_are_far_off(run: Run, chance: Chance) -> bool:
    """The loss call's own input is wide enough to give such a loss; True where its range is not known."""
    call = _first_call(run)
    if call is None or call.input_low is None or call.input_high is None or chance.ratio == REGRESSION:
        return True
    return call.input_high - call.input_low >= chance.ratio * chance.loss


def _fades(run: Run, gains: list[tuple[Layer, float]]) -> bool:
    loss = loss_curve(run)
    if loss is None or len(gains) < QUIET_LAYERS + 1 or len(loss.curve) < 10:
        return False
    if any(part in f.module_type for f in run.parameters.values() for part in NORMS):
        return False
    small = statistics.median(gain for _, gain in gains) <= FAINT
    product = math.prod(gain for _, gain in gains)
    waited = int(run.steps * WAITING)
    return small and 0 < product < QUIET and abs(loss.fell_until(waited)) < 0.02


def _too_large(
    run: Run,
    loss: float,
    chance: Chance | None,
    loud: list[tuple[Layer, float]],
    grown: tuple[float, float] | None,
) -> Finding:
    gain = max(gain for _, gain in loud)
    curve = loss_curve(run)
    broken = broken_at(run) is not None
    never = chance is not None and curve is not None and not curve.end < chance.loss
    times = loss / chance.loss if chance and math.isfinite(loss) else math.inf
    first = f"the first loss is {curves.figure(loss)}"
    evidence = [
        Evidence(
            f"{first}; chance gives {chance.text}" if chance else first,
            LOSS_TRAIN.name,
            loss if math.isfinite(loss) else None,
            chance.ratio * chance.loss if chance else None,
            spark=curve.spark if curve else (),
        ),
        *(
            Evidence(
                f"{layer.name}: root mean square weight {g / math.sqrt(layer.fan_in):.2g} at fan-in {layer.fan_in}, "
                f"a gain of {g:.1f} where 1 keeps the scale",
                WEIGHT_L2.name,
                g,
                LOUD,
            )
            for layer, g in sorted(loud, key=lambda pair: -pair[1])[:3]
        ),
    ]
    if grown is not None and grown[1] >= AMPLIFIED * grown[0]:
        text = f"the outputs' spread grows from {curves.figure(grown[0])} to {curves.figure(grown[1])} over the layers"
        evidence.append(Evidence(text, ACTIVATION["std"].name, grown[1] / grown[0], AMPLIFIED))
    return RULE.finding(
        severity=Severity.ERROR if broken or never else Severity.WARNING,
        confidence=0.9,
        title=f"initial weights are too large: first loss {curves.figure(loss)}"
        + (f", {times:.0f} times chance" if math.isfinite(times) else ""),
        summary=f"The weights of {len(loud)} layer{'s' * (len(loud) != 1)} start with a gain of up to {gain:.1f}, more "
        "than the depth allows, so the untrained model is already sure of random answers.",
        where=[Place(module=layer.module, parameter=layer.name) for layer, _ in loud[:3]],
        first_step=0,
        evidence=evidence,
        fix=remedy(run, loud),
        symptoms=("nan-at-first-step",) if not math.isfinite(loss) else ("diverging", "slow-descent"),
    )


def _too_small(run: Run, loss: float, gains: list[tuple[Layer, float]]) -> Finding:
    product = math.prod(gain for _, gain in gains)
    worst, gain = min(gains, key=lambda pair: pair[1])
    curve = loss_curve(run)
    stuck = curve is not None and curve.stuck
    return RULE.finding(
        severity=Severity.ERROR if stuck else Severity.WARNING,
        confidence=0.8,
        title=f"initial weights are too small: over {len(gains)} layers the signal fades to {product:.0e}",
        summary="The weights start so small that the output hardly depends on the input, and the gradient that would "
        "make them grow is as small.",
        where=[Place(module=worst.module, parameter=worst.name)],
        first_step=0,
        evidence=[
            Evidence(
                f"product of the layers' gains: {product:.1e}, where 1 keeps the scale", WEIGHT_L2.name, product, QUIET
            ),
            Evidence(f"{worst.name}: gain {gain:.2g} at fan-in {worst.fan_in}", WEIGHT_L2.name, gain),
            Evidence(
                f"the loss stays at {curves.figure(loss)} for the first {WAITING:.0%} of the run",
                LOSS_TRAIN.name,
                loss,
                spark=curve.spark if curve else (),
            ),
        ],
        fix=remedy(run, gains),
        symptoms=("flat-from-start", "slow-descent"),
    )


def remedy(run: Run, layers: list[tuple[Layer, float]]) -> Fix:
    embeddings = {fact.name for fact in run.facts(ModuleFact) if fact.type in EMBEDDINGS}
    tied = [x for x, _ in layers if x.module_type in EMBEDDINGS or x.name.rpartition(".")[0] in embeddings]
    if tied:
        text = "Start the embedding smaller: PyTorch's default is a standard deviation of 1, too large for a head."
        return Fix(text, f"nn.init.normal_({tied[0].reference}, std=0.02)")
    text = "Leave PyTorch's default initialisation, or scale the weights by their fan-in."
    return Fix(text, initializer(run, [x for x, _ in layers]))
