"""Inputs and targets of some hundred samples as two matrices, for learners that want no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset, default_collate

from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import apart, check_loader
from torchdoctor.instruments.evaluating.ranking import rank
from torchdoctor.instruments.one_batch import is_batch, tensors_in
from torchdoctor.instruments.state import Randomness
from torchdoctor.instruments.subject import split
from torchdoctor.report.text import count as counted

SIDE = 32
"""Pixels each way that larger images are averaged down to."""
MOST_FEATURES = 4096
"""Of more, a random choice is looked at."""
VOCABULARY = 2000
"""Most frequent tokens, of which each text's counts are taken."""
MOST_CLASSES = 200
"""More different whole numbers than this are quantities."""
LEAST_SAMPLES = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """What the target is, and how an answer is scored for a reader."""

    kind: str
    truth: NDArray[Any]
    """class numbers (N,), or labels and numbers (N, C)"""

    @property
    def majority(self) -> float:
        if self.kind != "classes":
            return math.nan
        return float(np.unique(self.truth, return_counts=True)[1].max() / len(self.truth))

    def score(self, predictions: Floats, order: NDArray[np.intp] | None = None) -> float:
        truth = self.truth if order is None else self.truth[order]
        if self.kind == "classes":
            return float((predictions.argmax(1) == truth).mean())
        if self.kind == "labels":
            ranked = [rank(p, t > 0.5) for p, t in zip(predictions.T, truth.T, strict=True)]
            areas = [r.value for r in ranked if r is not None]
            return float(np.mean(areas)) if areas else math.nan
        total = np.square(truth - truth.mean(0)).sum()
        return float(1 - np.square(truth - predictions).sum() / total)


@dataclass(frozen=True)
class Evidence:
    inputs: Floats
    """(N, F) standardised"""
    targets: Floats
    """(N, C) centred; one column a class"""
    task: Task
    offset: Floats
    """what was taken off the targets"""
    features: int
    notes: list[str]


def read_evidence(
    data: Any,
    labels: Any,
    task: str,
    pick: Callable[[Any], Any] | None,
    samples: int,
    generator: np.random.Generator,
) -> Evidence:
    inputs, targets = _gather(data, labels, pick, samples, generator)
    # The default device may be another, and what a loader does there is its own matter.
    with torch.device("cpu"):
        return _standardise(inputs, targets, task, samples, generator)


def _standardise(inputs: Tensor, targets: Tensor, task: str, samples: int, generator: np.random.Generator) -> Evidence:
    notes: list[str] = []
    if len(inputs) != len(targets):
        given = f"{counted(len(inputs), 'input')} and {counted(len(targets), 'target')}"
        raise UsageError(f"{given} do not belong together")
    if len(inputs) > samples:
        chosen = torch.from_numpy(np.sort(generator.choice(len(inputs), samples, replace=False)))
        inputs, targets = inputs[chosen], targets[chosen]
    flat = _flatten(inputs, generator, notes)
    kept = np.isfinite(flat).all(1) & np.isfinite(targets.reshape(len(targets), -1).double().numpy()).all(1)
    if not kept.all():
        notes.append(f"{counted(int((~kept).sum()), 'sample')} with NaN or Inf left out")
    flat, targets = flat[kept], targets[torch.from_numpy(kept)]
    if len(flat) < LEAST_SAMPLES:
        raise UsageError(
            f"{counted(len(flat), 'sample')}: too few to tell; {LEAST_SAMPLES} are the least, hundreds are better"
        )
    centred = flat - flat.mean(0)
    scale = np.sqrt(np.square(centred).mean(0))
    varied = scale > 1e-7 * np.abs(flat).max(0, initial=1e-30)
    if not varied.any():
        raise UsageError("the inputs are the same for every sample; see torchdoctor.validate_batch")
    found, matrix = _targets(targets, task, notes)
    offset = matrix.mean(0)
    if not np.abs(matrix - offset).max() > 0:
        raise UsageError("the target is the same for every sample, so there is nothing to tell")
    return Evidence(centred[:, varied] / scale[varied], matrix - offset, found, offset, int(varied.sum()), notes)


