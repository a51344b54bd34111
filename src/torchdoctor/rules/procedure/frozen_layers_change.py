"""Layers that are meant to be frozen still change.

## What it means
Part of the model is told not to train, and yet it is not at the end what it was at the start: its weights shrink or
drift, or its normalisation takes on the statistics of the new data. The pretrained features are no longer the ones
that were chosen, and two runs that "share a frozen backbone" do not.

## Why it happens
- Parameters are frozen (`requires_grad = False`) while the optimizer still holds them with a gradient from before:
  `zero_grad(set_to_none=False)` leaves zeros, which weight decay, momentum and Adam's moments turn into updates; a
  gradient that is not cleared at all is applied again and again.
- Gradients are zeroed by hand or by a hook instead of freezing; weight decay does not care.
- `model.train()` puts frozen batch-norm layers back into train mode: their running mean and variance follow the new
  data although no parameter of theirs moves.

## How it is detected
By state. Frozen parameters that an optimizer holds are compared, bit for bit, right before and right after its step.
Running statistics of normalisation layers that are frozen themselves and have only frozen layers before them are
compared with what they were when first seen; the move must exceed what the largest of so many channels shows by chance.
Layers at the beginning of the model whose gradient was exactly zero at every look, while the layers after them got one,
and which moved all the same, were frozen by zeroing.

## How to fix it
Build the optimizer over what trains: `[p for p in model.parameters() if p.requires_grad]`, or set `p.grad = None` when
freezing. Put frozen parts into eval mode after every `model.train()`.

## Known false alarms
Teachers, momentum encoders and target networks are changed by hand, outside an optimizer's step, and are not counted.
A normalisation layer that follows a layer which trains must adapt and is not counted. Letting frozen batch-norm layers
adapt to a new domain on purpose looks the same as forgetting them; it is a warning, and `ignore` is the answer.

## References
Keras documentation, "Transfer learning and fine-tuning" (batch-norm in frozen models). PyTorch documentation,
torch.optim.Optimizer.zero_grad (set_to_none).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from torchdoctor.facts import FrozenChangeFact, WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.places import call_places, known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACTIVATION, GRADIENT_L2, MOMENTUM, UPDATE_RATIO, WEIGHT_DECAY

RULE = Rule(
    code="T019",
    name="frozen-layers-change",
    family="procedure",
    needs=(WiringFact,),
    explains=(
        "train-mode-in-evaluation",
        "weight-norm-growth",
        "vanishing-gradients",
        "train-validation-mismatch",
        "over-regularized",
        "frozen-parameters",
    ),
)

LEAST_DRIFT = 0.05
"""Move of a running mean in its standard deviations: below it batches of the same data differ as much."""
BY_CHANCE = 0.02
"""Move of one channel by chance: sqrt(0.1 / 1.9 / 128), for batches of 128 at the usual momentum of 0.1. The largest of
n channels, which is what is recorded, moves by sqrt(2 ln n) times that."""
LEAST_LOOKS = 5
SATURATED = 0.9
"""Where this share of an activation is flat, exact zeros in the gradients before it are no decision of anybody's."""


def detect(run: Run) -> Iterator[Finding]:
    facts = run.facts_at(FrozenChangeFact)
    changed = [(step, f) for step, f in facts if f.changed]
    drifted = [(step, f) for step, f in facts if f.norms and (f.drift or 0.0) >= least_drift(run, f)]
    if changed:
        yield _parameters(run, changed[0][0], changed[-1][1])
    elif drifted:
        yield _statistics(run, drifted[0][0], drifted[-1][1])
    else:
        zeroed = _zeroed(run)
        if zeroed:
            yield _decayed(run, zeroed)


def least_drift(run: Run, fact: FrozenChangeFact) -> float:
    """The limit for the largest move among the channels of these layers."""
    weights = [run.parameters.get(f"{name}.weight") for name in fact.norms]
    channels = sum(w.shape[0] if w is not None and w.shape else 1 for w in weights)
    return max(LEAST_DRIFT, BY_CHANCE * math.sqrt(2 * math.log(max(1, channels))))


