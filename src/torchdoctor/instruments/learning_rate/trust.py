"""Whether the curve of a learning-rate sweep is to be trusted, and what to do where it is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchdoctor.instruments.learning_rate.curve import Array, Suggestions, Sweep, Trace, are_cut

SURE = 4.0
"""Standard deviations: the largest of a hundred chance values stays below it (of 10,000 draws, 0.6 exceed it)."""
CLEAR = 8.0
"""Standard deviations from which the place of the bottom, not only that there is one, can be told."""
LEAST_POINTS = 10
"""Updates between where the loss begins to fall and where it diverges. Fewer, and the sweep is through before the
optimizer has answered: momentum and Adam average over ten."""
APART = 1.0
"""Decades between the seeds, or a half more between the rules, from which a suggestion is no better than a guess."""
LEAST_BATCHES = 20
"""To tell an order from chance."""
MOVED = 0.01
"""Of what batches differ by: a fall that pairs of losses show, and that nobody would see in a training. Where all have
one loss, as a validation set, a tenth of that stands for it."""
NO_RATE = frozenset(("flat", "unmoved"))
"""Doubts beside which the shape of the curve says nothing."""
FEW = 1.0
"""Expected members of a class in all batches below which it says nothing."""


@dataclass(frozen=True)
class Doubt:
    """`name` is one of: flat, unmoved, biased-batches, same-order, range-too-low, range-too-high, too-short, noisy."""

    name: str
    text: str


def doubt(
    sweeps: Sequence[Sweep],
    traces: Sequence[Trace],
    suggested: Sequence[Suggestions],
    class_counts: Sequence[NDArray[np.int64]] = (),
    linear: bool = False,
) -> list[Doubt]:
    """What speaks against the curves, causes before what they lead to."""
    flat = _flat(traces) or _unmoved(sweeps, traces)
    if flat is not None:
        return [*_biased(sweeps, class_counts), flat]
    return [
        *_biased(sweeps, class_counts),
        *_out_of_range(traces, linear),
        *_too_short(traces),
        *_noisy(traces, suggested),
    ]


def _flat(traces: Sequence[Trace]) -> Doubt | None:
    if _significance(traces) >= SURE:
        return None
    diverged = 2 * sum(t.diverged for t in traces) > len(traces)
    ending = "hardly fell before it diverged" if diverged else "never fell: no rate moved it beyond its noise"
    return Doubt(
        "flat",
        f"the loss {ending}. Check that the optimizer holds the model's parameters, that gradients reach "
        "them, that inputs and targets belong together, and that the model is not trained already; then try a larger "
        "`steps`, or a wider `low` to `high`",
    )


def _unmoved(sweeps: Sequence[Sweep], traces: Sequence[Trace]) -> Doubt | None:
    if not are_cut(traces) or not all(t.fall < MOVED * _difference(s) for s, t in zip(sweeps, traces, strict=True)):
        return None
    highest = 10 ** max(float(t.log_rates[-1]) for t in traces)
    return Doubt(
        "unmoved",
        f"nothing moved in this range: up to the highest rate, {highest:.2g}, the loss fell by "
        f"{np.median([t.fall for t in traces]):.2g} from {np.median([t.start for t in traces]):.3g}; raise `high`",
    )


def _difference(sweep: Sweep) -> float:
    """Between batches, on weights that nothing has changed."""
    spread, size = float(np.std(sweep.before)), abs(sweep.start)
    return spread if spread > 1e-6 * size else 0.1 * size


def _significance(traces: Sequence[Trace]) -> float:
    """Median over the sweeps of the fall in standard deviations of its noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each = [np.float64(t.fall) / t.noise if t.fall > 0 else 0.0 for t in traces]
    return float(np.median(np.nan_to_num(each, nan=0.0)))