def _gather(
    data: Any, labels: Any, pick: Callable[[Any], Any] | None, samples: int, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    if data is None:
        raise UsageError("neither a loader nor a dataset, a batch or an array was given, but None")
    if labels is not None:
        return _tensor(data, "inputs"), _tensor(labels, "labels")
    if isinstance(data, Dataset) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return _from_dataset(data, pick, samples, generator)
    if isinstance(data, np.ndarray | Tensor):
        raise UsageError("inputs alone were given; hand over the labels as well: linear_probe(X, y)")
    if isinstance(data, tuple | list) and any(isinstance(part, np.ndarray) for part in data):
        data = tuple(torch.as_tensor(part, device="cpu") for part in data)
    if isinstance(data, IterableDataset):
        raise UsageError("a stream of samples was given; hand over a loader: DataLoader(dataset, batch_size=64)")
    if is_batch(data):
        return _pair(data, pick)
    check_loader(data)
    randomness, found, count = Randomness(data), [], 0
    try:
        with apart(data):
            for batch in data:
                found.append(_pair(batch, pick))
                count += len(found[-1][1])
                if count >= samples:
                    break
    finally:
        randomness.put_back()
    return _joined(found)


def _from_dataset(
    data: Any, pick: Callable[[Any], Any] | None, samples: int, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    if not len(data):
        raise UsageError("the dataset is empty")
    chosen = np.sort(generator.choice(len(data), min(samples, len(data)), replace=False))
    randomness = Randomness()
    try:
        return _joined([_pair(default_collate([data[int(i)]]), pick) for i in chosen])
    finally:
        randomness.put_back()


def _joined(found: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if not found:
        raise UsageError("the loader gives no batch; is its dataset empty, or drop_last=True with too few samples?")
    shapes = {x.shape[1:] for x, _ in found}
    if len(shapes) > 1:
        raise UsageError(
            f"inputs differ in shape from batch to batch ({', '.join(str(tuple(s)) for s in list(shapes)[:3])}); hand "
            "over inputs=lambda batch: ... that gives one shape"
        )
    return torch.cat([x for x, _ in found]), torch.cat([y for _, y in found])


def _pair(batch: Any, pick: Callable[[Any], Any] | None) -> tuple[Tensor, Tensor]:
    try:
        args, kwargs, target = split(batch)
    except UsageError as error:
        raise UsageError(f"{str(error).partition('; hand over')[0]}. Hand over arrays: linear_probe(X, y)") from error
    given = pick(batch) if pick is not None else [*args, *kwargs.values()]
    inputs = [t for name, t in tensors_in(given) if t.dim() > 0 and "mask" not in name]
    targets = [t for _, t in tensors_in(target)]
    if not inputs or len(targets) != 1:
        raise UsageError(
            f"a batch holds {counted(len(inputs), 'input')} and {counted(len(targets), 'target')} that are tensors; "
            "one target is needed. Hand over arrays: linear_probe(X, y)"
        )
    if pick is None and isinstance(batch, Tensor | list | tuple) and inputs[0] is targets[0]:
        raise UsageError("a batch holds inputs alone; there is no label to tell about")
    return inputs[0].detach().cpu(), targets[0].detach().cpu()


def _tensor(value: Any, what: str) -> Tensor:
    try:
        return value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} of type {type(value).__name__} are no array of numbers: {error}") from error


def _flatten(inputs: Tensor, generator: np.random.Generator, notes: list[str]) -> Floats:
    values = inputs.float()
    if inputs.dtype in (torch.int32, torch.int64) and inputs.dim() == 2 and inputs.shape[1] > 1:
        values = torch.cat([values, _counts_of_tokens(inputs, notes)], 1)
    if values.dim() == 4 and max(values.shape[2:]) > SIDE:
        values = F.adaptive_avg_pool2d(values, tuple(min(SIDE, side) for side in values.shape[2:]))
        notes.append(f"images were averaged down from {tuple(inputs.shape[2:])} to {tuple(values.shape[2:])}")
    flat = values.reshape(len(values), -1)
    if flat.shape[1] > MOST_FEATURES:
        chosen = np.sort(generator.choice(flat.shape[1], MOST_FEATURES, replace=False))
        notes.append(f"{MOST_FEATURES} of {flat.shape[1]} features were chosen at random")
        flat = flat[:, torch.from_numpy(chosen)]
    return flat.double().numpy()


def _counts_of_tokens(inputs: Tensor, notes: list[str]) -> Tensor:
    tokens, counts = torch.unique(inputs, return_counts=True)
    kept = tokens[counts.argsort(descending=True)[:VOCABULARY]].sort().values
    notes.append(f"whole numbers may be tokens: how often each of {len(kept)} comes in a sample was looked at as well")
    place = torch.searchsorted(kept, inputs).clamp_max(len(kept) - 1)
    known = (kept[place] == inputs).float()
    return torch.zeros(len(inputs), len(kept)).scatter_add_(1, place, known)


def _targets(targets: Tensor, task: str, notes: list[str]) -> tuple[Task, Floats]:
    if targets.dim() > 1 and targets.shape[1:].numel() == 1:
        targets = targets.reshape(-1)
    kind = task if task != "auto" else _kind(targets)
    if kind == "classes":
        if targets.dim() == 2:
            targets = targets.argmax(1)
        names, numbers = np.unique(targets.reshape(len(targets), -1)[:, 0].numpy(), return_inverse=True)
        rare = int((np.bincount(numbers) < 2).sum())
        if rare:
            notes.append(f"{rare} of {len(names)} classes come only once")
        return Task("classes", numbers), np.eye(len(names))[numbers]
    if targets.dim() > 2 or (targets.dim() == 2 and not targets.is_floating_point() and kind != "labels"):
        raise UsageError(
            f"the target has shape {tuple(targets.shape)}, a class for every place; a probe wants one target a sample: "
            "linear_probe(X, y)"
        )
    matrix = targets.double().numpy().reshape(len(targets), -1)
    if kind == "numbers":
        spread = matrix.std(0)
        matrix = (matrix - matrix.mean(0)) / np.where(spread > 0, spread, 1.0)
    return Task(kind, matrix), matrix


def _kind(targets: Tensor) -> str:
    flags = bool(((targets == 0) | (targets == 1)).all())
    if targets.dim() == 2 and flags:
        return "classes" if bool((targets.sum(1) == 1).all()) else "labels"
    if targets.dim() == 1 and (flags or not targets.is_floating_point()):
        return "classes" if len(torch.unique(targets)) <= min(MOST_CLASSES, len(targets) // 2) else "numbers"
    return "numbers"
