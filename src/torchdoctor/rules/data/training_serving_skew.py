"""What the model gets in use differs from what it was trained on.

## What it means
In training and validation the model does well; in use it gets inputs of another scale, order, encoding or origin. It
answers all the same, and nothing fails: its answers are merely wrong.

## Why it happens
- Preprocessing is written twice, once for training and once for use, and one of them lacks a step: pixels from 0 to 255
  where training had 0 to 1, a normalisation that is missing or applied twice.
- Columns come in another order, channels as BGR instead of RGB, pictures with their channels last.
- A missing value is filled in otherwise, a join fails and leaves a column constant, a unit has changed.
- Texts are encoded with another vocabulary.
- The world has changed since, or use has other customers, sensors or seasons than the training data.

## How it is detected
`torchdoctor skew RUN SAMPLES` compares samples from use with what the run recorded of its training batches: shape, type
and range, and mean and spread of each feature (a column of a table, a channel of a picture). The distance of a feature
is the population stability index of two normal distributions with these means and spreads: 0.25 for a mean that is off
by half a standard deviation, or a spread that is off by a factor of 1.4. A feature has shifted if it is off by 0.25 and
batches of the same size differ so much by chance less than once in 100 times, all features taken into account; or if
one sample in 20 lies outside of the range seen in training, as surely. Token ids are counted in 64 classes, which must
differ by 0.15 in total variation beyond chance. What does not fit at all (shape, missing values that training had none
of) needs no statistics. Where one change (a factor, a normalisation, another order) makes the samples fit, it is named.
It is an error where such a change is found, nothing fits or the feature in the middle is off by 6; a warning where
features have shifted, and an info where they are few of many and not far off.

## How to fix it
Use one function for preprocessing, save it (or its constants, and the order of columns) beside the model, and call it
in training and in use. Where the world has changed, train again with data of today.

## Known false alarms
Samples that are not meant to be typical: one customer, one day, the hard cases. Training data that was balanced or
augmented on purpose differs from use by that much. Samples must be taken where the model gets them, after all
preprocessing.

## References
Breck et al., "Data Validation for Machine Learning" (2019). Sculley et al., "Hidden Technical Debt in Machine Learning
Systems" (2015). Rabanser, Guennemann and Lipton, "Failing Loudly: An Empirical Study of Methods for Detecting Dataset
Shift" (2019). Yurdakul, "Statistical Properties of Population Stability Index" (2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from torchdoctor.distributions.multiplicity import holm
from torchdoctor.facts import SkewFact
from torchdoctor.findings import Evidence, Finding, Fix, Proof, RuledOut, Severity
from torchdoctor.rules.curves import figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="D016",
    name="training-serving-skew",
    family="data",
    needs=(SkewFact,),
    explains=("miscalibrated", "weak-slice"),
)

FAR = 0.25
"""Population stability index that calls for action by the usual convention (Yurdakul 2018, section 1)."""
SURE = 0.01
"""Chance of any false alarm over all features of one comparison."""
OUTSIDE = 0.05
"""Share of samples outside of the range seen in training."""
OTHER_TOKENS = 0.15
"""As for training against validation (train-validation-mismatch)."""
FEW, VERY_FAR = 0.05, 1.0
"""Shifted features up to this share, none of them farther off than a standard deviation: drift as it is common."""
CERTAIN = 6.0
"""Of the feature in the middle: a factor of four in spread, or two and a half standard deviations (symmetric form of
the limit of train-validation-mismatch)."""
LEAST_CERTAIN = 30
"""Samples from which on that is more than a few odd ones."""
MILD = ("size",)
"""Mismatches that a model may well bear: pictures of another size, where layers take any."""
SHOWN = 5


@dataclass(frozen=True)
class Shifted:
    """Which features have shifted, in the order of the fact."""

    moved: list[bool]
    outside: list[bool]

    @property
    def any(self) -> list[int]:
        return [i for i, pair in enumerate(zip(self.moved, self.outside, strict=True)) if any(pair)]


def find_shifted(fact: SkewFact) -> Shifted:
    count = len(fact.names)
    adjusted = holm([*fact.chance, *fact.outside_chance])
    return Shifted(
        [fact.distance[i] >= FAR and adjusted[i] < SURE for i in range(count)],
        [fact.outside[i] >= OUTSIDE and adjusted[count + i] < SURE for i in range(count)],
    )


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    fact = run.last_fact(SkewFact)
    if fact is None:
        return
    shifted = find_shifted(fact)
    words = fact.tokens is not None and fact.tokens > OTHER_TOKENS
    if fact.mismatches or fact.explanation or words or shifted.any:
        yield _finding(fact, shifted, words)
    elif all(map(math.isfinite, fact.distance)) and (fact.distance or fact.tokens is not None):
        farthest = max(fact.distance, default=fact.tokens or 0.0)
        text = f"{fact.samples} samples from use have the mean and spread of what was trained on"
        yield RuledOut(RULE.name, text, SkewFact.kind, farthest)


def _finding(fact: SkewFact, shifted: Shifted, words: bool) -> Finding:
    structural = bool(fact.mismatches or fact.explanation)
    return RULE.finding(
        severity=_severity(fact, shifted, words),
        confidence=0.95 if structural else 0.85 if fact.samples >= 100 else 0.75,
        proof=Proof.STRUCTURE if fact.mismatches else Proof.STATISTICS,
        title=_title(fact, shifted, words),
        summary=_summary(fact, shifted, words),
        fix=_fix(fact, words),
        evidence=list(_evidence(fact, shifted, words)),
        symptoms=("high-accuracy-fails-in-use",),
    )


def _severity(fact: SkewFact, shifted: Shifted, words: bool) -> Severity:
    grave = any(m["kind"] not in MILD for m in fact.mismatches)
    far = bool(fact.distance) and median(fact.distance) >= CERTAIN and fact.samples >= LEAST_CERTAIN
    if grave or fact.explanation or far:
        return Severity.ERROR
    if fact.mismatches:
        return Severity.WARNING
    few = len(shifted.any) <= FEW * len(fact.names)
    near = all(fact.distance[i] < VERY_FAR and not shifted.outside[i] for i in shifted.any)
    return Severity.INFO if few and near and not words else Severity.WARNING


def _title(fact: SkewFact, shifted: Shifted, words: bool) -> str:
    if fact.explanation:
        return f"Samples from use do not fit what was trained on: {fact.explanation['text']}"
    if fact.mismatches:
        return f"Samples from use do not fit what was trained on: {fact.mismatches[0]['text']}"
    if words:
        return "Samples from use have other token ids than training"
    many, count = len(fact.names), len(shifted.any)
    if many == 1:
        return "The inputs in use are not like those of training"
    return f"{count} of {many} {fact.unit}s in use are not like those of training"


def _summary(fact: SkewFact, shifted: Shifted, words: bool) -> str:
    if fact.explanation:
        return f"{_upper(fact.explanation['text'])}. The model has never seen such inputs, and answers nevertheless."
    if fact.mismatches:
        return "; ".join(_upper(m["text"]) for m in fact.mismatches[:3]) + "."
    if words:
        return (
            "The ids that are frequent in use are not those that were frequent in training: another vocabulary or "
            "encoding, or texts from elsewhere. To the model they are other words."
        )
    farthest = sorted(shifted.any, key=lambda i: -fact.distance[i])[:3]
    names = ", ".join(fact.names[i] for i in farthest)
    more = f" and {len(shifted.any) - 3} more" if len(shifted.any) > 3 else ""
    return (
        f"Shifted beyond chance among {fact.samples} samples: {names}{more}. They are prepared differently in use, or "
        "come from elsewhere than the training data."
    )


def _evidence(fact: SkewFact, shifted: Shifted, words: bool) -> Iterator[Evidence]:
    for mismatch in fact.mismatches:
        yield Evidence(mismatch["text"])
    if words:
        text = f"{fact.tokens:.0%} of the token ids, beyond chance, lie where training has fewer of them"
        yield Evidence(text, SkewFact.kind, fact.tokens, OTHER_TOKENS)
    for i in sorted(shifted.any, key=lambda i: -fact.distance[i])[:SHOWN]:
        yield Evidence(describe(fact, i, shifted), SkewFact.kind, fact.distance[i], FAR)
    if len(shifted.any) > SHOWN:
        yield Evidence(f"{len(shifted.any) - SHOWN} more {fact.unit}s have shifted")


def describe(fact: SkewFact, i: int, shifted: Shifted) -> str:
    """One feature in training and in use."""
    figures = (fact.trained_mean[i], fact.trained_std[i], fact.used_mean[i], fact.used_std[i])
    t_mean, t_std, u_mean, u_std = (figure(v) for v in figures)
    text = f"{fact.names[i]}: mean {t_mean}, spread {t_std} in training; {u_mean} and {u_std} in use"
    if fact.used_std[i] == 0 and fact.trained_std[i] > 0 and shifted.moved[i]:
        text += ", where it is constant"
    if shifted.outside[i]:
        text += f"; {fact.outside[i]:.0%} of the samples lie outside of the range seen in training"
    return text


def _fix(fact: SkewFact, words: bool) -> Fix:
    told = [m["fix"] for m in (fact.explanation or {}, *fact.mismatches) if m.get("fix")]
    if told:
        return Fix(" ".join(f"{text.rstrip('.')}." for text in dict.fromkeys(told)))
    if words:
        return Fix("Encode texts in use with the tokenizer that was saved with the training.")
    return Fix(
        "Follow one sample from its source to the model in use and in training, and use one preprocessing for both; if "
        "that is equal, the data has changed: train again with samples of today."
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
