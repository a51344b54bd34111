"""Validation is drawn and prepared as training is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.data.balance import CLASSES, READ
from torchdoctor.checks.data.comparison import compare, differ_in_kinds, take_moments
from torchdoctor.checks.data.sources import Source, inputs_of, target_of
from torchdoctor.checks.model.looks import looks_of
from torchdoctor.checks.model.records import worst_of
from torchdoctor.facts import TRAIN, VALIDATION, TokensFact
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.tables import listed
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.probes.membership import BUCKETS
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data.train_validation_mismatch import CERTAIN, FAR, OTHER_TOKENS, RULE, Distance, variation

CHECK = Check(
    name="validation-alike",
    asks="validation is drawn and prepared as training is",
    part=DATA,
    order=40,
    diagnoses=(RULE.name,),
)
SAMPLES = 256
"""Of each split that are compared, from all over it."""
OTHER_LABELS, MANY_OTHER = 0.1, 0.25
"""Total variation between the labels of the splits that is told, and that a random split never gives."""
UNKNOWN = 0.02
"""Share of validation in classes that training does not have."""
STANDARD = (0.3, 0.5, 2.0)
"""Mean up to which, and spread between which, inputs count as standardised."""
BYTES = 255.0
SAME_FACTOR = 1.2
FIX = Fix(
    "Apply the same deterministic preprocessing, with the constants fitted on the training part, to both.",
    "mean, std = X_train.mean(0), X_train.std(0)\nX_train, X_val = (X_train - mean) / std, (X_val - mean) / std",
)


def perform(bench: Bench) -> Outcome:
    if not bench.validation or not bench.train:
        return skipped(bench.without("validation data" if bench.train else "training batch"))
    sources = Source(bench.train_loader, bench.train), Source(bench.validation_loader, bench.validation)
    everywhere = all(source.is_indexed or isinstance(source.loader, list | tuple) for source in sources)
    train, held = (source.batches_across(SAMPLES) for source in sources)
    pairs = paired_inputs(train, held)
    judged = worst_of(
        _judge_kinds(bench, pairs),
        _judge_inputs(pairs, everywhere),
        _judge_tokens(pairs, everywhere),
        _judge_labels(bench, *sources) if everywhere else None,
        _judge_numbers(train, held) if everywhere else None,
    )
    if judged is not None:
        return judged
    if not pairs:
        return skipped("batches of training and validation hold nothing that could be compared")
    return _pass(pairs, everywhere)


def paired_inputs(train: list[Any], held: list[Any]) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """Tensors that stand at the same place of both splits' batches, by that place."""
    found: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    for side, batches in enumerate((train, held)):
        for batch in batches:
            for place, tensor in _places(inputs_of(batch)).items():
                found.setdefault(place, ([], []))[side].append(tensor)
    return {place: pair for place, pair in found.items() if pair[0] and pair[1]}


def _places(inputs: Any) -> dict[str, Tensor]:
    if isinstance(inputs, Mapping):
        return {str(name): value for name, value in inputs.items() if isinstance(value, Tensor)}
    return {str(i): tensor for i, tensor in enumerate(batch_tensors(inputs))}


def _called(place: str, pairs: Mapping[str, Any]) -> str:
    return "inputs" if len(pairs) == 1 else f"input {place}" if place.isdigit() else place


# -- type and shape ------------------------------------------------------------------------------


def _judge_kinds(bench: Bench, pairs: dict[str, tuple[list[Tensor], list[Tensor]]]) -> Outcome | None:
    error = next((look.error for look in looks_of(bench).validation if look.error is not None), None)
    severity = Severity.WARNING if error is None else Severity.ERROR
    told = () if error is None else (f"the step fails on it: {type(error).__name__}: {error}"[:200],)
    for place, (train, held) in pairs.items():
        types, name = [{t.dtype for t in part} for part in (train, held)], _called(place, pairs)
        floating = [{t.is_floating_point() for t in part} for part in (train, held)]
        if types[0].isdisjoint(types[1]) and (error is not None or floating[0] != floating[1]):
            a, b = (str(next(iter(kind))).removeprefix("torch.") for kind in types)
            text = f"{name} of training are {a}, of validation {b}"
            return failed(text, RULE.name, FIX, severity=severity, evidence=told)
        shapes = [{_essential(t) for t in part} for part in (train, held)]
        if shapes[0].isdisjoint(shapes[1]):
            a, b = (tuple(part[0].shape[1:]) for part in (train, held))
            text = f"samples of {name} have shape {a} in training and {b} in validation"
            return failed(text, RULE.name, FIX, severity=severity, evidence=told)
    return None


