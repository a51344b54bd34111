"""Gradients or updates are too small for the half-precision format they are computed in.

## What it means
float16 has nothing between 0 and 6e-8, and few digits under 6e-5: gradients that small become zero, and layers stop
learning. bfloat16 has the range but only 8 bits of precision: adding 1e-4 to a weight of 0.1 gives 0.1 again, so
weights that are themselves kept in bfloat16 (or float16) do not move when updates are small.

## Why it happens
- float16 autocast without a gradient scaler; a loss with a small weight, or a mean over very many elements.
- A model cast with `.half()` or `.to(torch.bfloat16)` and an ordinary optimizer, with the learning rates of
  fine-tuning.
- The same with Adam or RMSprop in float16: squares of gradients round to zero, and so does the usual eps of 1e-8. The
  update divides by zero, and the weights are NaN after the first one.

## How it is detected
Lost gradients: matrix products run in float16, and in most looks the largest gradient of a weight matrix, times the
scale if there is a scaler, lies under float16's smallest normal number (6.1e-5) with a fifth or more of its elements
exactly zero, or all are zero. Lost updates: parameters are kept in a 16-bit type, the usual update of an element (the
learning rate for Adam, rate times gradient for SGD) is under half the gap between neighbouring numbers at the weight's
mean size, and the change that was measured is accordingly smaller than it should be. Weights before and after an
update are compared, too: of the elements with a gradient, how many are bit for bit what they were. With optimizers
whose step does not follow from their settings this decides: nine in ten, from the first half of the run on, while the
loss hardly falls. Half of the weight matrices must show it. A lost eps: float16
weights are the first thing that is not finite, and their optimizer's eps is one that float16 rounds to zero.

## How to fix it
For float16: `torch.amp.GradScaler`. For 16-bit weights: keep the parameters in float32 and compute under autocast; or
an optimizer with float32 master weights or stochastic rounding; or a larger learning rate. An eps
that float16 holds: 1e-4.

## Known false alarms
With a scaler at work small gradients are not lost, and what is left is said; one that is switched off counts as none.
Late in a training by SGD most updates are small and round away: without a stuck loss that is not told. Sparse gradients
(embeddings) are left out unless their largest element is tiny, too.

## References
Micikevicius et al., "Mixed precision training", 2018. Zamirai et al., "Revisiting BFloat16 training", 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import ParameterFact, PrecisionFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.numerics import headroom, lost_epsilon
from torchdoctor.rules.numerics.lost_epsilon import LostEpsilon
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT, LEARNING_RATE, LOSS_TRAIN, SCALE, UPDATE_LOST, UPDATE_RATIO, WEIGHT

RULE = Rule(
    code="N006",
    name="half-precision-underflow",
    family="numerics",
    needs=(ParameterFact, GRADIENT["absmax"]),
    explains=(
        *("no-parameter-update", "vanishing-gradients", "learning-rate-too-low", "dead-relu", "plateau-or-saddle"),
        *("underfitting", "capacity-too-low", "disconnected-parameters", "majority-class-collapse"),
        *("nonfinite-parameters", "exploding-gradients", "learning-rate-too-high"),
    ),
)
ZEROS = 0.2
PRECISION = {"float16": 2.0**-12, "bfloat16": 2.0**-9}
"""Half the gap between neighbouring numbers, against the number: less than this added changes nothing."""
MOVED = 0.7
"""Measured change against the expected one, above which updates evidently arrive."""
MOST, LEAST_LOOKS, SHOWN = 0.5, 3, 3
NEARLY_ALL = 0.9
"""Share of updates that round to nothing, from which on a matrix stands still but for a few large gradients."""
STUCK = 0.8
"""The loss keeps so much of its start."""
ADAMS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")


@dataclass(frozen=True)
class Lost:
    """One weight matrix."""

    name: str
    value: float
    threshold: float
    text: str


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    epsilon = lost_epsilon.find(run)
    if epsilon is not None:
        yield _tell_epsilon(epsilon)
        return
    matrices = {n: p for n, p in run.parameters.items() if len(p.shape) > 1}
    if not matrices:
        return
    lost = _lost_gradients(run, list(matrices))
    if lost and len(lost) >= MOST * len(matrices):
        yield _tell(run, lost, "gradients", len(matrices))
        return
    kept = {n: p for n, p in matrices.items() if p.dtype.removeprefix("torch.") in PRECISION}
    lost = [x for n, p in kept.items() if (x := _lost_update(run, n, p)) is not None]
    if lost and len(lost) >= MOST * len(matrices):
        yield _tell(run, lost, "updates", len(matrices))
        return
    nearest = headroom.of_gradients(run)
    if nearest is not None:
        scaled = ", times the scale," if run.has(SCALE) else ""
        text = f"gradients in float16{scaled} stand {nearest[1]:.1f} powers of two above zero (least in {nearest[0]})"
        yield RuledOut(RULE.name, text, GRADIENT["absmean"].name, nearest[1])


def _tell_epsilon(lost: LostEpsilon) -> Finding:
    kind, made = lost.optimizer.type, Place(file=lost.optimizer.file, line=lost.optimizer.line)
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.95,
        title=f"{kind}'s eps of {lost.eps:g} is zero in float16, and its update divides by zero",
        summary=f"The weights and {kind}'s averages are kept in float16. Squares of small gradients round to zero "
        f"there, and so does the eps that is added to keep the divisor above it: the update is 0/0 or x/0.",
        evidence=[
            Evidence(
                f"{', '.join(lost.names[:3])} (float16) not finite from step {lost.step} on, loss and gradients "
                "before it were",
                WEIGHT["nonfinite"].name,
                float(lost.step),
            ),
            Evidence(
                f"eps {lost.eps:g}, float16 rounds all up to {lost_epsilon.ROUNDS_TO_ZERO:.2g} to zero",
                "optimizer",
                lost.eps,
                lost_epsilon.ROUNDS_TO_ZERO,
            ),
        ],
        fix=Fix(
            "Keep the parameters in float32, and compute in half precision under autocast; if they must be float16, "
            "give eps a value that it holds.",
            f"optimizer = torch.optim.{kind}(model.parameters(), lr=..., eps=1e-4)",
        ),
        proof=Proof.STRUCTURE,
        where=[*([made] if made.file else []), *(Place(parameter=name) for name in lost.names[:3])],
        first_step=lost.step,
        symptoms=("nan-at-first-step",) if lost.step <= 1 else ("nan-later",),
    )


def _lost_gradients(run: Run, names: list[str]) -> list[Lost]:
    precision = run.last_fact(PrecisionFact)
    in_half = precision is not None and precision.products.get("float16", 0) > 0
    in_half = in_half or all(run.parameters[n].dtype.removeprefix("torch.") == "float16" for n in names)
    unknown = precision is not None and precision.scaler and precision.scaling is not False and not run.has(SCALE)
    if not in_half or unknown:
        return []
    largest, zeros = run.matrix(GRADIENT["absmax"]), run.matrix(GRADIENT["zeros"])
    found = []
    for name in names:
        if name not in largest.columns or name not in zeros.columns:
            continue
        high, none = largest.column(name).values, zeros.column(name).values
        n = min(len(high), len(none))
        scale = headroom.scales(run, largest.column(name).steps[:n])
        bad = (high[:n] * scale < headroom.SMALLEST_NORMAL) & (none[:n] >= ZEROS)
        if n >= LEAST_LOOKS and bad.mean() >= MOST:
            top, share = float(np.median(high[:n])), float(np.median(none[:n]))
            times = f" at scale {np.median(scale):.2g}" if run.has(SCALE) else ""
            text = f"{name}: largest gradient {top:.2g}{times}, {share:.0%} of its gradient exactly zero"
            found.append(Lost(name, top, headroom.SMALLEST_NORMAL, text))
    return found


def _lost_update(run: Run, name: str, parameter: ParameterFact) -> Lost | None:
    kind = parameter.dtype.removeprefix("torch.")
    ratio, size = run.matrix(UPDATE_RATIO), run.matrix(WEIGHT["absmean"])
    norm, gradient = run.matrix(WEIGHT["l2"]), run.matrix(GRADIENT["l2"])
    if any(name not in t.columns for t in (ratio, size, norm, gradient)):
        return None
    moved = ratio.column(name).values
    pushed = gradient.column(name).values
    if len(moved) < LEAST_LOOKS or not curves.median(pushed) > 0:
        return None
    weight, length = curves.median(size.column(name).values), curves.median(norm.column(name).values)
    step = _usual_step(run, curves.median(pushed), math.prod(parameter.shape))
    median = curves.median(moved)
    gap = weight * PRECISION[kind]
    share = _left_as_it_was(run, name)
    if step is None or not length > 0:
        if median == 0:
            return Lost(name, 0.0, gap, f"{name} ({kind}): gradients arrive, and nothing changes")
        if share is not None and min(share) >= NEARLY_ALL and _is_stuck(run):
            text = f"{name} ({kind}): of its elements with a gradient an update leaves {share[1]:.0%} as they were"
            return Lost(name, share[1], NEARLY_ALL, text)
        return None
    expected = step * math.sqrt(math.prod(parameter.shape)) / length
    if step < gap and median < MOVED * expected and (_is_adaptive(run) or _is_stuck(run)):
        text = f"{name} ({kind}): a usual update of {step:.2g} against {gap:.2g}, the least that changes {weight:.2g}"
        measured = f"; {share[1]:.0%} of its elements with a gradient stay as they were" if share is not None else ""
        return Lost(name, step, gap, text + measured)
    return None


def _left_as_it_was(run: Run, name: str) -> tuple[float, float] | None:
    """Of the elements with a gradient the share that an update did not change: in the run's first half, and in all."""
    lost = run.matrix(UPDATE_LOST)
    if name not in lost.columns:
        return None
    values = lost.column(name).values
    values = values[np.isfinite(values)]
    if len(values) < LEAST_LOOKS:
        return None
    return float(np.median(values[: (len(values) + 1) // 2])), float(np.median(values))


def _is_adaptive(run: Run) -> bool:
    """Its steps do not shrink with the gradients, so they are no smaller late in a training that went well."""
    return any(optimizer.type in ADAMS for optimizer in run.optimizers.values())


def _is_stuck(run: Run) -> bool:
    loss = run.scalar(LOSS_TRAIN).values
    loss = loss[np.isfinite(loss)]
    return len(loss) >= LEAST_LOOKS and curves.level(loss) > STUCK * curves.level(loss, end=False) > 0


def _usual_step(run: Run, gradient: float, elements: int) -> float | None:
    """What an update adds to one element; None for optimizers whose step is not known from their settings."""
    if len(run.optimizers) != 1:
        return None
    (optimizer,) = run.optimizers.values()
    rates = [v for key in run.keys(LEARNING_RATE) for v in run.scalar(LEARNING_RATE, key).values if np.isfinite(v)]
    if not rates or max(rates) <= 0:
        return None
    rate = float(np.median(rates))
    if optimizer.type in ADAMS:
        return rate
    plain = optimizer.type == "SGD" and not any(g.get("momentum") for g in optimizer.groups)
    return rate * gradient / math.sqrt(elements) if plain else None


def _kind(run: Run, lost: list[Lost]) -> str:
    return run.parameters[lost[0].name].dtype.removeprefix("torch.")


def _tell(run: Run, lost: list[Lost], what: str, of: int) -> Finding:
    precision = run.last_fact(PrecisionFact)
    place = Place(file=precision.file, line=precision.line) if precision is not None and precision.file else None
    gradients = what == "gradients"
    signal = GRADIENT["absmax"] if gradients else UPDATE_RATIO
    return RULE.finding(
        severity=Severity.ERROR if len(lost) == of else Severity.WARNING,
        confidence=0.9 if gradients else 0.85,
        title=f"{what} of {len(lost)} of {of} weight matrices are lost in half precision",
        summary="Gradients under what float16 can hold become zero, and nothing scales them up enough."
        if gradients
        else "The weights are kept in 16 bits, and most updates are smaller than the gap to the next number.",
        evidence=[
            *(Evidence(x.text, signal.name, x.value, x.threshold) for x in lost[:SHOWN]),
            *(headroom.flushed(run) if gradients else []),
            *headroom.delicate(run, "float16" if gradients else _kind(run, lost)),
        ],
        fix=Fix(
            "Scale the loss with a gradient scaler, or use bfloat16.",
            "scaler = torch.amp.GradScaler(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
        )
        if gradients
        else Fix(
            "Keep the parameters in float32, and compute in half precision under autocast. A larger learning rate "
            "helps, too.",
            "model = model.float()  # and: with torch.autocast(device_type, dtype=torch.bfloat16): ...",
        ),
        proof=Proof.STATISTICS,
        where=[*([place] if place else []), *(Place(parameter=x.name) for x in lost[:3])],
        first_step=0,
        symptoms=("flat-from-start", "slow-descent"),
    )
