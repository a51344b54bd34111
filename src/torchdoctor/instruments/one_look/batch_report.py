"""One batch looked over before it is trained on: shapes, ranges, NaN, scale, labels; what is wrong comes first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.findings import Severity
from torchdoctor.instruments.one_batch import one_batch, samples_in, tensors_in
from torchdoctor.instruments.one_look.batch_inputs import input_problems, words_of_input
from torchdoctor.instruments.one_look.batch_targets import IGNORED, Labels, read_labels, target_problems
from torchdoctor.instruments.one_look.problems import Problem, Seen, see
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.subject import fields_of, split
from torchdoctor.instruments.tables import listed, table
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BLUE, ORANGE
from torchdoctor.report.text import count as counted
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CLASSES = 12
"""Listed by count on a terminal."""
BINS = 60


@dataclass(frozen=True)
class BatchReport(Result):
    samples: int
    problems: tuple[Problem, ...]
    """errors first"""
    tensors: tuple[Seen, ...]
    labels: Labels | None
    """what the target holds; None where there is no target"""
    other: tuple[str, ...]
    """parts that are no tensors, by type"""
    histogram: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
    """counts and edges of the first input's values"""

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return not any(p.severity in (Severity.ERROR, Severity.WARNING) for p in self.problems)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        bad = [p for p in self.problems if p.severity is not Severity.INFO]
        if bad:
            head = f"{len(bad)} problem{'s' * (len(bad) > 1)} in this batch of {counted(self.samples, 'sample')}:"
        else:
            head = f"Nothing wrong with this batch of {counted(self.samples, 'sample')}."
        lines = [head]
        for problem in self.problems:
            lines.append(f"  {problem.severity.value}: {problem.where}: {problem.text}")
            lines += [f"    {problem.fix}"] if problem.fix else []
        rows = [(*_row(seen), self._words(seen)) for seen in self.tensors]
        lines += ["", *table(("", "", "shape", "type", "from", "to", "mean", "std", ""), rows)]
        if self.labels is not None and self.labels.counts:
            lines += ["", f"  samples of each label: {_counted(self.labels.counts)}"]
        if self.other:
            lines.append(f"  also in it: {listed(self.other)}")
        return "\n".join(lines)

    def _words(self, seen: Seen) -> str:
        if seen.role == "target" and self.labels is not None:
            return self.labels.words
        return words_of_input(seen)

    def plot(self) -> Figure:
        """The first input's values and, where the target holds classes, how often each comes."""
        title = (
            self.problems[0].title if not self.ok else f"A batch of {counted(self.samples, 'sample')} without a problem"
        )
        chart = new_figure(title, "", "", showlegend=False)
        from plotly.subplots import make_subplots

        first = next((s.name for s in self.tensors if s.role == "input"), "inputs")
        panels = make_subplots(1, 2, subplot_titles=[f"values of {first}", "target"])
        if self.histogram is not None:
            counts, edges = self.histogram
            panels.add_bar(x=(edges[1:] + edges[:-1]) / 2, y=counts, marker_color=BLUE, row=1, col=1)
        if self.labels is not None and self.labels.counts:
            keys = list(self.labels.counts)
            panels.add_bar(x=keys, y=[self.labels.counts[k] for k in keys], marker_color=ORANGE, row=1, col=2)
        panels.update_xaxes(title_text="value", col=1)
        panels.update_xaxes(title_text="label", col=2)
        panels.update_yaxes(LOG, title_text="elements", col=1)
        panels.update_yaxes(title_text="samples", col=2)
        panels.update_layout(chart.layout)
        return panels


