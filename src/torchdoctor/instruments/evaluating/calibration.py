"""Is a model right as often as it says? Reliability curve, calibration error beyond chance, temperature. Numpy only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.instruments.evaluating.metrics import BLOCKS, DRAWS, SEED, Estimate, Floats, Ints, wilson
from torchdoctor.instruments.evaluating.ranking import Bools

DRAWN = 200_000
"""Up to so many elements a calibrated model is drawn hit by hit; beyond, the sum in a bin is as good as normal."""
DRAWN_NUMBERS = 10_000_000
FITTED = 1 << 21
"""Numbers that the temperature is fitted on; one parameter needs no more."""
CHANCE_LEVEL = 0.99
"""A calibrated model is called off once in a hundred times."""
MARKED = 0.02
"""An error below it is seldom worth mending; networks show 0.04 to 0.15 uncorrected (Guo et al. 2017, table 1)."""
MENDED = 0.7
"""What a temperature must make of the error to be worth naming."""
COLDEST, HOTTEST = 1e-3, 1e3
"""Temperatures beyond these mean that there is nothing to scale: no logits, or labels without any relation."""


@dataclass(frozen=True)
class Bin:
    """Elements of about the same confidence."""

    low: float
    high: float
    count: int
    confidence: float
    share: float
    """of them that are right (or positive)"""
    share_low: float
    share_high: float


@dataclass(frozen=True)
class Calibration:
    """What is said against what comes true."""

    about: str
    of_named: bool
    """it is the confidence in what is named, not the probability of yes"""
    bins: list[Bin]
    binning: str
    confidence: float
    share: float
    ece: float
    """expected calibration error: the mean distance of confidence and share over the elements, by bin"""
    ece_low: float
    ece_high: float
    debiased: float
    """less what the noise in the bins adds on average (as Kumar et al. 2019 do)"""
    chance: float
    """what a calibrated model with these confidences shows on average"""
    chance_limit: float
    """what it stays below 99 times out of 100"""
    temperature: float | None = None
    loss: float | None = None
    loss_mended: float | None = None
    ece_mended: float | None = None

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.ece, self.ece_low, self.ece_high, "bootstrap")

    @property
    def is_off(self) -> bool:
        """Beyond what a calibrated model shows by chance."""
        return self.ece > self.chance_limit

    @property
    def is_marked(self) -> bool:
        """Beyond chance, and large enough to be mended."""
        return self.is_off and self.ece >= MARKED

    @property
    def word(self) -> str:
        if not self.is_off:
            return "calibrated, as far as so many samples can tell"
        if self.is_one_sided:
            return "overconfident" if self.confidence > self.share else "not confident enough"
        if self.temperature is not None and self.is_mended:
            return "overconfident" if self.temperature > 1 else "not confident enough"
        return "miscalibrated"

    @property
    def is_one_sided(self) -> bool:
        """What is said lies above what comes true, or below it, on the whole: of yes against no it need not."""
        return abs(self.confidence - self.share) > self.ece / 3 and self.of_named

    @property
    def is_mended(self) -> bool:
        """One temperature would take away a good part of the error."""
        return self.ece_mended is not None and self.ece_mended < MENDED * self.ece


def calibrate(
    confidence_E: Floats,
    right_E: Bools,
    *,
    about: str,
    of_named: bool,
    bins: int,
    binning: str,
    level: float,
    dependence: float = 1.0,
) -> Calibration:
    """`dependence`: elements by independent ones, where those of a sample are right or wrong together."""
    edges, at_E = _place(confidence_E, bins, binning)
    size = len(edges) - 1
    count_B = np.bincount(at_E, minlength=size)
    said_B = np.bincount(at_E, confidence_E, minlength=size)
    came_B = np.bincount(at_E, right_E.astype(np.float64), minlength=size)
    ece = float(np.abs(came_B - said_B).sum() / len(at_E))
    low, high = _interval(at_E, right_E - confidence_E, size, ece, level, dependence)
    chance, limit = _by_chance(at_E, confidence_E, size, dependence)
    curve = []
    for b in np.flatnonzero(count_B):
        share = wilson(float(came_B[b]) / dependence, float(count_B[b]) / dependence, level)
        said = float(said_B[b] / count_B[b])
        ends = (float(edges[b]), float(edges[b + 1]))
        curve.append(Bin(*ends, int(count_B[b]), said, share.value, share.low, share.high))
    words = "of equal width" if binning == "uniform" else "of equal size"
    return Calibration(
        about=about,
        of_named=of_named,
        bins=curve,
        binning=f"{size} bins {words}",
        confidence=float(confidence_E.mean()),
        share=float(right_E.mean()),
        ece=ece,
        ece_low=low,
        ece_high=high,
        debiased=_debiased(count_B, said_B, came_B, ece, dependence),
        chance=chance,
        chance_limit=limit,
    )


def calibration_error(confidence_E: Floats, right_E: Bools, bins: int, binning: str) -> float:
    """The expected calibration error alone."""
    _, at_E = _place(confidence_E, bins, binning)
    return float(np.abs(np.bincount(at_E, right_E - confidence_E)).sum() / len(at_E))


def _place(confidence_E: Floats, bins: int, binning: str) -> tuple[Floats, Ints]:
    """The edges of the bins, and the bin of each element."""
    edges = _edges(confidence_E, bins, binning)
    return edges, np.clip(np.searchsorted(edges, confidence_E, side="left") - 1, 0, len(edges) - 2)


def _edges(confidence_E: Floats, bins: int, binning: str) -> Floats:
    if binning == "uniform":
        return np.linspace(0.0, 1.0, bins + 1)
    inner = np.unique(np.quantile(confidence_E, np.arange(1, bins) / bins))
    return np.concatenate([[0.0], inner[(inner > 0) & (inner < 1)], [1.0]])


def _interval(at_E: Ints, gap_E: Floats, size: int, ece: float, level: float, dependence: float) -> tuple[float, float]:
    """Bootstrap, moved by its own bias: what is drawn from noisy bins lies further off than the bins themselves."""
    generator = np.random.default_rng(SEED)
    if len(at_E) > BLOCKS:
        drawn = _blocked(at_E, gap_E, size, generator)
    else:
        weights = generator.multinomial(len(at_E), np.full(len(at_E), 1 / len(at_E)), size=DRAWS)
        rows = np.zeros((len(at_E), size))
        rows[np.arange(len(at_E)), at_E] = gap_E
        drawn = np.abs(weights @ rows).sum(1) / len(at_E)
    centred = ece + (drawn - drawn.mean()) * math.sqrt(dependence)
    low, high = np.quantile(centred, [(1 - level) / 2, (1 + level) / 2])
    return float(min(max(0.0, low), ece)), float(max(high, ece))


def _blocked(at_E: Ints, gap_E: Floats, size: int, generator: np.random.Generator) -> Floats:
    block_E = generator.permutation(len(at_E)) * BLOCKS // len(at_E)
    sums = np.bincount(block_E * size + at_E, gap_E, minlength=BLOCKS * size).reshape(BLOCKS, size)
    weights = generator.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), size=DRAWS)
    return np.abs(weights @ sums).sum(1) / len(at_E)


def _by_chance(at_E: Ints, confidence_E: Floats, size: int, dependence: float) -> tuple[float, float]:
    """Mean and limit of the error of a model that is right exactly as often as it says (Broecker and Smith 2007)."""
    generator = np.random.default_rng(SEED)
    count = len(at_E)
    if count <= DRAWN:
        draws = max(50, min(DRAWS, DRAWN_NUMBERS // count))
        gaps = [
            np.bincount(at_E, (generator.random(count) < confidence_E) - confidence_E, minlength=size)
            for _ in range(draws)
        ]
        drawn_DB = np.array(gaps)
    else:
        spread_B = np.sqrt(np.bincount(at_E, confidence_E * (1 - confidence_E), minlength=size))
        drawn_DB = generator.standard_normal((DRAWS, size)) * spread_B
    drawn_D = np.abs(drawn_DB).sum(1) * math.sqrt(dependence) / count
    return float(drawn_D.mean()), float(np.quantile(drawn_D, CHANCE_LEVEL))


def _debiased(count_B: Ints, said_B: Floats, came_B: Floats, ece: float, dependence: float) -> float:
    """The mean of a normal's magnitude lies above the magnitude of its mean, by a known amount."""
    total = 0.0
    for count, said, came in zip(count_B, said_B, came_B, strict=True):
        if count < 2:
            continue
        share, gap = came / count, abs(came - said) / count
        error = math.sqrt(share * (1 - share) * dependence / (count - 1))
        if error > 0:
            z = gap / error
            mean = error * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + gap * math.erf(z / math.sqrt(2))
            total += count * (mean - gap)
    return max(0.0, ece - total / max(1, int(count_B.sum())))


