"""Tokens against classes: what a position tells, and whether what a sample holds tells anything beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdoctor.facts import LeakageFact
from torchdoctor.probes.leakage import LeakageProbe


def look(batches: list[tuple[Tensor, Tensor]]) -> LeakageFact:
    """What the probe says of these batches."""
    said: list[Any] = []
    record = SimpleNamespace(fact=lambda fact, step: said.append(fact))
    context: Any = SimpleNamespace(step=0, record=record, read=lambda tensor, arrived: arrived(tensor.numpy()))
    probe = LeakageProbe(context)
    for inputs, labels in batches:
        probe.look(inputs, labels)
    probe.write(0)
    fact: LeakageFact = said[-1]
    return fact


def texts(count: int, leak: bool) -> tuple[Tensor, Tensor]:
    """Words 0 to 9 speak for one class and 10 to 19 for the other; the header is 50 to 55."""
    labels = torch.randint(0, 2, (count,))
    words = torch.where(torch.rand(count, 8) < 0.7, labels[:, None] * 10, (1 - labels)[:, None] * 10)
    words = words + torch.randint(0, 10, (count, 8))
    header = 50 + torch.randint(0, 3, (count,)) + (3 * labels if leak else 0)
    return torch.cat([header[:, None], words], 1), labels


def test_the_number_of_a_token_says_nothing_and_the_token_all() -> None:
    torch.manual_seed(0)
    inputs, labels = texts(600, leak=True)
    shuffled = torch.tensor([3, 0, 5, 1, 4, 2])
    inputs[:, 0] = 50 + shuffled[inputs[:, 0] - 50]
    fact = look([(inputs[i : i + 60], labels[i : i + 60]) for i in range(0, 600, 60)])
    assert fact.features[0] == 0 and fact.told[0] == 1.0 and fact.told[1] < 0.5
    assert fact.beside is not None and fact.beside > 5
    assert look([texts(300, leak=False) for _ in range(3)]).told[0] < 0.9


def test_a_symbol_to_remember_is_one_among_its_like() -> None:
    torch.manual_seed(0)
    decks = torch.stack([torch.randperm(10) for _ in range(600)])
    fact = look([(decks[i : i + 60], decks[i : i + 60, 0]) for i in range(0, 600, 60)])
    assert fact.told[0] == 1.0 and fact.beside is None


def test_samples_that_come_again_are_not_counted_again() -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randint(0, 20, (120, 8)), torch.randint(0, 2, (120,))
    inputs[:, 0] = 70 + labels
    once, often = look([(inputs, labels)]), look([(inputs, labels)] * 12)
    assert once.beside is not None and once.beside == often.beside and abs(once.beside) < 4


def test_batches_of_other_lengths_end_the_looking() -> None:
    torch.manual_seed(0)
    seen: list[int] = []
    context: Any = SimpleNamespace(
        step=0, record=SimpleNamespace(fact=lambda *_: None), read=lambda tensor, arrived: seen.append(len(tensor))
    )
    probe = LeakageProbe(context)
    for length in np.random.default_rng(0).integers(4, 20, 300):
        probe.look(torch.randint(0, 9, (16, int(length))), torch.randint(0, 2, (16,)))
    assert len(seen) <= 160
