"""The loss along a line or over a plane of weights: around where they are, or between two checkpoints.

Directions are random and scaled by filters (Li et al. 2018), so that pictures of two networks can be compared. Two
checkpoints without a barrier between them lie in one basin (Frankle et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import StepFn, Subject
from torchdoctor.instruments.weight_space.checkpoints import Source, read_weights
from torchdoctor.instruments.weight_space.norms import Statistics
from torchdoctor.instruments.weight_space.surface import Direction, Surface, length_of
from torchdoctor.instruments.weight_space.terrain import Landscape

POINTS = {1: 41, 2: 21}
"""Along each axis: odd, so that the weights as they are lie on the grid."""
SPAN = 1.0
"""Of random directions: up to noise as large as the weights."""
BEYOND = 0.25
"""How far a line between two checkpoints goes on behind each of them."""


@unseen()
@explained
def landscape(
    model: nn.Module,
    loader: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    step_fn: StepFn | None = None,
    dims: Literal[1, 2] = 1,
    between: tuple[Source, Source] | None = None,
    points: int | None = None,
    span: float | None = None,
    batches: int = 4,
    batch_norm: Literal["interpolate", "recompute"] = "interpolate",
    training: bool = False,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Landscape:
    """The loss of the loader's first batches over a line (`dims=1`) or a plane (`dims=2`) through the weights.

    Without `between`, it goes `span` to both sides along random directions, where 1 is noise as large as each filter.
    With two checkpoints (state dicts, models or files), it goes from the first at 0 to the second at 1, and `span`
    beyond them; a second axis is a random direction. Files are read with weights_only=True. Batch norm's statistics
    are interpolated like weights, or, with `batch_norm="recompute"`, taken anew from the batches at every point, which
    two separate trainings need. `points` is their number along each axis.
    """
    if batches < 1:
        raise UsageError(f"batches is {batches}; at least 1 is needed")
    subject = Subject(model, loss_fn, step_fn=step_fn, autocast=autocast)
    return map_landscape(
        subject,
        first_batches(loader, batches),
        dims=dims,
        between=between,
        points=points,
        span=span,
        batch_norm=batch_norm,
        training=training,
        seed=seed,
        progress=progress,
    )


def map_landscape(
    subject: Subject,
    batches: Sequence[Any],
    *,
    dims: Literal[1, 2] = 1,
    between: tuple[Source, Source] | None = None,
    points: int | None = None,
    span: float | None = None,
    batch_norm: Literal["interpolate", "recompute"] = "interpolate",
    training: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> Landscape:
    _check(dims, points, span, between, batch_norm)
    count = points or POINTS[dims]
    ends = _read_ends(subject.model, between)
    default = SPAN if ends is None else BEYOND
    x = _axis(count, default if span is None else span, joined=ends is not None)
    y = _axis(count, SPAN if span is None or ends is not None else span, joined=False) if dims == 2 else np.zeros(1)
    with untouched(*subject.parts), torch.no_grad(), progress_bar("landscape", x.size * y.size, progress) as advance:
        if ends is not None:
            subject.model.load_state_dict(ends[0], strict=False)
        surface = Surface(subject, batches, training=training)
        statistics = Statistics(subject.model, ends, recompute=batch_norm == "recompute")
        first, second = _directions(surface, ends, dims, seed)
        losses = np.full((y.size, x.size), math.nan)
        with statistics.kept():
            for i, j in np.ndindex(losses.shape):
                surface.move((float(x[j]), first), *([(float(y[i]), second)] if second is not None else []))
                statistics.move(float(x[j]), subject, batches)
                losses[i, j] = surface.loss()
                advance()
        notes = statistics.notes(training)
        notes += _own_axis(first, second)
    return Landscape(
        x.tolist(),
        y.tolist() if dims == 2 else None,
        losses.tolist() if dims == 2 else losses[0].tolist(),
        between is not None,
        surface.size,
        sum(samples_in(b) or 1 for b in batches),
        notes,
    )


def _directions(
    surface: Surface, ends: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] | None, dims: int, seed: int
) -> tuple[Direction, Direction | None]:
    generator = torch.Generator().manual_seed(seed)
    names = {id(p): n for n, p in surface.subject.model.named_parameters()}
    if ends is None:
        first = surface.random_direction(generator)
        if length_of(first) == 0:
            raise UsageError("all weights are zero, and so is every direction that is scaled by them")
    else:
        first = [ends[1][names[id(p)]].to(p) - own for p, own in zip(surface.parameters, surface.origin, strict=True)]
    return first, surface.random_direction(generator) if dims == 2 else None


def _own_axis(first: Direction, second: Direction | None) -> list[str]:
    """Random directions in many dimensions are nearly at right angles; in few they are not, and it is said."""
    if second is None or length_of(first) * length_of(second) == 0:
        return []
    product = float(sum((a * b).sum() for a, b in zip(first, second, strict=True)))
    cosine = product / (length_of(first) * length_of(second))
    return [f"the two directions have a cosine of {cosine:.2f}; they are no right angle"] if abs(cosine) > 0.3 else []


def _read_ends(
    model: nn.Module, between: tuple[Source, Source] | None
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] | None:
    if between is None:
        return None
    first, second = (
        {k: v.clone() for k, v in read_weights(source, model, name).items()}
        for source, name in zip(between, ("the first checkpoint", "the second checkpoint"), strict=True)
    )
    return first, second


def _axis(count: int, span: float, joined: bool) -> np.ndarray:
    """The weights at 0 are always among the points, and a second checkpoint at 1."""
    if not joined:
        return np.linspace(-span, span, count | 1)
    line = np.linspace(-span, 1 + span, count)
    for end in (0.0, 1.0):
        line[np.abs(line - end).argmin()] = end
    return line


def _check(
    dims: int, points: int | None, span: float | None, between: tuple[Source, Source] | None, batch_norm: str
) -> None:
    if dims not in POINTS:
        raise UsageError(f"dims is {dims}; 1 gives a line, 2 a plane")
    if points is not None and points < 3:
        raise UsageError(f"points is {points}; at least 3 are needed along each axis")
    if span is not None and (span < 0 or (span == 0 and between is None)):
        raise UsageError(f"span is {span}; it has to be above 0 (with two checkpoints, 0 stays between them)")
    if between is not None and (isinstance(between, str | dict) or len(between) != 2):
        raise UsageError("between is a pair: (state_a, state_b), of state dicts, models or paths")
    if batch_norm not in ("interpolate", "recompute"):
        raise UsageError(f"batch_norm is {batch_norm!r}; 'interpolate' or 'recompute'")
