"""The same few steps, twice from the same state and with the same seeds, give the same bits."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.start import ModelNames
from torchdoctor.checks.repeats.hidden_state import HiddenState
from torchdoctor.checks.repeats.module_trace import Call, Marks, first_difference, mark_of, marks_of, traced
from torchdoctor.checks.repeats.updating import train
from torchdoctor.experiments.trace_comparison import Parting, find_parting, read_trace
from torchdoctor.experiments.trace_mode import TraceMode
from torchdoctor.experiments.tracing import Steps, Trace
from torchdoctor.facts.repeats import OPERATION, RANDOM
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.tables import listed
from torchdoctor.rules.curves import figure
from torchdoctor.rules.reproducibility import nondeterministic_operations, unseeded_randomness

CHECK = Check(
    name="repeated-start",
    asks="the same steps from the same seed give the same bits",
    part=PROCEDURE,
    order=80,
    quick=False,
    diagnoses=("unseeded-randomness", "nondeterministic-operations"),
)
SEED = 20
UPDATES = 3
BATCHES = 2
NOISE = 1e-4
"""Relative difference of the first losses that differ: what the order of a sum leaves is below."""

LOOP_MOVES_ON = (
    "the script's loop gives another loss the second time, as one does that counts its steps or carries a state over; "
    "two-starts tells whether it repeats itself"
)
"""Nothing puts back the variables of a loop that is driven: only an operation that was given the same is proof."""


@dataclass(frozen=True)
class Step:
    """Of one start."""

    loss: float
    gradients: dict[str, int]
    weights: dict[str, int]


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped("there is no batch to train on")
    if (outcome := _of_loader(bench)) is not None:
        return outcome
    one, other = (_begin_anew(bench, lambda: _steps(bench)) for _ in range(2))
    apart = next((n for n, (a, b) in enumerate(zip(one, other, strict=True)) if not _is_same(a, b)), None)
    if apart is not None:
        return _apart(bench, apart, one[apart], other[apart])
    if _draws_unseeded(bench):
        return failed(
            "a NumPy generator that model or loader keep was made without a seed: every start draws other numbers",
            unseeded_randomness.RULE.name,
            Fix("Give it a seed.", "rng = np.random.default_rng(0)  # instead of default_rng()"),
            severity=_unseeded(bench),
        )
    text = f"{UPDATES} updates, twice from seed {SEED}: losses, gradients and weights are equal"
    return passed(text, steps=UPDATES)


def _unseeded(bench: Bench) -> Severity:
    """A script that sets no seed at all is not meant to repeat itself."""
    return Severity.INFO if bench.seeded is False else Severity.WARNING


def _draws_unseeded(bench: Bench) -> bool:
    def draw() -> bool:
        hidden = HiddenState(bench)
        if _is_quick(bench.train_loader):
            next(iter(bench.train_loader), None)  # by which the loader's generators move, and are not put back yet
        train(bench, 1)
        return bool(hidden.unseeded())

    return bool(_begin_anew(bench, draw))


def _is_quick(loader: Any) -> bool:
    """Without workers, which would take their time to start."""
    return loader is not None and not getattr(loader, "num_workers", 0)


def _begin_anew(bench: Bench, do: Callable[[], Any]) -> Any:
    """What is done inside begins where the bench stands, and with fixed seeds; so do generators that anyone keeps, as
    they would in a new process."""
    hidden = HiddenState(bench)
    try:
        with untouched(*bench.subject.parts, *bench.optimizers, *bench.schedulers, *bench.scalers):
            random.seed(SEED)
            np.random.seed(SEED)
            torch.manual_seed(SEED)
            if not bench.model.training:
                bench.model.train()
            return do()
    finally:
        hidden.put_back()


def _steps(bench: Bench, updates: int = UPDATES) -> list[Step]:
    made = []
    for number in range(updates):
        loss = train(bench, 1, number)[0]
        named = list(ModelNames(bench.model).parameters())
        gradients = {name: mark_of(p.grad) for name, p in named if p.grad is not None}
        made.append(Step(loss, gradients, {name: mark_of(p) for name, p in named}))
    return made


def _is_same(one: Step, other: Step) -> bool:
    same = one.loss == other.loss or (math.isnan(one.loss) and math.isnan(other.loss))
    return same and one.gradients == other.gradients and one.weights == other.weights


def _of_loader(bench: Bench) -> Outcome | None:
    """The first batches of two walks with the same seeds."""
    if not _is_quick(bench.train_loader):
        return None

    def draw() -> list[Marks]:
        return [marks_of(batch) for batch in first_batches(bench.train_loader, BATCHES)]

    one, other = (_begin_anew(bench, draw) for _ in range(2))
    if one == other:
        return None
    return failed(
        "the loader gives other first batches after the same seeds: something in it draws numbers that no seed reaches",
        unseeded_randomness.RULE.name,
        Fix(
            "Give every generator in dataset, sampler and transforms a seed.",
            "rng = np.random.default_rng(0)  # instead of default_rng()",
        ),
        severity=_unseeded(bench),
    )


def _apart(bench: Bench, number: int, one: Step, other: Step) -> Outcome:
    where, parting = _first_module(bench, number), _first_operation(bench, number)
    if bench.target is not None and (parting is None or parting.cause != OPERATION):
        return skipped(LOOP_MOVES_ON)
    size = abs(one.loss - other.loss) / max(abs(one.loss), 1e-30)
    operation = parting.cause == OPERATION if parting is not None else size <= NOISE
    rule = nondeterministic_operations if operation else unseeded_randomness
    if one.loss != other.loss:
        what = f"the losses are {figure(one.loss)} and {figure(other.loss)} ({size:.0e} apart)"
    else:
        kind = "gradients" if one.gradients != other.gradients else "weights"
        mine, theirs = getattr(one, kind), getattr(other, kind)
        what = f"the losses are equal, {kind} of {listed([n for n in mine if mine[n] != theirs.get(n)], 3)} are not"
    named = f"{where.module or 'the model'} ({where.kind})" if where is not None else ""
    module = f"; the first module that differs is {named}" if named else ""
    return failed(
        f"two starts from the same seed part at step {number + 1}: {what}{module}{_told(parting)}",
        rule.RULE.name,
        rule.FIX if operation else unseeded_randomness.FIXES[parting.cause if parting is not None else "unseen"],
        severity=Severity.INFO if operation and size <= NOISE else _unseeded(bench),
        where=(
            *((Place(file=parting.file, line=parting.line),) if parting is not None and parting.file else ()),
            *((Place(module=where.module),) if where is not None and where.module else ()),
        ),
        step=number + 1,
        difference=size,
    )


def _told(parting: Parting | None) -> str:
    if parting is None:
        return ""
    at = f" at {Path(parting.file).name}:{parting.line}" if parting.file else ""
    way = " in the backward pass" if parting.backward else ""
    what = {
        RANDOM: f"{parting.operator}{at} draws other numbers",
        OPERATION: f"{parting.operator}{at} makes other results of the same inputs{way}",
    }
    return f", where {what.get(parting.cause, f'{parting.operator}{at} is given other numbers')}"


def _first_module(bench: Bench, number: int) -> Call | None:
    """In the forward pass of that step."""

    def follow() -> list[Call]:
        train(bench, number) if number else None
        with traced(bench.model) as calls:
            train(bench, 1, number)
        return calls

    return first_difference(*(_begin_anew(bench, follow) for _ in range(2)))


def _first_operation(bench: Bench, number: int) -> Parting | None:
    """By every operation of both starts up to that step; the loop of a script runs where it cannot be followed."""
    with tempfile.TemporaryDirectory(prefix="torchdoctor-") as folder:

        def follow(name: str) -> Any:
            trace = Trace(Path(folder) / name)
            with torch.compiler.set_stance("force_eager"), TraceMode(trace, Steps(trace, 0, 0)):
                train(bench, number + 1)
            trace.write()
            return read_trace(trace.path)

        one, other = (_begin_anew(bench, lambda name=name: follow(name)) for name in ("one.npy", "other.npy"))
    return find_parting(one, other) if one is not None and other is not None else None
