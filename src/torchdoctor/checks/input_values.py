"""Inputs are finite, they vary, they are of a size and a type that the model is made for, and ids are inside tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.data.contamination import contaminated
from torchdoctor.checks.data.sources import Source, inputs_of
from torchdoctor.checks.model.looks import Look, Looks, Lookup, look_at, looks_of
from torchdoctor.checks.model.mode_modules import sensitive_of
from torchdoctor.checks.model.records import found, main_input, outcome_of, record_of, worst_of
from torchdoctor.facts import TRAIN, InputsFact
from torchdoctor.findings import Fix, Severity
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data import constant_inputs, nan_in_inputs, unnormalized_inputs
from torchdoctor.rules.data.columns import is_constant
from torchdoctor.rules.data.unnormalized_inputs import FIRST_MODULES, LARGE, NORMS, SPREAD
from torchdoctor.rules.nonfinite import Contamination, counted
from torchdoctor.rules.nonfinite import Outcome as Effect
from torchdoctor.run import Run

CHECK = Check(
    name="input-values",
    asks="inputs are finite, scaled, varied and of the type the model takes",
    part=DATA,
    order=10,
    diagnoses=("nan-in-inputs", "unnormalized-inputs", "constant-inputs"),
)
TINY = 1e-3
"""Root mean square below which a first layer gives its bias and nothing else: its weights times the inputs are then a
thousandth of that."""
INSIDE = 0.2
"""What reaches the first layer over what the model is given: far less means that the model scales it itself."""


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped(bench.without("training batch"))
    looks = looks_of(bench)
    if not any(look.inputs for look in looks.train):
        return skipped(f"the model was not reached: {_said(looks)}")
    source = Source(bench.train_loader, bench.train)
    run = record_of(bench)
    judged = worst_of(
        _judge_ids(looks, source),
        _judge_finite(bench, looks, source),
        _judge_type(bench, looks),
        _judge_variety(run),
        _judge_scale(bench, looks, run),
    )
    return judged or _pass(bench, looks, run)


def _said(looks: Looks) -> str:
    return f"{type(looks.error).__name__}: {looks.error}"[:200] if looks.error is not None else "it is never called"


# -- ids ---------------------------------------------------------------------------------------


def _judge_ids(looks: Looks, source: Source) -> Outcome | None:
    lookups = [lookup for look in looks.train for lookup in look.lookups]
    wrong = next((lookup for lookup in lookups if not lookup.fits), None)
    if wrong is not None:
        return _out_of_range(wrong, "")
    for position, column in source.unchanged.items():
        asked = _looked_up(looks.train[0], position)
        for values, places in column.portions() if asked is not None else ():
            outside = ((values < 0) | (values >= asked.rows)).reshape(len(values), -1).any(1)
            if bool(outside.any()):
                sample = source.indices[places[int(outside.nonzero()[0])]]
                ends = int(values.min()), int(values.max())
                return _out_of_range(Lookup(asked.module, *ends, asked.rows), f"; it is in sample {sample}")
    return None


def _looked_up(look: Look, position: int) -> Lookup | None:
    """The table that the input at that place of a batch goes into, told by its range."""
    tensors = batch_tensors(inputs_of(look.batch))
    if position >= len(tensors) or tensors[position].is_floating_point() or not tensors[position].numel():
        return None
    ends = int(tensors[position].min()), int(tensors[position].max())
    fitting = [lookup for lookup in look.lookups if (lookup.low, lookup.high) == ends]
    return fitting[0] if len(fitting) == 1 else None


def _out_of_range(lookup: Lookup, where: str) -> Outcome:
    wrong = lookup.low if lookup.low < 0 else lookup.high
    return failed(
        f"id {wrong} is not in the embedding {lookup.module}, which has rows 0 to {lookup.rows - 1}{where}",
        None,
        Fix(
            "Make the embedding as large as the vocabulary, or map unknown ids to one of its rows.",
            f"nn.Embedding({max(lookup.high + 1, lookup.rows)}, width)"
            if lookup.low >= 0
            else f"ids = ids.clamp(0, {lookup.rows - 1})",
        ),
        low=lookup.low,
        high=lookup.high,
        rows=lookup.rows,
    )


# -- NaN ---------------------------------------------------------------------------------------


def _judge_finite(bench: Bench, looks: Looks, source: Source) -> Outcome | None:
    for step, look in enumerate(looks.train):
        for tensor in look.inputs:
            seen = contaminated(tensor, look, step)
            if seen is not None:
                return _not_finite(seen, f"batch {step}")
    for column in source.unchanged.values():
        for values, places in column.portions():
            if values.is_floating_point() and not bool(values.isfinite().all()):
                bad = places[(~values.isfinite()).reshape(len(values), -1).any(1).numpy()]
                seen = contaminated(values, look_at(bench, source.batches_of(bad[: source.batch_size])[0]), 0)
                if seen is not None:
                    samples = tuple(int(sample) for sample in source.indices[bad])
                    return _not_finite(seen, f"the training data ({counted('sample', samples)})")
    return None


def _not_finite(seen: Contamination, where: str) -> Outcome:
    handled = seen.outcome is Effect.HANDLED
    end = "the model masks or replaces them" if handled else "the model computes with them"
    columns = f" in {counted('feature', seen.features)}" if seen.features else ""
    return failed(
        f"{seen.what} in the inputs of {where}{columns}; {end}",
        nan_in_inputs.RULE.name,
        nan_in_inputs.repair(seen) if not handled else Fix("If missing values are meant as NaN, nothing."),
        severity=Severity.INFO if handled else Severity.ERROR,
        evidence=(f"{counted('sample', seen.samples)} of {seen.rows} hold some",) if "sample" not in where else (),
        count=seen.count,
    )


# -- type --------------------------------------------------------------------------------------


def _judge_type(bench: Bench, looks: Looks) -> Outcome | None:
    """Only where the step fails with it: a model may convert what it gets."""
    look = looks.train[0]
    weights = {p.dtype for p in bench.model.parameters()}
    given = main_input(look)
    if look.error is None or look.calls or given is None or len(weights) != 1 or not _is_about_types(look.error):
        return None
    wanted = next(iter(weights))
    if given.dtype == wanted or (look.first is not None and look.first.dtype == wanted):
        return None
    short = str(given.dtype).removeprefix("torch."), str(wanted).removeprefix("torch.")
    cast = {torch.float32: "x.float()", torch.float64: "x.double()"}.get(wanted, f"x.to({wanted})")
    image = given.dtype == torch.uint8
    return failed(
        f"inputs are {short[0]}, the model's weights {short[1]}, and the model does not convert them",
        None,
        Fix(
            "Turn the bytes into numbers between 0 and 1." if image else "Convert the inputs where they are loaded.",
            f"x = {cast} / 255" if image else f"x = {cast}",
        ),
        evidence=(f"{type(look.error).__name__}: {look.error}"[:200],),
    )


def _is_about_types(error: Exception) -> bool:
    told = r"dtype|scalar type|[Ii]nput type|data ?type|not implemented for|Double|Byte|Long|Half"
    return isinstance(error, RuntimeError | TypeError) and re.search(told, str(error)) is not None


# -- variety and scale -------------------------------------------------------------------------


def _judge_variety(run: Run) -> Outcome | None:
    looks = [f for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input" and f.fingerprints]
    spread = run.scalar(constant_inputs.BATCH_SPREAD, TRAIN).values
    sizes = [len(f.fingerprints) for f in looks]
    if not looks or max(sizes) < constant_inputs.LEAST_SAMPLES or not constant_inputs.targets_differ(run):
        return None
    fix = Fix(
        "Find the step of the pipeline after which samples are equal: a cast, an integer division, an unused index.",
        "x, y = next(iter(loader)); print(x.float().std(0).max(), x[0], x[1])",
    )
    marks = {mark for f in looks for mark in f.fingerprints}
    if len(marks) == 1:
        same = looks[0].low == looks[0].high
        text = f"all {sum(sizes)} samples looked at are equal" + (
            f": every value is {figure(looks[0].low or 0)}" * same
        )
        return failed(text, constant_inputs.RULE.name, fix, samples=sum(sizes))
    if len(spread) and float(spread.max()) < constant_inputs.NOTHING:
        text = f"samples differ by {float(spread.max()):.0e} of their size, which is hardly more than rounding"
        return failed(text, constant_inputs.RULE.name, fix, severity=Severity.WARNING, spread=float(spread.max()))
    dead = constant_inputs.dead_features(run)
    if dead is None:
        return None
    return failed(
        f"{dead[0]} of {dead[1]} input features never change (feature {dead[3]} is always {figure(dead[2])})",
        constant_inputs.RULE.name,
        Fix(
            "Check the join or the cast that fills these columns; drop them if they are constant by nature.",
            "print((x.amax(0) == x.amin(0)).nonzero())",
        ),
        severity=Severity.WARNING,
        dead=dead[0],
        features=dead[1],
    )


def _judge_scale(bench: Bench, looks: Looks, run: Run) -> Outcome | None:
    reached, size = _size([look.first for look in looks.train]), _size([main_input(look) for look in looks.train])
    finding = found(unnormalized_inputs.detect_inputs(run))
    told = any(outcome.diagnosis == unnormalized_inputs.RULE.name for outcome in bench.outcomes.values())
    scaled_inside = reached is not None and size is not None and reached < min(LARGE, INSIDE * size)
    if finding is not None and finding.severity is not Severity.INFO and not scaled_inside:
        return outcome_of(finding, Severity.INFO if told else None, size=size)
    given = main_input(looks.train[0])
    if _normalises(bench, looks) or reached is None or given is None or looks.train[0].lookups:
        return None
    if given.dtype == torch.uint8 and reached >= LARGE:
        text = f"bytes reach the first layer as numbers of size {figure(reached)}: they are converted and not scaled"
        fix = Fix("Scale the pixels to 0..1, for training and validation alike.", "x = x.float() / 255")
        return failed(text, unnormalized_inputs.RULE.name, fix, severity=Severity.WARNING, size=reached)
    if 0 < reached < TINY:
        text = f"the inputs are of size {figure(reached)}, not about 1: the first layer can hardly tell them apart"
        fix = Fix("Standardise the inputs with the training set's mean and spread.", "X = (X - X.mean(0)) / X.std(0)")
        return failed(text, unnormalized_inputs.RULE.name, fix, severity=Severity.WARNING, size=reached)
    scale = unnormalized_inputs.look(run)
    if scale is not None and given.dim() == 2 and scale.spread > SPREAD and scale.largest < LARGE:
        text = f"input features differ {figure(scale.spread)}-fold in spread; the small ones count for little at first"
        fix = Fix("Give every feature the same spread.", "X = (X - X.mean(0)) / X.std(0).clamp_min(1e-6)")
        return failed(text, unnormalized_inputs.RULE.name, fix, severity=Severity.INFO, spread=scale.spread)
    return None


def _normalises(bench: Bench, looks: Looks) -> bool:
    """Return whether a normalisation is among the first modules and acts on the batch or by statistics that it has."""
    norms = [m for m in sensitive_of(bench.model) if not m.drops]
    idle = bool(norms) and all(not m.module.training and m.has_initial_statistics for m in norms)
    kinds = [kind for kind in looks.modules[:FIRST_MODULES] if not (idle and "BatchNorm" in kind)]
    return any(name in kind for kind in kinds for name in NORMS)


def _size(tensors: list[Tensor | None]) -> float | None:
    """Root mean square, the median over the tensors; None for ids."""
    floats = [tensor.float() for tensor in tensors if tensor is not None and tensor.is_floating_point()]
    sizes = [float(tensor.square().mean().sqrt()) for tensor in floats if tensor.numel()]
    sizes = sorted(size for size in sizes if math.isfinite(size))
    return sizes[len(sizes) // 2] if sizes else None


def _pass(bench: Bench, looks: Looks, run: Run) -> Outcome:
    said = list(_described(bench, looks, run))
    if looks.error is not None:
        return skipped(f"as far as the training step goes ({_said(looks)}), {'; '.join(said)}")
    return passed("; ".join(said), batches=len(looks.train))


def _described(bench: Bench, looks: Looks, run: Run) -> Iterator[str]:
    facts = [f for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input"]
    lookups = {lookup.module: lookup for look in looks.train for lookup in look.lookups}
    if lookups:
        name, table = next(iter(lookups.items()))
        most = max(lookup.high for look in looks.train for lookup in look.lookups if lookup.module == name)
        yield f"ids up to {most} for the {table.rows} rows of {name}"
    floats = [f for f in facts if f.dtype.startswith(("float", "bfloat")) and f.low is not None]
    if floats:
        low, high = min(f.low or 0.0 for f in floats), max(f.high or 0.0 for f in floats)
        mean, std = floats[0].mean or 0.0, floats[0].std or 0.0
        yield f"values from {figure(low)} to {figure(high)}, mean {figure(mean)}, spread {figure(std)}"
        if math.hypot(mean, std) >= LARGE and _normalises(bench, looks):
            yield "the model normalises them itself"
    if not lookups and not floats and facts:
        yield f"{facts[0].dtype} values, none of them unusual"
    dead = _dead_columns(floats)
    if dead:
        yield f"{counted('feature', tuple(dead))} never change" + ("s" if len(dead) == 1 else "")


def _dead_columns(facts: list[InputsFact]) -> list[int]:
    """Of a table of which enough samples were seen."""
    known = [f for f in facts if len(f.shape) == 2 and f.feature_low and f.feature_high]
    if not known or sum(f.shape[0] for f in known) < constant_inputs.DEAD_SAMPLES or known[0].shape[1] > 256:
        return []
    lows, highs = zip(*((f.feature_low or [], f.feature_high or []) for f in known), strict=True)
    low_F, high_F = np.array(lows, np.float64).min(0), np.array(highs, np.float64).max(0)
    return np.flatnonzero(is_constant(low_F, high_F, known[0].dtype)).tolist()
