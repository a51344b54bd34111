"""Samples brought into the shape of the training inputs, and what did not fit on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.errors import UsageError
from torchdoctor.instruments.serving.trained import Trained
from torchdoctor.instruments.serving.use_samples import UseSamples

Mismatch = dict[str, str]


@dataclass(frozen=True)
class Aligned:
    """`values` is None where features cannot be matched with those of training."""

    values: NDArray[Any] | None
    mismatches: list[Mismatch]
    notes: list[str]


def align(samples: UseSamples, trained: Trained) -> Aligned:
    values, shape = samples.values, trained.shapes[0]
    notes: list[str] = []
    if values.shape == shape:
        values = values[None]
        notes.append("one sample, without a dimension that counts samples")
    if values.shape[1:] in trained.shapes:
        return Aligned(values, [], notes)
    if values.ndim == len(shape) + 1:
        return _same_rank(values, trained, samples, notes)
    if values.ndim > 1 and math.prod(values.shape[1:]) == math.prod(shape):
        notes.append(f"samples of shape {_said(values.shape[1:])} are read as {_said(shape)}, as in training")
        return Aligned(values.reshape(len(values), *shape), [], notes)
    return Aligned(None, [_shape(values.shape[1:], trained)], notes)


def _same_rank(values: NDArray[Any], trained: Trained, samples: UseSamples, notes: list[str]) -> Aligned:
    shape, found = trained.shapes[0], values.shape[1:]
    if len(shape) == 1:
        _ask_for_columns(samples, shape[0])
        return Aligned(None, [_shape(found, trained)], notes)
    last = (shape[1], *shape[2:], shape[0]) if len(shape) > 2 else (shape[1], shape[0])
    if len(shape) > 2 and found[-1] == shape[0] and found[0] != shape[0]:
        text = f"samples have shape {_said(found)}, channels last; training had {_said(shape)}, channels first"
        fix = f"samples = samples.permute(0, {len(found)}, {', '.join(str(i) for i in range(1, len(found)))})"
        turned = np.moveaxis(values, -1, 1)
        return Aligned(turned, [{"kind": "channels", "text": text, "fix": f"Put the channels first: {fix}"}], notes)
    if len(shape) == 2 and found == last and found != shape:
        text = f"samples have shape {_said(found)}, training had {_said(shape)}: the two dimensions are exchanged"
        return Aligned(
            np.swapaxes(values, 1, 2),
            [{"kind": "shape", "text": text, "fix": "Exchange them: x.transpose(1, 2)"}],
            notes,
        )
    dim = trained.feature_dim
    if dim is None or found[dim - 1] == shape[dim - 1]:
        # sizes of pictures and lengths of sequences may vary; where they never did in training, that is told
        if len(trained.shapes) == 1 and dim is not None and len(shape) > 2:
            text = f"samples have size {_said(found)}, every training sample had {_said(shape)}"
            fix = "Resize or crop the samples as in training."
            return Aligned(values, [{"kind": "size", "text": text, "fix": fix}], notes)
        notes.append(f"samples have shape {_said(found)}, training had {_said(shape)}; compared all the same")
        return Aligned(values, [], notes)
    return Aligned(None, [_shape(found, trained)], notes)


def _ask_for_columns(samples: UseSamples, wanted: int) -> None:
    """A table holds more than the inputs: which columns those are, only its owner knows."""
    if samples.names:
        raise UsageError(
            f"{samples.source} has {len(samples.names)} columns of numbers ({', '.join(samples.names[:12])}"
            f"{', ...' if len(samples.names) > 12 else ''}), the run was trained on {wanted}; pick those that the "
            "model gets, in its order: --columns a,b,c (columns=[...]) or --drop id,label (drop=[...])"
        )


def _shape(found: tuple[int, ...], trained: Trained) -> Mismatch:
    text = f"samples have shape {_said(found)}, training had {_said(trained.shapes[0])}"
    if len(found) == len(trained.shapes[0]) == 1:
        text = f"samples have {found[0]} columns, training had {trained.shapes[0][0]}"
    return {
        "kind": "shape",
        "text": text,
        "fix": "Give samples as the model gets them, in the same shape as in training.",
    }


def _said(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "()"
