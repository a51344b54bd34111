"""A 64-bit number for each sample of a batch, equal for equal bytes wherever in a batch and on whichever device.

A sample's bytes are taken as 64-bit words. To each word the number of its place is added, the sum is mixed by two
rounds of multiplying and folding, and what comes out is added up and mixed with the sample's length. One round is
not enough: samples that differ in signs alone would then often agree. The numbers of the places come from a fixed
sequence, never from the global random state. It is no secure hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.interruptions import let_through
from torchdoctor.stats.rows import none_of
from torchdoctor.stats.support import Quiet, unsupported

BLOCK = 1 << 15
"""Words hashed at once: 256 KB, so that all passes over them stay in the cache, and as many places are numbered."""
STACKED_ELEMENTS, STACKED_TENSORS = 1 << 16, 64
"""Tensors that are copied side by side: up to this size, and so many at once."""
BLOCKS_AT_ONCE = 256
"""On a device: 64 MB of words with each launch."""

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The constants of the splitmix64 generator."""
_LOW32 = 0xFFFFFFFF


def fingerprints(tensor: Tensor) -> Tensor:
    """(B,) int64, one for each index along dimension 0; empty where the tensor is unsupported or sparse."""
    if unsupported(tensor) is not None or tensor.layout != torch.strided:
        return none_of(torch.int64)
    with Quiet():
        try:
            words, length = _words(tensor.detach().resolve_conj().resolve_neg())
            return (
                torch.from_numpy(_hash(words.numpy().view(np.uint64), length))
                if words.is_cpu
                else _hash_by_torch(words, length)
            )
        except Exception as error:
            let_through(error)
            return none_of(torch.int64)


def fingerprint_each(tensors: Sequence[Tensor]) -> Tensor:
    """(T,) int64, one for each tensor as a whole. Small ones of one shape are hashed together."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, tensor in enumerate(tensors):
        alike = tensor.numel() <= STACKED_ELEMENTS
        groups.setdefault((tensor.shape, tensor.dtype, tensor.device, tensor.layout) if alike else (i,), []).append(i)
    marks: dict[int, Tensor] = {}
    for indices in groups.values():
        for first in range(0, len(indices), STACKED_TENSORS):
            chunk = indices[first : first + STACKED_TENSORS]
            with Quiet():
                rows = [tensors[i].reshape(1, -1) for i in chunk]
                joined = torch.cat(rows) if len(rows) > 1 else rows[0]
                marks.update(zip(chunk, fingerprints(joined).split(1), strict=True))
    with Quiet():  # in order without an index tensor, whose copy to a device would wait for it
        return torch.cat([marks[i] for i in range(len(tensors))])


def _words(tensor: Tensor) -> tuple[Tensor, int]:
    """(B, W) int64 and the number of bytes in a sample; the last word is filled up with zeros."""
    tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
    rows = tensor.reshape(tensor.shape[0], -1) if tensor.numel() else tensor.new_zeros(tensor.shape[0], 0)
    rows = rows.contiguous()
    if rows.stride(-1) != 1:  # a single column may lie anyhow and still count as contiguous
        rows = rows.clone(memory_format=torch.contiguous_format)
    octets = rows.view(torch.uint8)
    length = octets.shape[1]
    if length % 8 or not length or octets.storage_offset() % 8:
        filled = octets.new_zeros(octets.shape[0], max(-(-length // 8), 1) * 8)
        filled[:, :length] = octets
        octets = filled
    return octets.view(torch.int64), length


@lru_cache(maxsize=1)
def _places() -> NDArray[np.uint64]:
    """BLOCK numbers: the first outputs of splitmix64."""
    with np.errstate(over="ignore"):
        z = np.arange(1, BLOCK + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX[0])
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX[1])
        return z ^ (z >> np.uint64(31))


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Two rounds, in place."""
    half = np.uint64(32)
    folded = z >> half
    for factor in _MIX:
        z ^= folded
        z *= np.uint64(factor)
        np.right_shift(z, half, out=folded)
    z ^= folded
    return z


def _hash(words_BW: NDArray[np.uint64], length: int) -> NDArray[np.int64]:
    samples, width = words_BW.shape
    sums = np.zeros(samples, np.uint64)
    rows = max(1, BLOCK // width)
    with np.errstate(over="ignore"):
        for block, start in enumerate(range(0, width, BLOCK)):
            places = _places()[: min(BLOCK, width - start)]
            for first in range(0, samples, rows):
                words = words_BW[first : first + rows, start : start + BLOCK]
                part = _mix(words + places).sum(1, dtype=np.uint64)
                sums[first : first + rows] += _mix(part + np.uint64(block))
        return _mix(sums + np.uint64(length)).view(np.int64)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _mix_by_torch(z: Tensor) -> Tensor:
    for factor in _MIX:
        z = (z ^ ((z >> 32) & _LOW32)) * _signed(factor)
    return z ^ ((z >> 32) & _LOW32)


def _hash_by_torch(words_BW: Tensor, length: int) -> Tensor:
    """The same numbers by torch operations, many blocks at a time; int64 arithmetic wraps around as uint64 does."""
    samples, width = words_BW.shape
    sums = torch.zeros(samples, dtype=torch.int64, device=words_BW.device)
    places = _places_on(words_BW.device)
    whole, at_once = width // BLOCK, max(1, BLOCKS_AT_ONCE // max(1, samples))
    for first in range(0, whole, at_once):
        count = min(at_once, whole - first)
        blocks = words_BW[:, first * BLOCK : (first + count) * BLOCK].unflatten(1, (count, BLOCK))
        numbers = torch.arange(first, first + count, device=words_BW.device)
        sums += _mix_by_torch(_mix_by_torch(blocks + places).sum(2) + numbers).sum(1)
    if width % BLOCK:
        rest = words_BW[:, whole * BLOCK :]
        sums += _mix_by_torch(_mix_by_torch(rest + places[: rest.shape[1]]).sum(1) + whole)
    return _mix_by_torch(sums + length)


@lru_cache(maxsize=8)
def _places_on(device: torch.device) -> Tensor:
    host = torch.from_numpy(_places().view(np.int64))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)
