"""Samples from use against what a run was trained on: which features have shifted, and what would explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.distributions.multiplicity import holm
from torchdoctor.errors import UsageError
from torchdoctor.facts import SkewFact, TokensFact
from torchdoctor.findings import Finding
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.serving.alignment import Aligned, Mismatch, align
from torchdoctor.instruments.serving.explanations import explain
from torchdoctor.instruments.serving.shifts import Summary, beta_binomial_tail, least_samples, measure, summarise
from torchdoctor.instruments.serving.trained import Trained, read_trained
from torchdoctor.instruments.serving.use_samples import UseSamples, load_samples
from torchdoctor.report.text import count as counted
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data import training_serving_skew as rule
from torchdoctor.rules.data.train_validation_mismatch import LEAST_SAMPLES as LEAST_TEXTS
from torchdoctor.rules.data.train_validation_mismatch import LEAST_TOKENS, variation
from torchdoctor.run import Run, Seen

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NUMBERS = 200_000_000
"""Numbers that are looked at; of larger samples fewer are taken."""
MOSTLY = 0.5
"""Share of features outside of their range at which a few samples are told to be of another kind."""
KNOWN = 200
"""Training samples from which on their range says so much."""
UNKNOWN_IDS = 0.05
"""Share of token ids above all that were seen in training; rare words stay below."""


@dataclass(frozen=True)
class FeatureShift:
    """One feature in training and in use."""

    name: str
    trained_mean: float
    trained_std: float
    used_mean: float
    used_std: float
    distance: float
    """population stability index of normal distributions with these means and spreads"""
    chance: float
    """how likely it is off so far by chance, all features taken into account"""
    outside: float
    """share of samples outside of the range seen in training"""
    shifted: bool

    @property
    def moved(self) -> float:
        """Difference of the means in standard deviations of training."""
        return (self.used_mean - self.trained_mean) / self.trained_std if self.trained_std > 0 else float("nan")

    @property
    def ratio(self) -> float:
        """Spread in use over that of training."""
        return self.used_std / self.trained_std if self.trained_std > 0 else float("nan")


@dataclass(frozen=True)
class Skew(Result):
    """`finding` is training-serving-skew (D016) where samples from use do not fit, else None."""

    source: str
    samples: int
    trained: int
    """different training samples that the run has looked at"""
    unit: str
    features: list[FeatureShift]
    """the farthest off first"""
    mismatches: list[Mismatch]
    explanation: dict[str, str] | None
    tokens: float | None
    finding: Finding | None
    not_compared: list[str]
    notes: list[str]
    fact: SkewFact = field(repr=False)
    too_few: int | None = None
    """samples that comparing means and spreads takes, where there are fewer; then only ranges are"""

    @property
    def shifted(self) -> list[FeatureShift]:
        return [f for f in self.features if f.shifted]

    def to_dict(self) -> dict[str, Any]:
        data = super().to_dict()
        del data["fact"]
        data["finding"] = self.finding.to_dict() if self.finding is not None else None
        return data

    def __str__(self) -> str:
        from torchdoctor.instruments.serving.text import describe

        return describe(self)

    def plot(self) -> Figure:
        """Each feature by how far its mean has moved and its spread has changed, and what counts as equal."""
        from torchdoctor.instruments.serving.text import draw

        return draw(self)


def compare_samples(
    run: Run | str | Path,
    samples: Any,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    limit: int = 100_000,
) -> Skew:
    """Compare samples from use, as the model gets them, with the training inputs that a run recorded.

    `run` is a recorded run or its folder. `samples`: a tensor or array with a sample a row, or a file: .npy, .npz, .pt,
    .safetensors, .csv, .tsv or .parquet; `key` picks an array of several, `columns` and `drop` pick columns of a table.
    Of more than `limit` samples every so many are taken. A run records mean, spread and range of each feature of the
    model's first input, over at most 40 batches; `not_compared` says what cannot be told from that.
    """
    if limit < 1:
        raise UsageError(f"limit is {limit}; at least one sample has to be looked at")
    trained = read_trained(_open(run))
    given = load_samples(samples, key, columns, drop, limit)
    given = _within_memory(given)
    given = _fitting_type(given, trained)
    aligned = align(given, trained)
    found = _compare(given, aligned, trained)
    return _result(replace(found, notes=[*given.notes, *aligned.notes, *found.notes]))


def with_skew(run: Run, skew: Skew) -> Run:
    """The same run, together with how samples from use differ from it, for the rule that needs them."""
    return replace(run, seen=(*run.seen, Seen(run.steps, skew.fact)), _cache={})


def _open(run: Run | str | Path) -> Run:
    if isinstance(run, Run):
        return run
    from torchdoctor.shelf import resolve
    from torchdoctor.store.reader import open_run

    return open_run(resolve(Path(run))[0])


def _within_memory(given: UseSamples) -> UseSamples:
    every = -(-given.values.size // NUMBERS)
    if every <= 1 or len(given.values) <= 1:
        return given
    note = f"of {len(given.values)} large samples one in {every} is looked at"
    return replace(given, values=given.values[::every], notes=[*given.notes, note])


def _fitting_type(given: UseSamples, trained: Trained) -> UseSamples:
    """Token ids may come as floats out of a table, and truth values as such."""
    values = given.values
    if values.dtype.kind == "b":
        return replace(given, values=values.astype(np.float64))
    if trained.is_text and values.dtype.kind == "f" and bool((values == np.round(values)).all()):
        return replace(given, values=values.astype(np.int64))
    return given


@dataclass(frozen=True)
class _Compared:
    fact: SkewFact
    not_compared: list[str]
    notes: list[str] = field(default_factory=list)
    too_few: int | None = None


def _compare(given: UseSamples, aligned: Aligned, trained: Trained) -> _Compared:
    values, mismatches = aligned.values, list(aligned.mismatches)
    count = len(values) if values is not None else len(given.values)
    fact = SkewFact(given.source, count, trained.samples, trained.unit, mismatches=mismatches)
    if values is None:
        return _Compared(fact, ["features, since the shapes do not fit"])
    if trained.is_text and values.dtype.kind == "f":
        text = f"samples are {values.dtype}, training had token ids ({trained.dtype})"
        kind = {"kind": "type", "text": text, "fix": "Encode samples in use with the tokenizer of the training."}
        return _Compared(replace(fact, mismatches=[*mismatches, kind]), ["token ids, since the samples hold none"])
    found = summarise(values, trained)
    missing, notes = _missing(found, trained)
    fact = replace(fact, mismatches=[*mismatches, *missing])
    if trained.is_text:
        return replace(_compare_tokens(fact, values, found, trained), notes=notes)
    return replace(_compare_features(fact, found, given, trained), notes=notes)


def _missing(found: Summary, trained: Trained) -> tuple[list[Mismatch], list[str]]:
    """A mismatch where there are more than training may have had unseen, else a note."""
    broken, count = int(found.broken.sum()), len(found.broken)
    if not broken or trained.nonfinite:
        return [], []
    hold = "holds" if broken == 1 else "hold"
    text = f"{broken} of {counted(count, 'sample')} {hold} missing or infinite values, training had none"
    if beta_binomial_tail(count, trained.samples, sides=1)[broken] >= rule.SURE:
        return [], [f"{text}: so few may be chance, but what a model makes of them is NaN as a rule"]
    fix = "Fill in missing values in use as in training, before the model."
    return [{"kind": "missing", "text": text, "fix": fix}], []


def _compare_features(fact: SkewFact, found: Summary, given: UseSamples, trained: Trained) -> _Compared:
    shifts, few = measure(found, trained), len(found.first) < least_samples(found)
    fact = replace(
        fact,
        names=_names(given, trained),
        distance=[float(v) for v in shifts.distance],
        chance=[float(v) for v in shifts.chance],
        trained_mean=[float(v) for v in trained.centre],
        trained_std=[float(v) for v in trained.spread],
        used_mean=[float(v) for v in shifts.mean],
        used_std=[float(v) for v in shifts.std],
        outside=[float(v) for v in shifts.outside],
        outside_chance=[float(v) for v in shifts.outside_chance],
    )
    far = few and trained.samples >= KNOWN and float((shifts.outside > MOSTLY).mean()) > MOSTLY
    shifted = rule.find_shifted(fact).any
    if shifted and not few:
        fact = replace(fact, explanation=explain(shifts, trained, shifted, len(found.first)))
    if far:
        fact = replace(fact, mismatches=[*fact.mismatches, _range_text(found, trained)])
    return _Compared(fact, _not_compared(found, trained, few), too_few=least_samples(found) if few else None)


def _range_text(found: Summary, trained: Trained) -> Mismatch:
    low, high = figure(float(trained.low.min())), figure(float(trained.high.max()))
    text = f"values run from {figure(found.low)} to {figure(found.high)}, in training from {low} to {high}"
    return {"kind": "range", "text": text, "fix": "Scale them in use as in training."}


def _not_compared(found: Summary, trained: Trained, few: bool) -> list[str]:
    said = ["histograms and relations between features (a run records mean, spread and range of each)"]
    if few:
        said.insert(0, f"means and spreads, since that takes {least_samples(found)} samples or more")
    dim = trained.feature_dim
    if dim is None:
        said.append("single features, since whole numbers are recorded all together")
    elif len(trained.index) < trained.shapes[0][dim - 1]:
        every = trained.index[1] - trained.index[0]
        said.append(f"all {trained.shapes[0][dim - 1]} {trained.unit}s: one in {every} is recorded")
    if trained.nonfinite:
        said.append("missing values, since training had some, too")
    said.append("inputs of the model other than its first")
    return said


def _names(given: UseSamples, trained: Trained) -> list[str]:
    if trained.feature_dim is None:
        return ["all values"]
    if given.names:
        return [given.names[i] for i in trained.index]
    return [f"{trained.unit} {i}" for i in trained.index]


def _compare_tokens(fact: SkewFact, values: NDArray[Any], found: Summary, trained: Trained) -> _Compared:
    highest = float(trained.high.max())
    unknown = float((values > highest).mean())
    mismatches = list(fact.mismatches)
    if found.low < min(0.0, float(trained.low.min())):
        text = f"token ids go down to {found.low:.0f}, in training to {trained.low.min():.0f}"
        mismatches.append(
            {"kind": "ids", "text": text, "fix": "Encode texts in use with the tokenizer of the training."}
        )
    if unknown > UNKNOWN_IDS and trained.samples >= KNOWN:
        text = f"{unknown:.0%} of the token ids lie above {highest:.0f}, the highest seen in training"
        mismatches.append(
            {"kind": "ids", "text": text, "fix": "Encode texts in use with the tokenizer of the training."}
        )
    not_compared = ["which token follows which, and how long texts are"]
    tokens = None
    if trained.tokens is None or not trained.tokens.counts:
        not_compared.append("how often tokens occur, which the run has not recorded")
    elif len(values) < LEAST_TEXTS or values.size < LEAST_TOKENS:
        not_compared.append(f"how often tokens occur: that takes {LEAST_TEXTS} samples and {LEAST_TOKENS} tokens")
    else:
        buckets = len(trained.tokens.counts)
        counts = np.bincount((values % buckets).reshape(-1), minlength=buckets)
        tokens = variation(trained.tokens, TokensFact("use", "", len(values), counts.tolist()))
    return _Compared(replace(fact, unit="token id", mismatches=mismatches, tokens=tokens), not_compared)


def _result(compared: _Compared) -> Skew:
    fact = compared.fact
    shifted = set(rule.find_shifted(fact).any)
    adjusted, count = holm([*fact.chance, *fact.outside_chance]), len(fact.names)
    features = [
        FeatureShift(
            name=fact.names[i],
            trained_mean=fact.trained_mean[i],
            trained_std=fact.trained_std[i],
            used_mean=fact.used_mean[i],
            used_std=fact.used_std[i],
            distance=fact.distance[i],
            chance=min(adjusted[i], adjusted[count + i]),
            outside=fact.outside[i],
            shifted=i in shifted,
        )
        for i in range(count)
    ]
    said = rule.detect(Run.holding(fact))
    return Skew(
        source=fact.source,
        samples=fact.samples,
        trained=fact.trained,
        unit=fact.unit,
        features=sorted(features, key=lambda f: (not f.shifted, -f.distance)),
        mismatches=fact.mismatches,
        explanation=fact.explanation,
        tokens=fact.tokens,
        finding=next((f for f in said if isinstance(f, Finding)), None),
        not_compared=compared.not_compared,
        notes=compared.notes,
        fact=fact,
        too_few=compared.too_few,
    )
