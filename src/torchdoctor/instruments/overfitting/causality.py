"""Models of sequences that only look back, and what they cannot know: how sequences that begin alike go on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdoctor.instruments.one_batch import tensors_in
from torchdoctor.instruments.overfitting.loss_floor import least, places_of
from torchdoctor.instruments.overfitting.loss_reading import Reading, groups_of_equal_beginnings, tokens_in
from torchdoctor.instruments.subject import Subject

UNCHANGED = 1e-4
"""Of the size of the answers: rounding, where sums are taken in another order."""


def floor_of_beginnings(subject: Subject, reading: Reading) -> float | None:
    """The least loss of a model that only looks back, where sequences of the batch begin alike; None for others."""
    call, groups = reading.call, groups_of_equal_beginnings(reading)
    places = places_of(call, len(groups)) if call is not None and groups is not None else None
    if call is None or groups is None or places is None or not 1 < places <= groups.shape[1]:
        return None
    bound = least(call, groups[:, :places], by_place=True)
    return bound if bound and looks_back_only(subject, reading) else None


@torch.no_grad()
def looks_back_only(subject: Subject, reading: Reading) -> bool:
    """Whether another last token leaves all answers before it as they are."""
    tokens = tokens_in(reading)
    if tokens is None or len(tokens) < 2 or tokens.shape[1] < 2:
        return False
    other = tokens.clone()
    other[:, -1] = tokens[:, -1].roll(1, 0)
    if torch.equal(other, tokens):
        return False
    try:
        before, after = (_answers(subject, reading, tokens, t) for t in (tokens, other))
    except Exception:
        return False
    if before is None or after is None or before.dim() != 3 or before.shape[:2] != tokens.shape:
        return False
    size = float(before.abs().max())
    moved = (before - after).abs().amax((0, 2))
    return bool(moved[:-1].max() <= UNCHANGED * size < moved[-1])


def _answers(subject: Subject, reading: Reading, tokens: Tensor, instead: Tensor) -> Tensor | None:
    args, kwargs = reading.arguments
    named = {k: instead if v is tokens else v for k, v in kwargs.items()}
    outputs: Any = subject.model(*(instead if a is tokens else a for a in args), **named)
    found = next((t for _, t in tensors_in(getattr(outputs, "logits", outputs)) if t.is_floating_point()), None)
    return None if found is None else found.float()