def validate_batch(batch: Any, *, classes: int | None = None, ignore_index: int = IGNORED) -> BatchReport:
    """What is in a batch, or in the first one of a loader, and what is wrong with it. The result is true if nothing is.

        print(torchdoctor.validate_batch(next(iter(loader)), classes=10))

    The target is the last part of a tuple, or what a mapping or dataclass holds as labels, target, y. `classes` is the
    number of outputs of the model, which labels must stay below; `ignore_index` marks labels that the loss leaves out.
    """
    if classes is not None and classes < 1:
        raise UsageError(f"classes={classes}: a model has at least one output")
    batch = _with_tensors(one_batch(batch))
    found = list(tensors_in(batch))
    if not found:
        raise UsageError(f"the batch is a {type(batch).__name__} without a tensor in it; there is nothing to look at")
    _check_batched(batch)
    targets = {id(t) for t in _targets(batch)}
    tensors = [see(n, t, "target" if id(t) in targets else "input") for n, t in found]
    samples = samples_in(batch) or 0
    problems = [*_lengths(tensors, samples)]
    for seen, (_, tensor) in zip(tensors, found, strict=True):
        problems += input_problems(seen, tensor) if seen.role == "input" else []
    inputs = [(s, t) for s, (_, t) in zip(tensors, found, strict=True) if s.role == "input"]
    labels = None
    for seen, (_, tensor) in zip(tensors, found, strict=True):
        if seen.role == "target":
            labels = labels or read_labels(seen, tensor, ignore_index)
            problems += target_problems(seen, tensor, inputs, classes, ignore_index)
    problems.sort(key=lambda p: p.severity.rank)
    first = next((t for s, t in inputs if s.is_float), None)
    return BatchReport(samples, tuple(problems), tuple(tensors), labels, _others(batch), _histogram(first))


def _check_batched(batch: Any) -> None:
    """The target of one sample is a single number; that of a batch never is."""
    target = _target(batch)
    # in a longer tuple the last part may be anything, such as an epoch
    bare = isinstance(target, Number) and not (isinstance(batch, list | tuple) and len(batch) > 2)
    if bare or any(tensor.dim() == 0 for _, tensor in tensors_in(batch if isinstance(batch, Tensor) else target)):
        raise UsageError(
            "this is one sample without a batch dimension; hand over a loader, or make a batch of it: "
            "torch.utils.data.default_collate([sample])"
        )


def _targets(batch: Any) -> list[Tensor]:
    return [tensor for _, tensor in tensors_in(_target(batch))]


def _target(batch: Any) -> Any:
    """None where there is none."""
    if isinstance(batch, Tensor) or (isinstance(batch, list | tuple) and len(batch) == 1):
        return None
    try:
        return split(batch)[2]
    except UsageError:
        return None


def _with_tensors(value: Any) -> Any:
    """The same with arrays of numpy as tensors."""
    if isinstance(value, np.ndarray) and value.dtype != object and value.dtype.kind not in "USV":
        return torch.as_tensor(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_with_tensors, value))
    if isinstance(value, list | tuple):
        return type(value)(map(_with_tensors, value))
    if isinstance(value, Mapping):
        return {k: _with_tensors(v) for k, v in value.items()}
    return value


def _others(value: Any) -> tuple[str, ...]:
    """Types of the leaves that are no tensors, each once."""
    if isinstance(value, Tensor) or value is None:
        return ()
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = list(fields_of(value).values())
    else:
        return (type(value).__name__,)
    return tuple(dict.fromkeys(kind for part in parts for kind in _others(part)))


def _lengths(tensors: list[Seen], samples: int) -> list[Problem]:
    if samples == 0:
        return [Problem(Severity.ERROR, "batch", "it is empty", "Check the dataset, the sampler and the filter.")]
    odd = [s for s in tensors if s.shape and s.shape[0] != samples]
    if not odd:
        return []
    text = f"it has {counted(odd[0].shape[0], 'sample')}, the others have {samples}"
    severity = Severity.ERROR if any(s.role == "target" for s in odd) or len(tensors) == 2 else Severity.INFO
    return [Problem(severity, odd[0].name, text, "Inputs and target have to be collated from the same samples.")]


def _histogram(tensor: Tensor | None) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    if tensor is None:
        return None
    values = tensor.detach().float().flatten().cpu().numpy()
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    counts, edges = np.histogram(values, BINS)
    return counts.astype(np.int64), edges.astype(np.float64)


def _row(seen: Seen) -> tuple[str, ...]:
    shape = "x".join(map(str, seen.shape)) or "scalar"
    numbers = (seen.low, seen.high, seen.mean, seen.std)
    return (seen.name, seen.role, shape, seen.dtype, *(figure(v) if math.isfinite(v) else "-" for v in numbers))


def _counted(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    more = f" and {len(ordered) - MOST_CLASSES} more labels" if len(ordered) > MOST_CLASSES else ""
    return ", ".join(f"{label} ({count})" for label, count in ordered[:MOST_CLASSES]) + more
