"""Batches as the model gets them: shape, range, scale by feature, fingerprints of samples, labels."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from torchdoctor import signals, stats
from torchdoctor.attach.guard import contained
from torchdoctor.facts import OTHER_INPUT, InputsFact, LabelsFact
from torchdoctor.interruptions import let_through
from torchdoctor.probes.context import Context

FEATURES_LIMIT = 256
SAMPLES_FINGERPRINTED = 256
LABELS_LIMIT = 4096
"""Integer targets with a wider range are token ids or counts, not classes to be counted."""
FACTS_A_PHASE = 40
"""Looks written out in full by phase; later ones only as numbers."""
LABEL_WINDOW = 16
DEEPEST = 6
"""Containers inside one another that are searched for tensors: a node that knows its parent has no end."""
LISTED = 16
"""Entries of a list in which tensors are looked for: more of them are samples, not parts of a batch."""


@dataclass
class BatchLook:
    """Statistics of one tensor, still on its device."""

    role: str
    shape: list[int]
    dtype: str
    summary: Tensor
    features: Tensor | None = None
    feature_dim: int | None = None
    fingerprints: Tensor | None = None
    labels: Tensor | None = None
    label_offset: int = 0
    tensors: int = 1
    """tensors of the call, of which this is the first"""
    others: Mapping[str, Tensor] = field(default_factory=dict)
    """the number of NaN in each of the others, by path"""
    extra: dict[str, Any] = field(default_factory=dict)


@contained("batches: look_at")
def look_at(tensor: Tensor, role: str, *, detailed: bool, classes: int | None = None) -> BatchLook | None:
    """Measure one batch tensor; None for what has no elements."""
    if stats.unsupported(tensor) is not None or tensor.numel() == 0:
        return None
    tensor = tensor.detach()
    look = BatchLook(role, list(tensor.shape), str(tensor.dtype).removeprefix("torch."), stats.batch(tensor))
    integral = not tensor.is_floating_point() and not tensor.is_complex()
    if role == "target" and integral:
        _count_labels(tensor, look, classes)
    if detailed:
        if tensor.is_floating_point() and tensor.dim() >= 2 and tensor.shape[0] > 1:
            look.feature_dim = 1 if tensor.dim() in (2, 4, 5) else tensor.dim() - 1
            look.features = stats.features(tensor, look.feature_dim)
        if tensor.dim() >= 1:
            look.fingerprints = stats.fingerprints(tensor[:SAMPLES_FINGERPRINTED])
    return look


def _count_labels(tensor: Tensor, look: BatchLook, classes: int | None) -> None:
    """On a device only where the number of classes is known: finding the range out would wait."""
    flat = tensor.reshape(-1).long()
    if tensor.device.type == "cpu":
        low, high = int(flat.min()), int(flat.max())
        if high - low < LABELS_LIMIT:
            look.labels = count_values(flat - low, high - low + 1)
            look.label_offset = low
    elif classes is not None and classes <= LABELS_LIMIT:
        look.labels = count_values(torch.where((flat >= 0) & (flat < classes), flat, classes), classes + 1)[:classes]


def count_values(indices: Tensor, bins: int) -> Tensor:
    """How often each index in 0..bins-1 occurs; unlike bincount it never waits for a device."""
    ones = torch.ones_like(indices, dtype=torch.float32)
    return torch.zeros(bins, dtype=torch.float32, device=indices.device).scatter_add_(0, indices, ones)


class BatchProbe:
    """Writes looks once their phase is known."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._facts: Counter[tuple[str, str]] = Counter()
        self._labels: dict[str, Counter[int]] = {}
        self._label_batches: Counter[str] = Counter()

    @contained("batches: write")
    def write(self, look: BatchLook, phase: str, step: int) -> None:
        prefix = "input" if look.role == "input" else "target"
        record = self._context.record
        detailed = look.features is not None or look.fingerprints is not None
        fact = InputsFact(phase, look.role, look.shape, look.dtype, feature_dim=look.feature_dim, tensors=look.tensors)
        parts = [look.summary.reshape(-1).double()]
        if look.features is not None:
            parts.append(look.features.reshape(-1).double())
        flat = torch.cat(parts)
        marks: list[int] = []
        if look.fingerprints is not None:
            self._context.read(look.fingerprints, lambda values: marks.extend(values.tolist()))

        def arrived(array: NDArray[Any]) -> None:
            mean, std, low, high, nonfinite = (float(v) for v in array[:5])
            record.scalar(f"{prefix}.mean", step, mean, phase)
            record.scalar(f"{prefix}.std", step, std, phase)
            record.scalar(f"{prefix}.nonfinite", step, nonfinite, phase)
            if prefix == "input":
                record.scalar(signals.INPUT_MIN.name, step, low, phase)
                record.scalar(signals.INPUT_MAX.name, step, high, phase)
                record.scalar(signals.BATCH_SIZE.name, step, look.shape[0] if look.shape else 1, phase)
            if not detailed or self._facts[phase, look.role] >= FACTS_A_PHASE:
                return
            self._facts[phase, look.role] += 1
            columns = _feature_columns(array[5:]) if look.features is not None else {}
            filled = {
                **fact.to_dict(),
                "mean": mean,
                "std": std,
                "low": low,
                "high": high,
                "nonfinite": int(nonfinite),
                **columns,
                "fingerprints": marks,
            }
            record.fact(InputsFact(**filled), step, f"{phase}/{look.role}")

        self._context.read(flat, arrived)
        for path, count in look.others.items():
            self._context.read(count, lambda n, path=path: self._found_nan(path, int(n), phase, step))
        if look.labels is not None:
            offset = look.label_offset
            self._context.read(look.labels, lambda counts: self._add_labels(counts, offset, phase, step))

    def _found_nan(self, path: str, count: int, phase: str, step: int) -> None:
        if count:
            self._context.nonfinite("input", f"{OTHER_INPUT} {path}", count, step, nan=count, phase=phase)

    def _add_labels(self, counts: NDArray[Any], offset: int, phase: str, step: int) -> None:
        present = np.flatnonzero(counts)
        if not len(present):
            return
        shares = counts[present] / counts.sum()
        record = self._context.record
        record.scalar(signals.LABEL_ENTROPY.name, step, float(-(shares * np.log(shares)).sum()), phase)
        record.scalar(signals.LABEL_CLASSES.name, step, float(len(present)), phase)
        tally = self._labels.setdefault(phase, Counter())
        for i in present:
            tally[int(i) + offset] += int(counts[i])
        self._label_batches[phase] += 1
        if self._label_batches[phase] >= LABEL_WINDOW:
            self.flush(phase, step)

    def flush(self, phase: str, step: int) -> None:
        """Write the label counts since the last time."""
        tally = self._labels.pop(phase, None)
        if tally:
            counts = {str(k): v for k, v in sorted(tally.items())}
            self._context.record.fact(LabelsFact(phase, counts, self._label_batches.pop(phase)), step, phase)

    @contained("batches: close")
    def close(self, step: int) -> None:
        for phase in list(self._labels):
            self.flush(phase, step)


