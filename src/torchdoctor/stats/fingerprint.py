"""A 64-bit number for each sample of a batch, equal for equal bytes wherever in a batch and on whichever device.

A sample's bytes are taken as 64-bit words. Each word is folded, multiplied by an odd number of its own place and
folded again, and the sums are mixed with the sample's length: two random samples agree with a chance of about
2**-64. The multipliers come from a fixed sequence, never from the global random state. It is no secure hash.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.stats.support import Quiet, unsupported

BLOCK = 1 << 15
"""Words hashed at once: 256 KB, so that all passes over them stay in the cache, and as many multipliers."""

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The constants of the splitmix64 generator."""
_LOW32 = 0xFFFFFFFF


def fingerprints(tensor: Tensor) -> Tensor:
    """(B,) int64, one for each index along dimension 0; empty where the tensor is unsupported or sparse."""
    if unsupported(tensor) is not None or tensor.layout != torch.strided:
        return _none()
    with Quiet():
        try:
            words, length = _words(tensor.detach().resolve_conj().resolve_neg())
            return (
                torch.from_numpy(_hash(words.numpy().view(np.uint64), length))
                if words.is_cpu
                else _hash_by_torch(words, length)
            )
        except Exception:
            return _none()


def _none() -> Tensor:
    return torch.zeros(0, dtype=torch.int64, device="cpu")


def _words(tensor: Tensor) -> tuple[Tensor, int]:
    """(B, W) int64 and the number of bytes in a sample; the last word is filled up with zeros."""
    tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
    rows = tensor.reshape(tensor.shape[0], -1) if tensor.numel() else tensor.new_zeros(tensor.shape[0], 0)
    octets = rows.contiguous().view(torch.uint8)
    length = octets.shape[1]
    if length % 8 or not length or octets.storage_offset() % 8:
        filled = octets.new_zeros(octets.shape[0], max(-(-length // 8), 1) * 8)
        filled[:, :length] = octets
        octets = filled
    return octets.view(torch.int64), length


@lru_cache(maxsize=1)
def _multipliers() -> NDArray[np.uint64]:
    """BLOCK odd numbers: the first outputs of splitmix64."""
    with np.errstate(over="ignore"):
        z = np.arange(1, BLOCK + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX[0])
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX[1])
        return z ^ (z >> np.uint64(31)) | np.uint64(1)


def _hash(words_BW: NDArray[np.uint64], length: int) -> NDArray[np.int64]:
    samples, width = words_BW.shape
    sums = np.zeros(samples, np.uint64)
    half = np.uint64(32)
    rows = max(1, BLOCK // width)
    with np.errstate(over="ignore"):
        for place, start in enumerate(range(0, width, BLOCK)):
            multipliers = _multipliers()[: min(BLOCK, width - start)]
            for first in range(0, samples, rows):
                words = words_BW[first : first + rows, start : start + BLOCK]
                folded = words >> half
                folded ^= words
                folded *= multipliers
                folded ^= folded >> half
                part = folded.sum(1, dtype=np.uint64)
                sums[first : first + rows] += _finish(part + np.uint64(place)) if width > BLOCK else part
        return _finish(sums + np.uint64(length)).view(np.int64)


def _finish(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z + np.uint64(_GOLDEN)) * np.uint64(_MIX[0])
    z = (z ^ (z >> np.uint64(32))) * np.uint64(_MIX[1])
    return z ^ (z >> np.uint64(32))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _fold(z: Tensor) -> Tensor:
    return z ^ ((z >> 32) & _LOW32)


def _finish_by_torch(z: Tensor) -> Tensor:
    return _fold(_fold((z + _signed(_GOLDEN)) * _signed(_MIX[0])) * _signed(_MIX[1]))


def _hash_by_torch(words_BW: Tensor, length: int) -> Tensor:
    """The same numbers by torch operations; int64 arithmetic wraps around as uint64 does."""
    width = words_BW.shape[1]
    sums = torch.zeros(words_BW.shape[0], dtype=torch.int64, device=words_BW.device)
    multipliers = _multipliers_on(words_BW.device)
    for place, start in enumerate(range(0, width, BLOCK)):
        words = words_BW[:, start : start + BLOCK]
        part = _fold(_fold(words) * multipliers[: words.shape[1]]).sum(1)
        sums += _finish_by_torch(part + place) if width > BLOCK else part
    return _finish_by_torch(sums + length)


@lru_cache(maxsize=8)
def _multipliers_on(device: torch.device) -> Tensor:
    host = torch.from_numpy(_multipliers().view(np.int64))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)
