"""What three published tools would say of a run: our reading of their rules, over the signals that we recorded.

None of their code runs here. A rule is written as its paper or documentation gives it, on the nearest signal we have;
where theirs looks at every step and ours at some, theirs sees less here than it would. Thresholds:

- SageMaker Debugger: the defaults of its built-in rules in the AWS documentation (VanishingGradient, ExplodingTensor,
  DeadRelu, SaturatedActivation, WeightUpdateRatio, LossNotDecreasing, Overfit, AllZero, UnchangedTensor).
- AUTOTRAINER (Zhang et al., ICSE 2021): vanishing where the first layer's gradient norm is under 1e-3 of the last's and
  under 1e-4 itself; exploding where that ratio is over 70; dying ReLU at 70 % zero gradients.
- TheDeepChecker (Ben Braiek and Khomh, 2023): the update ratio outside 1e-4 to 1e-1; over half the units dead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import NonfiniteFact
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION, GRADIENT, LOSS_TRAIN, LOSS_VALIDATION, UPDATE_RATIO, WEIGHT

DEBUGGER, AUTOTRAINER, DEEPCHECKER = "SageMaker Debugger", "AUTOTRAINER", "TheDeepChecker"

LOOKS = 3
"""A ratio by layer has to hold in so many looks, and in most of them: all three tools average over windows."""


@dataclass(frozen=True)
class PeerRule:
    peer: str
    name: str
    means: frozenset[str]
    """our diagnoses that it may be taken to name, read kindly"""
    fires: Callable[[Run], bool]


def read(run: Run) -> dict[str, list[str]]:
    """Peer -> the names of its rules that fire."""
    said: dict[str, list[str]] = {DEBUGGER: [], AUTOTRAINER: [], DEEPCHECKER: []}
    for rule in RULES:
        try:
            if rule.fires(run):
                said[rule.peer].append(rule.name)
        except (ValueError, IndexError, ZeroDivisionError):
            continue
    return said


def means(peer: str, name: str) -> frozenset[str]:
    return next((r.means for r in RULES if (r.peer, r.name) == (peer, name)), frozenset())


def _weights(run: Run, trace: Trace) -> Trace:
    """Columns of weights (matrices), first layer first: biases and norms are not what these rules look at."""
    shaped = [name for name, p in run.parameters.items() if len(p.shape) > 1]
    return trace.select(shaped)


def _ever(values: np.ndarray) -> bool:
    """Some column shows it in most of its looks."""
    if values.ndim != 2 or len(values) < LOOKS or not values.shape[1]:
        return False
    return bool((values.mean(axis=0) > 0.5).any())


def _tiny_gradients(run: Run) -> bool:
    return _ever(_weights(run, run.matrix(GRADIENT["absmean"])).values < 1e-7)


def _nonfinite(run: Run) -> bool:
    roles = {fact.role for fact in run.facts(NonfiniteFact)}
    return bool(roles & {"loss", "gradient", "weight", "activation"})


def _dead(share: float) -> Callable[[Run], bool]:
    return lambda run: _ever(np.nan_to_num(run.matrix(ACTIVATION["dead"]).values) > share)


def _saturated(run: Run) -> bool:
    return _ever(np.nan_to_num(run.matrix(ACTIVATION["saturated"]).values) > 0.5)


def _updates_outside(low: float, high: float) -> Callable[[Run], bool]:
    def fires(run: Run) -> bool:
        ratio = _weights(run, run.matrix(UPDATE_RATIO)).values
        return _ever(ratio < low) or _ever(ratio > high)

    return fires


def _loss_not_decreasing(run: Run) -> bool:
    """Debugger compares with ten steps before and wants 0.1 % less; on the mean of ten, as single batches are noise."""
    loss = run.scalar(LOSS_TRAIN).values
    if len(loss) < 40 or not np.isfinite(loss).all():
        return False
    blocks = loss[: len(loss) // 10 * 10].reshape(-1, 10).mean(axis=1)
    return bool(np.mean(blocks[1:] > blocks[:-1] * (1 - 0.001)) > 0.5)


def _overfit(run: Run) -> bool:
    """Validation loss over training loss by more than a tenth of it, at the end."""
    train, validation = run.scalar(LOSS_TRAIN), run.scalar(LOSS_VALIDATION)
    if not len(train) or len(validation) < 2:
        return False
    late = train.between(int(validation.steps[-2]), int(validation.steps[-1])).values
    mean = float(late.mean()) if len(late) else float(train.values[-1])
    return bool(np.isfinite(validation.values[-1]) and (validation.values[-1] - mean) / abs(mean) > 0.1)


def _all_zero(run: Run) -> bool:
    return _ever(_weights(run, run.matrix(GRADIENT["zeros"])).values >= 1.0)


def _unchanged(run: Run) -> bool:
    return _ever(_weights(run, run.matrix(UPDATE_RATIO)).values == 0)


def _first_and_last(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    norm = _weights(run, run.matrix(GRADIENT["l2"])).values
    if norm.ndim != 2 or norm.shape[1] < 2 or len(norm) < LOOKS:
        return None
    return norm[:, 0], norm[:, -1]


def _vanishing_by_ratio(run: Run) -> bool:
    ends = _first_and_last(run)
    if ends is None:
        return False
    first, last = ends
    return bool(np.mean((first < 1e-3 * last) & (first < 1e-4)) > 0.5)


def _exploding_by_ratio(run: Run) -> bool:
    ends = _first_and_last(run)
    if ends is None:
        return False
    first, last = ends
    return bool(np.mean(first > 70 * last) > 0.5) or _nonfinite(run)


def _zero_gradients(run: Run) -> bool:
    zeros = _weights(run, run.matrix(GRADIENT["zeros"])).values
    return zeros.ndim == 2 and len(zeros) >= LOOKS and bool(np.mean(np.nanmean(zeros, axis=1) >= 0.7) > 0.5)


def _weights_nonfinite(run: Run) -> bool:
    return bool((run.matrix(WEIGHT["nonfinite"]).high > 0).any()) or _nonfinite(run)


_BLOWN_UP = frozenset(
    [
        *("exploding-gradients", "nonfinite-parameters", "learning-rate-too-high", "nan-in-inputs", "nan-in-targets"),
        *("log-of-zero", "division-by-zero", "sqrt-at-zero", "exp-overflow", "half-precision-overflow"),
    ]
)
_STUCK = frozenset(
    [
        *("no-parameter-update", "learning-rate-too-low", "learning-rate-too-high", "learning-rate-oscillation"),
        *("plateau-or-saddle", "inputs-and-labels-unrelated", "capacity-too-low", "underfitting", "loss-sign-flipped"),
        *("vanishing-gradients", "dead-relu", "symmetric-initialization", "frozen-parameters"),
    ]
)
_RATE = frozenset(["learning-rate-too-high", "learning-rate-too-low", "no-parameter-update", "exploding-gradients"])
_UNTOUCHED = frozenset(["no-parameter-update", "parameters-not-optimized", "disconnected-parameters"])

RULES: tuple[PeerRule, ...] = (
    PeerRule(DEBUGGER, "VanishingGradient", frozenset(["vanishing-gradients"]), _tiny_gradients),
    PeerRule(DEBUGGER, "ExplodingTensor", _BLOWN_UP, _weights_nonfinite),
    PeerRule(DEBUGGER, "DeadRelu", frozenset(["dead-relu"]), _dead(0.5)),
    PeerRule(DEBUGGER, "SaturatedActivation", frozenset(["saturated-activations"]), _saturated),
    PeerRule(DEBUGGER, "WeightUpdateRatio", _RATE, _updates_outside(1e-8, 10.0)),
    PeerRule(DEBUGGER, "LossNotDecreasing", _STUCK, _loss_not_decreasing),
    PeerRule(DEBUGGER, "Overfit", frozenset(["overfitting"]), _overfit),
    PeerRule(DEBUGGER, "AllZero", _UNTOUCHED | {"dead-relu", "symmetric-initialization"}, _all_zero),
    PeerRule(DEBUGGER, "UnchangedTensor", _UNTOUCHED | {"frozen-parameters"}, _unchanged),
    PeerRule(AUTOTRAINER, "vanishing gradient", frozenset(["vanishing-gradients"]), _vanishing_by_ratio),
    PeerRule(AUTOTRAINER, "exploding gradient", _BLOWN_UP, _exploding_by_ratio),
    PeerRule(AUTOTRAINER, "dying ReLU", frozenset(["dead-relu"]), _zero_gradients),
    PeerRule(DEEPCHECKER, "update ratio", _RATE | {"vanishing-gradients"}, _updates_outside(1e-4, 1e-1)),
    PeerRule(DEEPCHECKER, "dead units", frozenset(["dead-relu"]), _dead(0.5)),
)
