"""Regularisation is so strong that the model cannot fit even the training data.

## What it means
Weight decay, dropout and label smoothing are there to keep a model from learning the training samples by heart. Here
they keep it from learning at all: decay pulls the weights to zero as fast as the gradient builds them up, or dropout
leaves too little of each layer for anything to get through. Training and validation are both poor, and training is
often the worse of the two, since only training is disturbed.

## Why it happens
- Weight decay copied between optimizers: 0.1 is usual with AdamW and a small rate, a hundred times too much with SGD.
- `p` of dropout taken for the share to keep: 0.9 then drops nine tenths.
- Several regularisers, each added when the model overfitted, and never taken back.
- A penalty in the loss that is summed over all weights instead of averaged.

## How it is detected
The training loss has stopped far from its floor: in the last part of the run above 30 % of what a constant guess
scores. And one of these: decay makes up at least a seventh of the push on the weights (decay times weight against the
gradient of the loss, or against the measured update where decay is applied apart); dropout of 0.75 and more; dropout
of 0.6 and more with a training loss well above validation; label smoothing of a half and more; weights that have shrunk
to a third of their size and stay there (in a model of two layers or more).

## How to fix it
Switch the regulariser off and see whether the model can fit the training data; then bring it back by and by. Usual:
decay 0.0001 to 0.0005 with SGD, 0.01 to 0.1 with AdamW, dropout 0.1 to 0.5, label smoothing 0.1.

## Known false alarms
A problem that is mostly noise also ends near a constant guess; without strong regularisation it is not reported. Decay
that dominates once the training loss is near zero is harmless and left alone, and so is dropout on inputs that are
redundant, as long as the loss falls.

## References
Krogh and Hertz, "A Simple Weight Decay Can Improve Generalization" (1992). Srivastava et al., "Dropout" (2014).
Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019). Szegedy et al., "Rethinking the Inception
Architecture" (2016), on label smoothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.distributions.gaps import nanmedian
from torchdoctor.facts import DropoutFact, LayersFact, ModesFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import baseline, curves, movement
from torchdoctor.rules.curves import figure
from torchdoctor.rules.loss_curve import LossCurve, loss_curve
from torchdoctor.rules.places import receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import (
    GRADIENT_GLOBAL_L2,
    LEARNING_RATE,
    LOSS_TRAIN,
    LOSS_VALIDATION,
    WEIGHT_DECAY,
    WEIGHT_GLOBAL_L2,
)

RULE = Rule(
    code="H007",
    name="over-regularized",
    family="hyperparameters",
    needs=(LOSS_TRAIN, LEARNING_RATE),
    explains=(
        "underfitting",
        "validation-better-than-training",
        "weight-norm-growth",
        "vanishing-gradients",
        "dead-relu",
        "majority-class-collapse",
        "representation-collapse",
        "capacity-too-low",
        "learning-rate-oscillation",
        "learning-rate-too-low",
        "plateau-or-saddle",
    ),
)

FAR_FROM_FLOOR = 0.3
"""Training loss at the end over that of a constant guess (over its start, where that is not known)."""
SURELY_STUCK = 0.8
"""The same for runs in which only shrinking weights speak for it."""
DECAY_SHARE = 0.15
"""Decay over gradient: where they pull equally hard it is 1; trainings that go well have 0.001 to 0.05."""
SHRUNK = 0.35
"""Norm of all weights at the end over the start."""
STRONG_DROPOUT, DROPOUT = 0.75, 0.6
"""Srivastava et al. found 0.2 to 0.5 best, and 0.6 to 0.8 harmful at a fixed width."""
WORSE_THAN_VALIDATION = 1.3
STRONG_SMOOTHING = 0.5
"""0.1 is usual; from a half on the right class gets less than the rest together."""
LEAST_STEPS = 50
COUPLED = ("SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "ASGD")
"""Optimizers of torch that add decay times weight to the gradient."""


@dataclass(frozen=True)
class Cause:
    """What holds the model back."""

    words: str
    signal: str | None
    value: float
    threshold: float
    fix: str
    code: str
    confidence: float = 0.85


def detect(run: Run) -> Iterator[Finding]:
    loss = loss_curve(run)
    if loss is None or loss.broke_at is not None or len(loss.curve) < LEAST_STEPS or len(run.optimizers) > 1:
        return
    left = remaining(run, loss)
    if left is None:
        return
    causes = [c for c in (_decay(run), _dropout(run, loss), _smoothing(run), _shrinking(run, left)) if c is not None]
    if causes:
        yield _finding(run, loss, left, causes)


def remaining(run: Run, loss: LossCurve) -> float | None:
    """The loss at the end in units of a constant guess, where it is far from its floor and no longer falling fast."""
    values = loss.curve.values
    if values.min() < 0:
        return None
    guess = baseline.chance(run)
    unit = guess if guess is not None else loss.begin
    end = curves.level(curves.read(run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]), closely=False).values, 0.25)
    return end / unit if unit > 0 and end > FAR_FROM_FLOOR * unit else None


def _late(trace: Trace) -> curves.Floats:
    """Finite values of the last half."""
    values = trace.values[trace.steps >= (trace.steps[-1] if len(trace) else 0) / 2]
    return values[np.isfinite(values)].astype(np.float64)


def _typical(trace: Trace) -> float | None:
    values = _late(trace)
    return float(np.median(values)) if len(values) else None


def _decay(run: Run) -> Cause | None:
    """Weight decay that pulls as hard as the gradient."""
    optimizer = next(iter(run.optimizers.values()), None)
    decays = [d for k in run.keys(WEIGHT_DECAY) if (d := _typical(run.scalar(WEIGHT_DECAY, k))) is not None]
    rates = [r for k in run.keys(LEARNING_RATE) if (r := _typical(run.scalar(LEARNING_RATE, k))) is not None]
    if optimizer is None or not decays or not rates or max(decays) <= 0:
        return None
    decay, rate = max(decays), max(rates)
    if optimizer.type in COUPLED:
        weight, gradient = _typical(run.scalar(WEIGHT_GLOBAL_L2)), _typical(run.scalar(GRADIENT_GLOBAL_L2))
        share = decay * weight / gradient if weight is not None and gradient else None
    else:
        moved = movement.read(run)
        late = moved.ratios[moved.steps >= moved.steps[-1] / 2] if moved is not None and moved.measured else np.zeros(0)
        usual = float(nanmedian(late)) if late.size and np.isfinite(late).any() else 0.0
        share = rate * decay / usual if usual > 0 else None
    if share is None or share < DECAY_SHARE:
        return None
    usual_decay = 5e-4 if optimizer.type == "SGD" else 0.01 if optimizer.type == "AdamW" else 1e-4
    if decay <= usual_decay:
        return None  # the gradient has faded, and no decay in common use is to blame
    lower = min(usual_decay, decay / 10)
    return Cause(
        f"weight decay {figure(decay)} pulls at the weights with {share:.2g} times the force of the gradient",
        WEIGHT_DECAY.name,
        share,
        DECAY_SHARE,
        f"Lower weight_decay from {figure(decay)} to about {lower:g}",
        f"for group in {receiver(run, 'step', 'optimizer')}.param_groups: group['weight_decay'] = {lower:g}",
        0.92,
    )


def _dropout(run: Run, loss: LossCurve) -> Cause | None:
    """Dropout that leaves next to nothing, in a model that trains with it."""
    active = {n for f in run.facts(ModesFact) if f.phase == "train" for n in f.dropout_training}
    shares = {n: p for f in run.facts(DropoutFact) for n, p in f.shares.items() if n in active}
    if not shares:
        return None
    name, share = max(shares.items(), key=lambda item: item[1])
    validation = curves.level(curves.read(run.scalar(LOSS_VALIDATION), closely=False).values)
    is_worse = loss.end > WORSE_THAN_VALIDATION * validation if np.isfinite(validation) else False
    if share < (DROPOUT if is_worse else STRONG_DROPOUT):
        return None
    beside = f"; training loss {figure(loss.end)}, validation without it {figure(validation)}" if is_worse else ""
    return Cause(
        f"dropout of {share:g} in {name} ({len([p for p in shares.values() if p >= DROPOUT])} modules){beside}",
        None,
        share,
        DROPOUT if is_worse else STRONG_DROPOUT,
        f"Lower dropout from {share:g} to about 0.2 (p is the share that is dropped, not kept)",
        "for m in model.modules():\n    if isinstance(m, torch.nn.Dropout): m.p = 0.2",
        0.9,
    )


def _smoothing(run: Run) -> Cause | None:
    smoothing = max((c.label_smoothing or 0.0 for c in baseline.loss_calls(run)), default=0.0)
    if smoothing < STRONG_SMOOTHING:
        return None
    return Cause(
        f"label smoothing {smoothing:g}: the target is mostly the same for every class",
        None,
        smoothing,
        STRONG_SMOOTHING,
        f"Lower label_smoothing from {smoothing:g} to 0.1",
        "criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)",
        0.92,
    )


def _is_one_layer(run: Run) -> bool:
    """One layer on data that it cannot tell apart does best with weights of zero: nothing need penalise them."""
    layers = run.last_fact(LayersFact)
    return layers is not None and len(layers.layers) == 1


def _shrinking(run: Run, left: float) -> Cause | None:
    """Weights that melt away while the loss stays where a constant guess stands, whatever penalises them."""
    norms = run.scalar(WEIGHT_GLOBAL_L2)
    finite = norms.values[np.isfinite(norms.values)]
    if len(finite) < 5 or left < SURELY_STUCK or finite[0] <= 0 or _is_one_layer(run):
        return None
    shrunk = float(np.median(finite[-3:]) / finite[0])
    if shrunk > SHRUNK:
        return None
    return Cause(
        f"the weights have shrunk to {shrunk:.0%} of their size",
        WEIGHT_GLOBAL_L2.name,
        shrunk,
        SHRUNK,
        "Weaken whatever penalises the weights (decay, a penalty in the loss)",
        f"for group in {receiver(run, 'step', 'optimizer')}.param_groups: group['weight_decay'] = 0.0",
        0.75,
    )


def _finding(run: Run, loss: LossCurve, left: float, causes: list[Cause]) -> Finding:
    worst = causes[0]
    optimizer = next(iter(run.optimizers.values()), None)
    against = "a constant guess" if baseline.chance(run) is not None else "the start"
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=worst.confidence,
        title=f"Too much regularisation: {worst.words.partition(';')[0]}",
        summary=(
            f"The training loss stays at {figure(loss.end)}, {left:.0%} of {against}, and "
            f"{worst.words}. The model is kept from fitting even the data it is trained on."
        ),
        fix=Fix("; ".join(c.fix for c in causes) + ".", worst.code),
        evidence=[
            Evidence(
                f"training loss at the end is {left:.0%} of {against}",
                LOSS_TRAIN.name,
                left,
                FAR_FROM_FLOOR,
                curves.spark(curves.blocks(loss.curve.values, 40)),
            ),
            *(Evidence(c.words, c.signal, c.value, c.threshold) for c in causes),
        ],
        where=[Place(file=optimizer.file, line=optimizer.line)] if optimizer and optimizer.file else [],
        first_step=int(loss.curve.steps[0]),
        last_step=int(loss.curve.steps[-1]),
        symptoms=("both-high-and-equal",),
    )