def _feature_columns(flat: NDArray[Any]) -> dict[str, list[float]]:
    """Statistics by feature; NaN where a feature has no finite element."""
    rows = flat.reshape(4, -1)[:, :FEATURES_LIMIT]
    names = ("feature_mean", "feature_std", "feature_low", "feature_high")
    return {n: row.tolist() for n, row in zip(names, rows, strict=True)}


def input_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors that a module was called with, each once, by path ("1", "batch['ids']"), in order."""
    found: dict[str, Tensor] = {}
    for name, value in (*enumerate(args), *kwargs.items()):
        found |= _named_tensors(value, str(name))
    first = {id(tensor): path for path, tensor in reversed(found.items())}
    return {path: tensor for path, tensor in found.items() if first[id(tensor)] == path}


def _named_tensors(value: Any, path: str, depth: int = DEEPEST) -> dict[str, Tensor]:
    if isinstance(value, Tensor):
        return {path: value}
    found: dict[str, Tensor] = {}
    for key, part in (_parts(value) or {}).items() if depth else ():
        found |= _named_tensors(part, f"{path}[{key!r}]", depth - 1)
    return found


@contained("batches: count_nan")
def count_nan(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Count the NaN in each floating-point tensor, still on its device. Infinities are left out: masks hold them."""
    plain = {path: t.detach() for path, t in list(tensors.items())[:LISTED] if t.is_floating_point() and t.numel()}
    return {path: t.isnan().sum() for path, t in plain.items() if stats.unsupported(t) is None}


def batch_tensors(batch: Any, depth: int = DEEPEST) -> list[Tensor]:
    """The tensors of what a loader yielded: tuples, lists, mappings and dataclasses, nested."""
    if isinstance(batch, Tensor):
        return [batch]
    parts = _parts(batch) if depth else None
    return [t for part in parts.values() for t in batch_tensors(part, depth - 1)] if parts else []


def change_tensors(batch: Any, change: Callable[[Tensor], Tensor], depth: int = DEEPEST) -> Any:
    """The same with another tensor for each that `batch_tensors` finds, in that order; what they are in stays of its
    kind, and is itself where nothing in it changes."""
    if isinstance(batch, Tensor):
        return change(batch)
    parts = (_parts(batch) or {}) if depth else {}
    changed = {key: change_tensors(part, change, depth - 1) for key, part in parts.items()}
    return batch if all(changed[key] is part for key, part in parts.items()) else _with_parts(batch, changed)


def _parts(value: Any) -> dict[Any, Any] | None:
    """Where tensors are looked for in a container, by key; None for what is none."""
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, PackedSequence):
        return {0: value.data}  # the rest says how it is packed
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value[:LISTED]))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    return None


def _with_parts(value: Any, parts: dict[Any, Any]) -> Any:
    if isinstance(value, Mapping):
        return parts if type(value) is dict else _mapping_with(value, parts)
    if isinstance(value, (list, tuple)):
        items = [*parts.values(), *value[len(parts) :]]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    try:
        return dataclasses.replace(value, **parts)
    except (TypeError, ValueError):  # made otherwise than from its fields
        other = copy.copy(value)
        for name, part in parts.items():
            object.__setattr__(other, name, part)
        return other


def _mapping_with(value: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """Made anew from a dict as most can be, else a copy with other values in it."""
    try:
        return type(value)(parts)  # type: ignore[call-arg]
    except Exception as error:
        let_through(error)
    try:
        other: Any = copy.copy(value)
        for key, part in parts.items():
            other[key] = part
    except Exception as error:
        let_through(error)
        return parts
    return other