def _parameters(run: Run, step: int, fact: FrozenChangeFact) -> Finding:
    optimizer = run.optimizers.get(fact.optimizer or "")
    settings = optimizer.groups[0] if optimizer and optimizer.groups else {}
    means = [f"{k} {settings[k]:g}" for k in ("momentum", "weight_decay") if settings.get(k)]
    by = f" ({optimizer.type}{', ' + ', '.join(means) if means else ''})" if optimizer else ""
    built = Place(file=optimizer.file, line=optimizer.line) if optimizer else Place()
    count = len(fact.changed)
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.98,
        proof=Proof.STRUCTURE,
        title=f"{count} frozen parameter{'s' if count > 1 else ''} changed by the optimizer: {_few(fact.changed)}",
        summary="These parameters do not require gradients, but the optimizer still holds them with an old gradient, "
        "so weight decay and momentum go on changing them.",
        where=known(*(Place(parameter=n) for n in fact.changed[:5]), built),
        first_step=step,
        last_step=run.steps,
        evidence=[
            Evidence(
                f"{count} parameters with requires_grad=False differ after the optimizer's step{by} from before it",
                value=float(count),
                threshold=0.0,
            )
        ],
        fix=Fix(
            "Give the optimizer only what trains, or drop the gradient when freezing.",
            "for p in model.parameters():\n    if not p.requires_grad:\n        p.grad = None",
        ),
    )


def _statistics(run: Run, step: int, fact: FrozenChangeFact) -> Finding:
    layers = fact.norms
    part = layers[0].split(".")[0] if "." in layers[0] else layers[0]
    drift = fact.drift or 0.0
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85,
        proof=Proof.STRUCTURE,
        title=f"running statistics of {len(layers)} frozen normalisation layer{'s' if len(layers) > 1 else ''} move",
        summary="These layers and everything before them are frozen, but they run in train mode: their running mean "
        "and variance follow the new data, so in evaluation the frozen part computes something else than it was "
        "trained to.",
        where=known(*(Place(module=n) for n in layers[:5]), *call_places(run, "train")),
        first_step=step,
        last_step=run.steps,
        evidence=[
            Evidence(
                f"a running mean of {_few(layers)} moved by {drift:.2g} of its standard deviations since it was frozen",
                value=drift,
                threshold=least_drift(run, fact),
            )
        ],
        fix=Fix("Put the frozen part into eval mode after every model.train().", f"model.train()\nmodel.{part}.eval()"),
        symptoms=("validation-jumps",),
    )


def _zeroed(run: Run) -> list[str]:
    """Matrices at the beginning of the model without any gradient, followed by one with, that move all the same."""
    gradients, moves = run.matrix(GRADIENT_L2), run.matrix(UPDATE_RATIO)
    frozen = {*(w.frozen if (w := run.last_fact(WiringFact)) else ())}
    ordered = [
        n
        for n, p in run.parameters.items()
        if p.order is not None and len(p.shape) > 1 and n in gradients.columns and n not in frozen
    ]
    if len(gradients) < LEAST_LOOKS or len(ordered) < 2 or not _pushed(run) or _is_flat(run):
        return []
    prefix: list[str] = []
    for name in ordered:
        trace = gradients.column(name)
        seen = trace.high[np.isfinite(trace.high)]
        if len(seen) < LEAST_LOOKS or seen.max() > 0:
            break
        prefix.append(name)
    if not prefix or len(prefix) == len(ordered):
        return []
    after = gradients.column(ordered[len(prefix)]).values
    if not np.all(after[np.isfinite(after)] > 0):
        return []
    return [n for n in prefix if n in moves.columns and _moves(moves.column(n).values)]


def _moves(ratios: np.ndarray) -> bool:
    seen = ratios[np.isfinite(ratios)]
    return len(seen) >= LEAST_LOOKS and float(np.median(seen)) > 0


def _pushed(run: Run) -> bool:
    """Something besides the gradient can move a weight."""
    return any(
        np.any(run.scalar(signal, key).high > 0) for signal in (WEIGHT_DECAY, MOMENTUM) for key in run.keys(signal)
    )


def _is_flat(run: Run) -> bool:
    for name in ("saturated", "dead"):
        trace = run.matrix(ACTIVATION[name])
        if trace.values.size and np.any(trace.values[np.isfinite(trace.values)] > SATURATED):
            return True
    return False


def _decayed(run: Run, names: Sequence[str]) -> Finding:
    moves = run.matrix(UPDATE_RATIO)
    ratio = max(curves.median(moves.column(n).values) for n in names)
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.8,
        proof=Proof.STRUCTURE,
        title=f"layers without any gradient still change: {_few(names)}",
        summary="Their gradient is exactly zero at every update, as if they were frozen, but the optimizer holds them "
        "and weight decay or momentum moves them.",
        where=known(*(Place(parameter=n) for n in names[:5])),
        first_step=int(moves.steps[0]),
        last_step=run.steps,
        evidence=[
            Evidence(f"the gradient of {_few(names)} was 0 at every look", GRADIENT_L2.name, 0.0),
            Evidence(f"each update changed it by {ratio:.1e} of its size all the same", UPDATE_RATIO.name, ratio, 0.0),
        ],
        fix=Fix(
            "Freeze them and leave them out of the optimizer.",
            f"for name in {list(names)!r}:\n    model.get_parameter(name).requires_grad_(False)",
        ),
    )


def _few(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