def _essential(tensor: Tensor) -> tuple[int, ...]:
    """Of a shape, what a model cannot do without: channels and columns, not the size of pictures or sequences."""
    width = tensor.shape[1] if tensor.is_floating_point() and tensor.dim() in (2, 4, 5) else 0
    return tensor.dim(), width


# -- values --------------------------------------------------------------------------------------


def _judge_inputs(pairs: dict[str, tuple[list[Tensor], list[Tensor]]], everywhere: bool) -> Outcome | None:
    for place, (train, held) in pairs.items():
        name = _called(place, pairs)
        bad = [sum(int((~t.isfinite()).sum()) for t in part if t.is_floating_point()) for part in (train, held)]
        if bad[1] and not bad[0]:
            text = f"{name} of validation hold {bad[1]} NaN or Inf, those of training none"
            return failed(text, RULE.name, FIX, severity=Severity.WARNING)
        distance = compare(take_moments(train), take_moments(held))
        if distance is None or any(bad):
            continue
        certain = distance.middle >= CERTAIN and distance.is_scaled
        few = distance.few >= max(1, 0.02 * len(distance.nats))
        if certain or (everywhere and (distance.middle >= FAR or few)):
            return _unlike(name, distance, Severity.ERROR if certain else Severity.WARNING)
    return None


def _unlike(name: str, distance: Distance, severity: Severity) -> Outcome:
    worst = distance.worst
    (mean_t, std_t), (mean_v, std_v) = (
        [figure(float(p[worst])) for p in side] for side in (distance.trained, distance.validated)
    )
    feature = f"feature {worst}: " if len(distance.nats) > 1 else ""
    off = int((distance.nats >= FAR).sum())
    return failed(
        f"{name} are not alike: {relation(distance)}",
        RULE.name,
        FIX,
        severity=severity,
        evidence=(
            f"{off} of {len(distance.nats)} features differ by more than chance and augmentation explain",
            f"{feature}mean {mean_t}, spread {std_t} in training; mean {mean_v}, spread {std_v} in validation",
        ),
        nats=distance.middle,
        features=off,
    )


def relation(distance: Distance) -> str:
    """What seems to have been done to one split and not to the other."""
    factor = distance.scale
    (mean_t, std_t), (mean_v, std_v) = (
        [float(np.median(part)) for part in side] for side in (distance.trained, distance.validated)
    )
    if distance.middle < FAR:
        are = "is" if distance.few == 1 else "are"
        return f"{distance.few} of {len(distance.nats)} features {are} on another scale in validation"
    for times, raw, divided in ((factor, "validation", "training"), (1 / factor, "training", "validation")):
        if BYTES / SAME_FACTOR < times < BYTES * SAME_FACTOR:
            return f"{raw} is 255 times as large, as if only {divided} were divided by 255"
    shifted = f"validation is shifted by {figure(float(np.median(distance.moved)))} times the spread of training"
    if _is_standard(mean_t, std_t) != _is_standard(mean_v, std_v):
        done, raw, mean, std = (
            ("training", "validation", mean_v, std_v)
            if _is_standard(mean_t, std_t)
            else ("validation", "training", mean_t, std_t)
        )
        if _has_standard_spread(std):  # divided by the same constants: what has drifted is the data
            return shifted
        return f"{done} is standardised and {raw} is not (mean {figure(mean)}, spread {figure(std)})"
    return f"validation varies {figure(factor)} times as much as training" if distance.is_scaled else shifted


def _is_standard(mean: float, std: float) -> bool:
    return abs(mean) <= STANDARD[0] and _has_standard_spread(std)


