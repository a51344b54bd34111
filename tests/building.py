"""Runs made by hand, in memory, for tests of whatever reads a Run.

    run = (
        RunBuilder(steps=300)
        .scalar(signals.LOSS_TRAIN, np.linspace(2.3, 0.1, 300))
        .scalar(signals.LOSS_VALIDATION, [2.0, 1.5, 1.2], steps=[99, 199, 299])
        .matrix(signals.GRADIENT_L2, {"fc1.weight": 1e-9, "fc2.weight": np.ones(300)})
        .parameters({"fc1.weight": (64, 32), "fc2.weight": (10, 64)})
        .optimizer("SGD", lr=0.1)
        .fact(PhaseFact(...))
        .build()
    )

A number stands for the same value at every step. Traces longer than HISTORY_ROWS are merged as a store merges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from torchdoctor.engine import examine as examine_run
from torchdoctor.facts import Fact, OptimizerFact, ParameterFact
from torchdoctor.findings import Finding, RuledOut, Verdict
from torchdoctor.rules import find
from torchdoctor.run import HISTORY_ROWS, RAW_ROWS, Floats, Run, Seen, Trace
from torchdoctor.signals import Scope, Signal

Values = float | Sequence[float] | Floats


class RunBuilder:
    """Collects signals and facts; every method but `build` and `examine` returns the builder."""

    def __init__(self, steps: int = 300) -> None:
        self.steps = steps
        self._traces: dict[tuple[str, str], Trace] = {}
        self._seen: list[Seen] = []
        self._info: dict[str, Any] = {"name": "built", "argv": ["train.py"]}
        self._finished = True

    def scalar(self, signal: Signal, values: Values, key: str = "", steps: Iterable[int] | None = None) -> RunBuilder:
        """A STEP signal at every step, or at `steps` where given."""
        if signal.scope is not Scope.STEP:
            raise TypeError(f"{signal.name} has columns: give it with matrix")
        at_S = self._steps(steps)
        self._traces[signal.name, key] = _merge(Trace.raw(at_S, _series(signal.name, values, len(at_S))))
        return self

    def matrix(self, signal: Signal, columns: Mapping[str, Values], steps: Iterable[int] | None = None) -> RunBuilder:
        """A PARAMETER or MODULE signal, one entry of `columns` for each tensor or module."""
        if signal.scope is Scope.STEP:
            raise TypeError(f"{signal.name} is one number a step: give it with scalar")
        at_S = self._steps(steps)
        values_ST = np.stack([_series(f"{signal.name} of {c}", v, len(at_S)) for c, v in columns.items()], axis=1)
        self._traces[signal.name, ""] = _merge(Trace.raw(at_S, values_ST.astype(np.float32), tuple(columns)))
        return self

    def fact(self, fact: Fact, step: int = 0) -> RunBuilder:
        self._seen.append(Seen(step, fact))
        return self

    def parameters(
        self, shapes: Mapping[str, Sequence[int]], module_type: str = "Linear", unreached: Sequence[str] = ()
    ) -> RunBuilder:
        """A ParameterFact for each name, in forward order."""
        for order, (name, shape) in enumerate(shapes.items()):
            self.fact(
                ParameterFact(
                    name=name,
                    shape=list(shape),
                    dtype="float32",
                    device="cpu",
                    module=name.rpartition(".")[0],
                    module_type=module_type,
                    order=None if name in unreached else order,
                )
            )
        return self

    def optimizer(self, type: str = "SGD", key: str = "0", parameters: int = 1, **hyperparameters: Any) -> RunBuilder:
        """An optimizer of one group."""
        return self.fact(OptimizerFact(key=key, type=type, groups=[dict(hyperparameters)], parameters=parameters))

    def info(self, **fields: Any) -> RunBuilder:
        """Fields of run.json."""
        self._info.update(fields)
        return self

    def live(self) -> RunBuilder:
        """The run is still training."""
        self._finished = False
        return self

    def build(self) -> Run:
        traces = dict(self._traces)
        return Run(
            info=dict(self._info),
            available=frozenset(traces),
            load=lambda name, key: traces[name, key],
            seen=tuple(sorted(self._seen, key=lambda s: s.step)),
            steps=self.steps,
            finished=self._finished,
        )

    def examine(self) -> Verdict:
        """What every rule together says."""
        return examine_run(self.build())

    def detect(self, name: str) -> list[Finding | RuledOut]:
        """What the one rule of that name or code says; an AssertionError names what it would need and lacks."""
        return detect(self.build(), name)

    def _steps(self, steps: Iterable[int] | None) -> list[int]:
        return list(range(self.steps)) if steps is None else [int(s) for s in steps]


def detect(run: Run, name: str) -> list[Finding | RuledOut]:
    loaded = find(name)
    assert loaded is not None, f"there is no rule {name!r}"
    missing = loaded.rule.missing(run)
    assert not missing, f"{name} needs {', '.join(missing)}, which this run lacks"
    return list(loaded.detect(run))


def findings(run: Run, name: str) -> list[Finding]:
    """Only the findings of one rule."""
    return [said for said in detect(run, name) if isinstance(said, Finding)]


def _series(what: str, values: Values, length: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0:
        return np.full(length, float(array))
    if array.shape != (length,):
        raise ValueError(f"{what}: {array.shape} values for {length} steps; name their steps with steps=")
    return array


def _merge(raw: Trace) -> Trace:
    """Means and extremes of neighbours, so that at most HISTORY_ROWS rows remain."""
    if len(raw) <= HISTORY_ROWS:
        return raw
    merged = 1
    while len(raw) / merged > HISTORY_ROWS:
        merged *= 2
    blocks = [slice(i, i + merged) for i in range(0, len(raw), merged)]
    return Trace(
        raw.steps[[min(b.stop, len(raw)) - 1 for b in blocks]],
        np.stack([raw.values[b].mean(axis=0) for b in blocks]),
        np.stack([raw.values[b].min(axis=0) for b in blocks]),
        np.stack([raw.values[b].max(axis=0) for b in blocks]),
        raw.columns,
        merged,
        raw.first(RAW_ROWS),
        raw.last(RAW_ROWS),
    )
