"""Fingerprints: equal bytes, equal numbers; anything else, others."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stats.oddities import FLOATS, OTHERS, build, octets, sparse
from stats.strategies import tensors
from torchdoctor import stats
from torchdoctor.stats import fingerprint


@settings(max_examples=60, deadline=None)
@given(tensors(FLOATS + OTHERS))
def test_one_for_each_sample_and_the_same_for_the_same_bytes(tensor: Tensor) -> None:
    found = stats.fingerprints(tensor)
    assert found.dtype == torch.int64
    if tensor.dim() == 0:
        assert found.shape == (1,)
        return
    assert found.shape == (tensor.shape[0],)
    order = torch.arange(tensor.shape[0] - 1, -1, -1)
    assert torch.equal(stats.fingerprints(tensor[order]), found[order])
    samples = [octets(sample) for sample in tensor]
    assert len(set(samples)) == len(set(found.tolist()))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.sampled_from((1, 7, 8, 4096, fingerprint.BLOCK * 8 + 24)), st.integers(0, 99))
def test_torch_operations_for_other_devices_give_the_same_numbers(samples: int, length: int, seed: int) -> None:
    octets = np.random.default_rng(seed).integers(0, 256, (samples, length), np.uint8)
    words, size = fingerprint._words(torch.from_numpy(octets))
    assert torch.equal(fingerprint._hash_by_torch(words, size), stats.fingerprints(torch.from_numpy(octets)))


EXPECTED = [6943787012565746766, -8655059900349208355]
"""As first released: runs are compared by these."""


def test_they_do_not_change_from_version_to_version() -> None:
    assert stats.fingerprints(torch.arange(6.0).view(2, 3)).tolist() == EXPECTED


def test_single_bits_signs_swaps_and_padding_are_told_apart() -> None:
    base = build((200,), torch.float32, 0, 1.0, 0.0, 0.0)
    samples = [base, base.flip(0), torch.zeros(200)]
    for i in range(200):
        for changed in (-base[i], torch.nextafter(base[i], torch.tensor(9e9)), base[i - 1]):
            sample = base.clone()
            sample[i] = changed
            samples.append(sample)
    assert len(set(stats.fingerprints(torch.stack(samples)).tolist())) == len(samples)
    lengths = [stats.fingerprints(torch.zeros(1, n, dtype=torch.uint8)).item() for n in range(20)]
    assert len(set(lengths)) == 20


def test_many_similar_samples_do_not_collide() -> None:
    counted = torch.arange(200_000).view(-1, 1)
    assert len(set(stats.fingerprints(counted).tolist())) == 200_000
    signs = torch.tensor([[1.0 if (i >> b) & 1 else -1.0 for b in range(16)] for i in range(1 << 14)])
    assert len(set(stats.fingerprints(signs).tolist())) == 1 << 14


def test_long_samples_differ_wherever_they_differ() -> None:
    long = torch.zeros(4, fingerprint.BLOCK * 3, dtype=torch.int64)
    long[1, 5], long[2, 5 + fingerprint.BLOCK], long[3, -1] = 1, 1, 1
    assert len(set(stats.fingerprints(long).tolist())) == 4


def test_layout_does_not_matter() -> None:
    images = build((5, 3, 8, 8), torch.float32, 1, 1.0, 0.0, 0.0)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(stats.fingerprints(images), stats.fingerprints(last))
    assert torch.equal(stats.fingerprints(images[1:]), stats.fingerprints(images)[1:])


def test_sparse_ones_have_none() -> None:
    for tensor in sparse(0):
        assert stats.fingerprints(tensor).shape == (0,)


@pytest.mark.slow
def test_a_gigabyte_a_second() -> None:
    images = torch.ones(64, 3, 224, 224)
    stats.fingerprints(images[:1])
    start = time.process_time()
    stats.fingerprints(images)
    assert images.numel() * 4 / (time.process_time() - start) > 0.5e9