def _biased(sweeps: Sequence[Sweep], class_counts: Sequence[NDArray[np.int64]]) -> list[Doubt]:
    found = []
    if any(_classes_unequal(counts) for counts in class_counts):
        found.append(
            Doubt(
                "biased-batches",
                "the batches are not drawn at random: their mix of classes differs far more than chance allows. "
                "Shuffle the data (shuffle=True)",
            )
        )
    elif any(_in_order(sweep.before) for sweep in sweeps):
        found.append(
            Doubt(
                "biased-batches",
                "the batches are not drawn at random: each is about as hard as the one before it, so the curve follows "
                "their order. Shuffle the data (shuffle=True)",
            )
        )
    if _same_order(sweeps):
        found.append(
            Doubt(
                "same-order",
                "every sweep saw the same batches in the same order, so the band of the seeds says nothing; "
                "is shuffle=False?",
            )
        )
    return found


def _in_order(before: Array) -> bool:
    """Losses of unchanged weights follow each other by chance, unless neighbouring batches are alike."""
    if len(before) < LEAST_BATCHES or np.std(before) <= 1e-6 * max(abs(float(np.mean(before))), 1e-30):
        return False
    centred = before - before.mean()
    lagged = float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
    return lagged * math.sqrt(len(before)) > SURE


def _classes_unequal(counts: NDArray[np.int64]) -> bool:
    """Pearson's test that all batches (rows) draw from the same mix of classes (columns)."""
    counts = counts[:, counts.sum(0) >= FEW * len(counts)]
    if counts.shape[0] < 2 or counts.shape[1] < 2:
        return False
    expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    statistic = float((((counts - expected) ** 2) / np.maximum(expected, 1e-12)).sum())
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    # Wilson and Hilferty: the cube root of chi-squared over its degrees of freedom is close to normal.
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread) > SURE


def _same_order(sweeps: Sequence[Sweep]) -> bool:
    if len(sweeps) < 2:
        return False
    shared = min(len(s.before) for s in sweeps)
    first = sweeps[0].before[:shared]
    varied = shared >= LEAST_BATCHES and np.std(first) > 0
    return bool(varied and all(np.array_equal(first, s.before[:shared]) for s in sweeps[1:]))


def _out_of_range(traces: Sequence[Trace], linear: bool) -> list[Doubt]:
    """A linear sweep has hardly a step at low rates, wherever it begins."""
    found = []
    if are_cut(traces):
        found.append(
            Doubt(
                "range-too-low",
                f"the loss had not diverged at the highest rate, {10 ** traces[0].log_rates[-1]:.2g}; raise `high`",
            )
        )
    if not linear and 2 * sum(t.begins == 0 for t in traces) > len(traces):
        found.append(
            Doubt(
                "range-too-high",
                f"the loss fell from the lowest rate on, {10 ** traces[0].log_rates[0]:.2g}; lower `low`",
            )
        )
    return found


def _too_short(traces: Sequence[Trace]) -> list[Doubt]:
    points = [(len(t.changes) - 1 if t.ends is None else t.ends) - t.begins for t in traces]
    if np.median(points) >= LEAST_POINTS:
        return []
    return [
        Doubt(
            "too-short",
            f"only {int(np.median(points))} updates lie between where the loss begins to fall and where it diverges; "
            "raise `steps`, or bring `low` and `high` closer together",
        )
    ]


def _noisy(traces: Sequence[Trace], suggested: Sequence[Suggestions]) -> list[Doubt]:
    rates = [math.log10(s.recommended) for s in suggested if s.recommended is not None]
    more = "use larger batches (`accumulate`), more `steps` or more `seeds`"
    if len(rates) > 1 and max(rates) - min(rates) > APART:
        low, high = 10 ** min(rates), 10 ** max(rates)
        return [Doubt("noisy", f"the seeds disagree: one by one they suggest from {low:.2g} to {high:.2g}; {more}")]
    if _significance(traces) < CLEAR:
        return [Doubt("noisy", f"the fall of the loss hardly stands out from its noise; {more}")]
    if float(np.median([s.disagreement for s in suggested])) > 1.5 * APART:
        return [Doubt("noisy", f"the three rules are more than {1.5 * APART:.2g} decades apart; {more}")]
    return []
