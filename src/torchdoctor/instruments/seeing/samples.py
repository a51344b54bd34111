"""The samples of a batch, each as an array of its own, and what is to be predicted of it in a few words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.instruments.one_batch import samples_in, tensors_in
from torchdoctor.instruments.subject import split
from torchdoctor.plots.sample_values import Measure

BESIDE_TOKENS = ("mask", "type", "position", "length", "weight")
"""In the names of what goes beside token ids, of the same shape."""
FEW_LABELS = 6
"""Labels of one sample that are named."""

Array = NDArray[Any]
Names = Sequence[str] | Mapping[int, str] | None
Pick = Callable[[Any], Any]


@dataclass
class Samples:
    """Inputs, and targets where there are any, of the same length."""

    inputs: list[Array] = field(default_factory=list)
    targets: list[Array] = field(default_factory=list)
    type: str = ""
    """of the inputs, as torch names it"""
    name: str = ""
    """of the tensor among those of a batch, where there are several"""
    keep: int | None = None
    """of more than these, none is held, and all are measured"""
    measured: Measure = field(default_factory=Measure)

    def add(self, batch: Any, pick: Pick | None = None) -> None:
        given, target = read_batch(batch)
        if pick is not None:
            chosen = pick(batch)
            given = dict(tensors_in(chosen))
        self.take(given, target)

    def take(self, given: Mapping[str, Tensor], target: Any) -> None:
        """The main one of these tensors."""
        self.name, tensor = main_input(given)
        self.type = str(tensor.dtype).removeprefix("torch.")
        for row in tensor:
            sample = as_array(row)
            if self.keep is not None:
                self.measured.add(sample)
            if self.keep is None or len(self.inputs) < self.keep:
                self.inputs.append(sample)
        if isinstance(target, Tensor) and target.dim() and len(target) == len(tensor):
            is_small = target.dim() <= 2 or self.keep is None  # labels are counted, masks only shown
            rows = target if is_small else target[: max(0, (self.keep or 0) - len(self.targets))]
            self.targets += [as_array(row) for row in rows]


def read_batch(batch: Any) -> tuple[dict[str, Tensor], Any]:
    """The tensors that go into the model, by name, and the target; None where it is not known."""
    try:
        args, kwargs, target = split(batch)
    except UsageError:
        return dict(tensors_in(batch)), None
    given = dict(tensors_in(kwargs)) if kwargs else dict(tensors_in(args[0] if len(args) == 1 else args))
    is_target = any(target is tensor for tensor in given.values())
    return given, None if is_target else _as_target(target)


def _as_target(target: Any) -> Any:
    if isinstance(target, list | tuple) and target and all(isinstance(t, int | float) for t in target):
        return torch.tensor(target)
    return target


def main_input(given: Mapping[str, Tensor]) -> tuple[str, Tensor]:
    """The one that holds most numbers a sample: pixels and tokens, not what goes beside them."""
    samples = samples_in(list(given.values()))
    held = {k: t for k, t in given.items() if t.dim() and len(t) == samples and not t.is_complex()}
    if not held and any(t.is_complex() for t in given.values()):
        raise UsageError(
            f"the inputs are complex numbers ({', '.join(str(t.dtype) for t in given.values())}), which have no one "
            "size: give torch.view_as_real(...) or .abs() of them, by pick=lambda batch: ... where batches are shown, "
            "or in a model around yours that takes real numbers"
        )
    if not held:
        raise UsageError(
            f"a batch holds no tensor with a row for each sample ({_shapes(given) or 'no tensor at all'}); pick one "
            "with pick=lambda batch: batch[...]"
        )
    plain = {k: held[k] for k in without_beside(held)}
    name = max(plain, key=lambda k: (math.prod(plain[k].shape[1:]), plain[k].is_floating_point()))
    return name, plain[name]


def without_beside(names: Iterable[str]) -> list[str]:
    """Without masks, lengths and the like, where there is anything else."""
    every = list(names)
    return [name for name in every if not any(word in name for word in BESIDE_TOKENS)] or every


def as_array(tensor: Tensor) -> Array:
    tensor = tensor.detach().cpu()
    if tensor.is_sparse or tensor.is_quantized:
        tensor = tensor.to_dense() if tensor.is_sparse else tensor.dequantize()
    if tensor.dtype in (torch.bfloat16, torch.bool):
        tensor = tensor.float() if tensor.is_floating_point() else tensor.to(torch.uint8)
    return np.array(tensor.numpy())


def _shapes(given: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {tuple(t.shape)}".strip() for name, t in given.items())


def describe_target(target: Any, names: Names = None) -> str:
    """In a few words: a class, a number, several labels; nothing for what has to be drawn."""
    values = np.asarray(target)
    if values.dtype.kind in "US":
        return str(target)
    if values.size == 1:
        value = values.reshape(()).item()
        return name_class(int(value), names) if float(value).is_integer() and names else f"{value:.4g}"
    if values.ndim == 1 and np.isin(values, (0, 1)).all():
        chosen = np.flatnonzero(values)
        more = ", ..." if len(chosen) > FEW_LABELS else ""
        return ", ".join(name_class(int(i), names) for i in chosen[:FEW_LABELS]) + more if len(chosen) else "none"
    if values.ndim == 1 and values.size <= FEW_LABELS:
        return ", ".join(f"{v:.3g}" for v in values.tolist())
    return ""


def name_class(value: int, names: Names) -> str:
    if isinstance(names, Mapping):
        return str(names.get(value, value))
    return str(names[value]) if names is not None and 0 <= value < len(names) else str(value)


def spell(samples: Sequence[Array], decode: Callable[[list[int]], Any] | None) -> list[list[str]]:
    """Token ids in words, token by token, by a tokenizer's `decode` or a function of ids."""
    if decode is None:
        return []
    function = getattr(decode, "decode", decode)
    return [[str(function([int(token)])) for token in sample.ravel()] for sample in samples]
