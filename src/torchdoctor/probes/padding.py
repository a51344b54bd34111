"""Which positions of a batch of sequences are padding, read off the inputs, and what attention gives to them.

Padding is one value that fills the ends (or the beginnings) of many sequences to different lengths and stands hardly
anywhere else; for sequences of vectors, vectors of zeros. Nothing here waits for a device: all choices are made by
tensors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEAST_ROWS = 4
SHARE_OF_ROWS = 0.3
"""Of the sequences in a batch that must have padding for it to count as such."""
ELSEWHERE = 1e-3
"""Of the other positions that may hold the same value."""


def find_padding(sequences: Tensor) -> tuple[Tensor, Tensor] | None:
    """(where, is_sure) for token ids (N, T) or vectors (N, T, F); None where the shape is none of these."""
    if sequences.dim() == 2 and not sequences.is_floating_point() and not sequences.is_complex():
        ends = [(_filled(sequences, sequences[:, -1].mode().values), False)]
        ends.append((_filled(sequences, sequences[:, 0].mode().values), True))
    elif sequences.dim() == 3 and sequences.is_floating_point():
        zero = (sequences == 0).all(-1)
        ends = [(zero, False), (zero, True)]
    else:
        return None
    if sequences.shape[0] < LEAST_ROWS or sequences.shape[1] < 3:
        return None
    where = torch.zeros(sequences.shape[:2], dtype=torch.bool, device=sequences.device)
    is_sure = torch.zeros((), dtype=torch.bool, device=sequences.device)
    for same, at_front in ends:
        facing = same if at_front else same.flip(1)
        run = facing.to(torch.int32).cumprod(1).bool()
        run = run if at_front else run.flip(1)
        lengths = run.sum(1)
        others = (same & ~run).sum() / (~run).sum().clamp_min(1)
        sure = ((lengths > 0).float().mean() >= SHARE_OF_ROWS) & (others <= ELSEWHERE)
        sure = sure & (lengths.max() >= lengths.min() + 2) & (lengths.min() < sequences.shape[1])
        where = torch.where(is_sure, where, torch.where(sure, run, where))
        is_sure = is_sure | sure
    return where, is_sure


def _filled(tokens: Tensor, value: Tensor) -> Tensor:
    return tokens == value


def key_padding(weights: Tensor, batch: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Share of keys that are padding, attention given to them by real queries, and which queries are real.

    The first two are NaN where no padding is found in the inputs; then every query counts as real.
    """
    nan = torch.full((), math.nan, device=weights.device)
    everything = torch.ones((), dtype=torch.bool, device=weights.device)
    for sequences in batch:
        aligned = _aligned(sequences, weights)
        found = find_padding(aligned) if aligned is not None and aligned.device == weights.device else None
        if found is None:
            continue
        where, is_sure = found
        keys = weights.shape[-1]
        if keys == where.shape[1] + 1:
            where = torch.cat([torch.zeros_like(where[:, :1]), where], 1)
        if weights.dim() == 3:
            where = where.repeat_interleave(weights.shape[0] // where.shape[0], 0)
        where = where[: weights.shape[0]]
        given = torch.einsum("n...qk,nk->n...q", weights, where.float())
        step = max(1, -(-keys // weights.shape[-2]))
        real = ~where[:, ::step] if where[:, ::step].shape[1] == weights.shape[-2] else ~torch.zeros_like(where[:, :1])
        real = real.reshape(real.shape[0], *([1] * (weights.dim() - 3)), real.shape[1])
        spread = real.expand(given.shape)
        on_padding = (given * spread).sum() / spread.sum().clamp_min(1)
        return (
            torch.where(is_sure, where.float().mean(), nan),
            torch.where(is_sure, on_padding, nan),
            real | ~is_sure,
        )
    return nan, nan, everything


def _aligned(sequences: Tensor, weights: Tensor) -> Tensor | None:
    """The inputs as (samples, positions, ...) where that fits the attention's shape."""
    if sequences.dim() not in (2, 3):
        return None
    for candidate in (sequences, sequences.transpose(0, 1)):
        samples, positions = candidate.shape[:2]
        fits = positions in (weights.shape[-1], weights.shape[-1] - 1)
        by_sample = samples >= weights.shape[0] if weights.dim() == 4 else weights.shape[0] % max(1, samples) == 0
        if fits and by_sample:
            return candidate
    return None
