"""What torchdoctor's own rules say of a training in the lab: they read its record as that of any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from torchdoctor.engine import examine
from torchdoctor.facts import Fact, OptimizerFact, ParameterFact
from torchdoctor.findings import Finding, Severity
from torchdoctor.rules import LoadedRule, find
from torchdoctor.run import Run, Seen, Trace
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, WEIGHT_DECAY

KEY, GROUP = "0", "0.0"
"""Of the only optimizer and its only group."""


def ask_rules(record: Mapping[str, Any], rules: Sequence[str], facts: Sequence[Fact] = ()) -> Finding | None:
    """The first error or warning among what these rules say; an information where there is nothing graver."""
    found = examine(read_record(record, facts), _loaded(tuple(rules))).findings
    grave = [f for f in found if f.severity is not Severity.INFO]
    return next(iter(grave or found), None)


def read_record(record: Mapping[str, Any], facts: Sequence[Fact] = ()) -> Run:
    """As computing.record writes it."""
    every, looks = range(len(record["loss"])), record["steps"]
    group = record["optimizer"]["group"]
    traces = {
        (LOSS_TRAIN.name, KEY): Trace.raw(every, record["loss"]),
        (LEARNING_RATE.name, GROUP): Trace.raw(every, [float(group["lr"])] * len(every)),
        (WEIGHT_DECAY.name, GROUP): Trace.raw(every, [float(group["weight_decay"])] * len(every)),
    }
    traces |= {(name, KEY): Trace.raw(looks, values) for name, values in record["scalars"].items()}
    for name, rows in record["matrices"].items():
        columns = record["columns"] if name.startswith("activation.") else list(record["shapes"])
        traces[name, ""] = Trace.raw(looks, rows, columns)
    optimizer = OptimizerFact(KEY, record["optimizer"]["type"], [dict(group)], len(record["shapes"]))
    seen = [Seen(0, fact) for fact in (optimizer, *_parameters(record["shapes"]), *facts)]
    return Run(
        {}, frozenset(traces), lambda name, key: traces.get((name, key), Trace.empty()), seen, steps=len(record["loss"])
    )


def _parameters(shapes: Mapping[str, Sequence[int]]) -> list[ParameterFact]:
    return [
        ParameterFact(name, list(shape), "float32", "cpu", name.rpartition(".")[0], "Linear", order)
        for order, (name, shape) in enumerate(shapes.items())
    ]


@cache
def _loaded(names: tuple[str, ...]) -> tuple[LoadedRule, ...]:
    return tuple(rule for name in names if (rule := find(name)) is not None)