@dataclass(frozen=True)
class Temperature:
    """The one factor on the logits that lowers the loss most."""

    value: float
    loss: float
    loss_mended: float


def fit_temperature(logs_SC: Floats, label_S: Ints) -> Temperature | None:
    """Logits are divided by it. Newton's method on its inverse, in which the loss is convex. None where it runs off:
    of a model that is always right no confidence is too high."""
    stride = max(1, -(-logs_SC.size // FITTED))
    logs_SC, label_S = logs_SC[::stride].astype(np.float64), label_S[::stride]
    picked_S = logs_SC[np.arange(len(label_S)), label_S]
    if (picked_S >= logs_SC.max(1)).all():
        return None

    def look(cold: float) -> tuple[float, float, float]:
        scaled = logs_SC * cold
        top = scaled.max(1, keepdims=True)
        weight = np.exp(scaled - top)
        total = weight.sum(1, keepdims=True)
        mean = (weight * logs_SC).sum(1) / total[:, 0]
        square = (weight * np.square(logs_SC)).sum(1) / total[:, 0]
        loss = float((top[:, 0] + np.log(total[:, 0]) - cold * picked_S).mean())
        return loss, float((mean - picked_S).mean()), float((square - mean**2).mean())

    low, high, cold = 1 / HOTTEST, 1 / COLDEST, 1.0
    first, slope, curve = look(cold)
    for _ in range(40):
        low, high = (cold, high) if slope < 0 else (low, cold)
        step = cold - slope / curve if curve > 1e-12 else math.nan
        following = step if low < step < high else math.sqrt(low * high)
        if abs(following - cold) < 1e-6 * cold:
            break
        cold = following
        loss, slope, curve = look(cold)
    loss = look(cold)[0]
    inside = 1.01 / HOTTEST < cold < 0.99 / COLDEST
    return Temperature(1 / cold, first, loss) if inside and math.isfinite(loss) else None