def _has_standard_spread(std: float) -> bool:
    return STANDARD[1] <= std <= STANDARD[2]


def _judge_tokens(pairs: dict[str, tuple[list[Tensor], list[Tensor]]], everywhere: bool) -> Outcome | None:
    for place, (train, held) in pairs.items():
        facts = [_count_tokens(part, phase) for part, phase in ((train, TRAIN), (held, VALIDATION))]
        if facts[0] is None or facts[1] is None:
            continue
        apart = variation(facts[0], facts[1])
        if apart > OTHER_TOKENS * (1 if everywhere else 2):
            name = _called(place, pairs)
            return failed(
                f"{apart:.0%} of the ids in validation's {name} are other than training's, beyond chance",
                RULE.name,
                Fix(
                    "Build the vocabulary from the training texts once, save it, and encode both splits with it.",
                    "train, val = encode(train_texts, vocabulary), encode(val_texts, vocabulary)",
                ),
                severity=Severity.WARNING,
                variation=apart,
            )
    return None


def _count_tokens(tensors: list[Tensor], phase: str) -> TokensFact | None:
    whole = [t for t in tensors if t.dtype in (torch.int32, torch.int64) and t.dim() == 2]
    if not whole:
        return None
    counts = sum(torch.bincount(t.flatten().cpu() % BUCKETS, minlength=BUCKETS) for t in whole)
    return TokensFact(phase, "", sum(map(len, whole)), counts.tolist())  # type: ignore[union-attr]


# -- labels --------------------------------------------------------------------------------------


def _judge_labels(bench: Bench, train: Source, held: Source) -> Outcome | None:
    calls = [call.function for look in looks_of(bench).train for call in look.calls]
    if not calls or any(c not in CLASSES for c in calls) or not (train.is_indexed and held.is_indexed):
        return None
    a, b = train.labels_across(READ), held.labels_across(READ)
    if a is None or b is None or any(len(np.unique(part)) > len(part) // 5 for part in (a, b)):
        return None
    apart, sure = differ_in_kinds(a.astype(np.float64), b.astype(np.float64))
    fix = Fix(
        "Split at random, or by class, so that both parts have the same share of each.",
        "train_test_split(X, y, test_size=0.2, stratify=y)  # scikit-learn",
    )
    fresh = np.setdiff1d(b, a)
    unknown = float(np.isin(b, fresh).mean())
    if len(a) == len(train.indices) and unknown >= UNKNOWN:
        names = f"{'class' if len(fresh) == 1 else 'classes'} {listed([str(int(kind)) for kind in fresh])}"
        text = f"{unknown:.0%} of the validation samples are of {names}, of which training has none"
        return failed(text, RULE.name, fix, unknown=unknown)
    if not sure or apart < OTHER_LABELS:
        return None
    shares = {kind: ((a == kind).mean(), (b == kind).mean()) for kind in np.unique(np.concatenate([a, b]))}
    kind, (here, there) = max(shares.items(), key=lambda item: abs(item[1][0] - item[1][1]))
    text = f"class {kind:g} has {here:.0%} of the training and {there:.0%} of the validation samples, beyond chance"
    return failed(
        text, RULE.name, fix, severity=Severity.WARNING if apart >= MANY_OTHER else Severity.INFO, apart=apart
    )


def _judge_numbers(train: list[Any], held: list[Any]) -> Outcome | None:
    """Targets that are numbers."""
    parts = [[t for batch in batches for t in batch_tensors(target_of(batch))[:1]] for batches in (train, held)]
    distance = compare(*(take_moments(part) for part in parts))
    if distance is None or distance.middle < FAR:
        return None
    return _unlike("targets", distance, Severity.WARNING)


def _pass(pairs: dict[str, tuple[list[Tensor], list[Tensor]]], everywhere: bool) -> Outcome:
    count = [max(sum(map(len, pair[side])) for pair in pairs.values()) for side in (0, 1)]
    where = "" if everywhere else " (the first that come: subtle differences are not judged)"
    return passed(
        f"{count[0]} and {count[1]} samples are alike in type, shape and values, within sampling error{where}",
        train=count[0],
        validation=count[1],
    )
