"""The same program started again with the same seed: where two starts part, by step and by operation."""

from __future__ import annotations

import linecache
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdoctor import signals
from torchdoctor.attach.target import COMMAND
from torchdoctor.compare import compare
from torchdoctor.compare.records import FIRST_BATCH
from torchdoctor.compare.traces import Deviation
from torchdoctor.engine import examine
from torchdoctor.errors import UsageError
from torchdoctor.experiments.seed_passing import OWN
from torchdoctor.experiments.seeds import FINISHED, Board, Launch, Outcome, Surroundings, run_all
from torchdoctor.experiments.trace_comparison import Parting, Traced, find_parting, read_trace
from torchdoctor.experiments.variants import Variant
from torchdoctor.facts import StartsFact
from torchdoctor.findings import Finding
from torchdoctor.instruments.result import Result
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.rules import find
from torchdoctor.run import Run
from torchdoctor.store.reader import open_run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

EXACT = (
    *("loss.train", "loss.validation", "accuracy.validation", "gradient.l2", "gradient.global_l2", "weight.l2"),
    *("weight.global_l2", "clip.norm", "input.mean", "input.std", "scaler.scale"),
)
"""Signals that depend on nothing but the training; others also depend on which steps were looked at."""
TRACED_FROM_START = 200
"""Steps up to which every operation from the very start is traced; a later parting is traced from shortly before it."""
BEFORE = 2
APART = 1.1
"""Seconds between two starts: seeds that are taken from the clock are often whole seconds."""
RULES = ("unseeded-randomness", "nondeterministic-operations")


@dataclass
class Starts(Result):
    """What came of it."""

    command: str
    seed_words: str
    fact: StartsFact
    findings: list[Finding] = field(default_factory=list)
    steps: np.ndarray = field(default_factory=lambda: np.zeros(0))
    apart: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """of the training loss: by step, how far two starts lie apart at most, over its size"""
    folders: list[str] = field(default_factory=list)
    seeds: list[list[dict[str, Any]]] = field(default_factory=list)
    """of each start that ended early: whose generator was seeded by the script itself, with what, and where"""

    @property
    def equal(self) -> bool:
        return self.fact.first_step is None

    def __str__(self) -> str:
        fact = self.fact
        if self.equal:
            return f"{fact.starts} starts of {self.command} are equal bit for bit over {fact.steps:,} steps."
        lines = [f"{f.title} ({f.name}, {f.code})" for f in self.findings]
        lines += [f"  {e.text}" for f in self.findings for e in f.evidence]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        return plain | {"equal": self.equal, "findings": [f.to_dict() for f in self.findings]}

    def plot(self) -> Figure:
        if self.equal:
            title = f"{self.fact.starts} starts with the same seed: equal bit for bit over {self.fact.steps:,} steps"
        else:
            title = f"Two starts with the same seed part at step {self.fact.first_step}"
        figure = new_figure(title, "step", "difference of the training loss, over its size")
        shown = np.where(self.apart > 0, self.apart, np.nan)
        figure.add_scatter(x=self.steps, y=shown, mode="lines+markers", line_color="#0072B2", name="difference")
        if np.isfinite(shown).any():
            figure.update_yaxes(LOG)
        else:
            figure.update_yaxes(range=[-1, 1])
        if self.fact.first_step is not None:
            figure.add_vline(x=self.fact.first_step, line_dash="dot", line_color="#D55E00")
        return figure


def compare_starts(
    variant: Variant,
    count: int,
    name: str,
    surroundings: Surroundings,
    board: Board,
    seed: int = 0,
    first: dict[str, Any] | None = None,
) -> Starts:
    """Start it so many times with the same seed. Where they differ, two more starts are traced. `first`: the
    {"updates", "seconds"} after which each ends; to its own end without. Starts that seeded themselves with different
    numbers are not traced."""
    if count < 2:
        raise UsageError(f"same is {count}; at least 2 starts are needed, as one has nothing to be compared with")
    launches = [Launch(variant, seed, f"{name}-start-{i + 1}", first=first, wait=i * APART) for i in range(count)]
    outcomes, interrupted = run_all(launches, replace(surroundings, reuse=False), board)
    runs = [open_run(o.folder) for o in outcomes if o.folder is not None and o.status == FINISHED]
    if len(runs) < 2:
        raise UsageError(_why_not(outcomes, interrupted))
    fact = _compare(runs, None if variant.passing.how == OWN else seed)
    explained = first is not None and len({tuple(call["given"] for call in o.seeded) for o in outcomes}) > 1
    if fact.first_step is not None and variant.target.kind != COMMAND and not explained:
        fact = _named(fact, _trace(variant, seed, name, fact.first_step, surroundings, board))
    steps, apart = _losses(runs)
    return Starts(
        command=variant.command,
        seed_words=variant.passing.words,
        fact=fact,
        findings=_find(fact),
        steps=steps,
        apart=apart,
        folders=[str(o.folder) for o in outcomes if o.folder is not None],
        seeds=[list(o.seeded) for o in outcomes] if first is not None else [],
    )


def _why_not(outcomes: Sequence[Outcome], interrupted: bool) -> str:
    if interrupted:
        return "the starts were interrupted before two had finished; nothing can be compared"
    failed = next((o for o in outcomes if o.status != FINISHED), None)
    if failed is None:
        return "the script ended well but nothing of its training was recorded; see torchdoctor run on it"
    said = failed.error or (failed.tail[-1] if failed.tail else "it said nothing")
    return f"the script {failed.status} before two starts had finished ({said}); its output is in {failed.log}"


def _compare(runs: Sequence[Run], seed: int | None) -> StartsFact:
    """The earliest difference between any start and the first of them."""
    found: list[Deviation] = []
    first_batch = False
    for run in runs[1:]:
        comparison = compare(runs[0], run)
        found += [d for d in comparison.deviations if d.signal in EXACT and d.first_step is not None]
        first_batch |= any(d.name == FIRST_BATCH for d in comparison.differences)
    first = min(found, key=lambda d: (d.first_step, not d.signal.startswith("loss")), default=None)
    apart = [d.apart_step for d in found if d.apart_step is not None]
    steps = min(run.steps for run in runs)
    if first is None:
        return StartsFact(len(runs), steps, seed)
    return StartsFact(
        starts=len(runs),
        steps=steps,
        seed=seed,
        first_step=first.first_step,
        signal=first.label,
        apart_step=min(apart, default=None),
        first_batch=first_batch and first.first_step == 0,
    )


def _losses(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    traces = [run.scalar(signals.LOSS_TRAIN) for run in runs]
    n = min(map(len, traces))
    if not n:
        return np.zeros(0), np.zeros(0)
    values = np.stack([t.values[:n] for t in traces]).astype(np.float64)
    size = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)
    return traces[0].steps[:n], (values.max(axis=0) - values.min(axis=0)) / size


def _named(fact: StartsFact, parting: Parting | str) -> StartsFact:
    if isinstance(parting, str):
        return replace(fact, notes=[parting])
    code = linecache.getline(parting.file, parting.line).strip() if parting.file and parting.line else None
    return replace(
        fact,
        cause=parting.cause,
        operator=parting.operator,
        backward=parting.backward,
        at_step=parting.step,
        device=parting.device,
        file=parting.file,
        line=parting.line,
        code=code[:200] if code else None,
        notes=[parting.note] if parting.note else [],
    )


def trace_starts(variant: Variant, name: str, step: int, at: Surroundings, board: Board) -> Starts:
    """Two starts, traced from the very beginning up to that step, and nothing else: for those that are known to differ,
    and whose first difference is wanted."""
    traces = _traces(variant, 0, name, 0, step, at, board)
    if traces is None:
        raise UsageError("the operations of two starts could not be traced")
    parting = find_parting(*traces)
    fact = StartsFact(2, step)
    if parting is not None:
        fact = _named(replace(fact, first_step=max(0, parting.step), signal=parting.operator), parting)
    return Starts(variant.command, variant.passing.words, fact, _find(fact))


def _find(fact: StartsFact) -> list[Finding]:
    rules = [rule for rule in map(find, RULES) if rule is not None]
    return list(examine(Run.holding(fact), rules).findings)


def _trace(variant: Variant, seed: int, name: str, step: int, at: Surroundings, board: Board) -> Parting | str:
    """Two more starts up to that step, every operation noted; in words why nothing was found, if so."""
    first = 0 if step <= TRACED_FROM_START else step - BEFORE
    traces = _traces(variant, seed, name, first, step, at, board)
    if traces is None:
        return "the operations could not be traced"
    parting = find_parting(*traces)
    if parting is None:
        seen = f"up to step {step}" if first == 0 else f"from step {first} to {step}"
        return f"traced a second time, two starts were equal in every operation {seen}: it does not happen every time"
    return parting


def _traces(
    variant: Variant, seed: int, name: str, first: int, step: int, at: Surroundings, board: Board
) -> tuple[Traced, Traced] | None:
    traced = replace(variant, name=f"{variant.name}, traced")
    with tempfile.TemporaryDirectory(prefix="torchdoctor-starts-") as scratch:
        files = [Path(scratch) / f"trace-{i}.npy" for i in range(2)]
        wanted = [{"file": str(file), "first": first, "last": step + 1} for file in files]
        launches = [Launch(traced, seed, f"{name}-trace-{i + 1}", t, wait=i * APART) for i, t in enumerate(wanted)]
        run_all(launches, replace(at, out=Path(scratch), reuse=False), board)
        one, other = (read_trace(file) for file in files)
    return (one, other) if one is not None and other is not None else None
