from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdoctor.facts import TEMPERATURES
from torchdoctor.probes.loss_calls import LossCall
from torchdoctor.probes.samples import _repeated, describe_inputs, observe
from torchdoctor.probes.slices import Samples, summarise


def call(function: str, source: Tensor, target: Tensor) -> LossCall:
    return LossCall(function, source, target, {"ignore_index": -100}, None)


def test_classes_row_by_row() -> None:
    logits, labels = torch.randn(50, 4), torch.randint(0, 4, (50,))
    labels[7] = -100
    rows = observe(call("cross_entropy", logits, labels), None, closely=True)
    assert rows is not None and rows.whole and rows.classes == 4
    known = labels >= 0
    wanted = F.cross_entropy(logits[known], labels[known], reduction="none")
    torch.testing.assert_close(rows.values[known, 0], wanted)
    assert rows.values[7, 1] == -1
    torch.testing.assert_close(rows.values[:, 2].long(), logits.argmax(1))
    torch.testing.assert_close(rows.values[:, 3], logits.softmax(1).max(1).values)
    assert ((rows.values[known, 4] == 0) == (logits.argmax(1) == labels)[known]).all()
    for i, temperature in enumerate(TEMPERATURES):
        loss = F.cross_entropy(logits[known] / temperature, labels[known], reduction="sum")
        torch.testing.assert_close(rows.rescaled[1 + i], loss)


def test_binary_numbers_and_many_labels() -> None:
    logits, labels = torch.randn(20), torch.randint(0, 2, (20,)).float()
    binary = observe(call("binary_cross_entropy_with_logits", logits, labels), None, closely=False)
    assert binary is not None and binary.classes == 2
    wanted = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    torch.testing.assert_close(binary.values[:, 0], wanted)
    numbers = observe(call("mse_loss", torch.zeros(5, 1), torch.arange(5.0).unsqueeze(1)), None, closely=False)
    assert numbers is not None and numbers.values[:, 0].tolist() == [0, 1, 4, 9, 16]
    many = observe(call("binary_cross_entropy_with_logits", torch.randn(6, 3), torch.ones(6, 3)), None, closely=False)
    assert many is not None and many.task == "multilabel"
    assert observe(call("mse_loss", torch.zeros(5, 1), torch.zeros(5)), None, closely=False) is None


def test_tokens_are_not_samples() -> None:
    inputs = torch.randint(0, 9, (4, 10))
    flat = observe(call("cross_entropy", torch.randn(40, 9), torch.randint(0, 9, (40,))), inputs, closely=True)
    assert flat is not None and not flat.whole and flat.attributes == ()
    deep = observe(call("cross_entropy", torch.randn(4, 9, 10), torch.randint(0, 9, (4, 10))), inputs, closely=True)
    assert deep is not None and not deep.whole and len(deep.values) == 40


def test_what_samples_are_like() -> None:
    images = torch.rand(6, 3, 8, 8)
    names, values = describe_inputs(images, 6)
    assert names == ("brightness", "contrast") and values is not None
    torch.testing.assert_close(values[:, 0], images.mean((1, 2, 3)))
    tokens = torch.tensor([[5, 6, 7, 8], [5, 6, 1, 1], [5, 1, 1, 1]])
    assert describe_inputs(tokens, 3)[1].flatten().tolist() == [4, 2, 1]
    sequences = torch.ones(2, 5, 3)
    sequences[0, 2:] = 0
    names, values = describe_inputs(sequences, 2)
    assert names[0] == "length" and len(names) == 3 and values is not None
    assert values[:, 0].tolist() == [2, 5]
    assert describe_inputs(torch.rand(4, 3), 4)[0] == ("feature 0", "feature 1", "feature 2")
    assert describe_inputs(torch.rand(4, 3), 5) == ((), None)


def test_a_pass_adds_up() -> None:
    random = np.random.default_rng(0)
    label = random.integers(0, 3, 300)
    predicted = np.where(random.random(300) < 0.8, label, (label + 1) % 3)
    confidence = np.full(300, 0.9)
    wrong = predicted != label
    rows = np.stack([wrong * 2.0, label, predicted, confidence, wrong, np.arange(300) % 2], 1).astype(float)
    samples = Samples("classes", 3, ("feature 0",))
    for part in np.array_split(rows, 3):
        samples.add(part)
    fact = summarise(samples, "validation")
    assert fact is not None
    assert fact.correct == int((~wrong).sum())
    assert fact.ece == pytest.approx(abs(0.9 - (~wrong).mean()))
    assert sum(n for *_, n in fact.confused) == wrong.sum() == sum(fact.ranks)
    assert {w["index"] for w in fact.worst} <= set(np.flatnonzero(wrong).tolist())
    assert [s["samples"] for s in fact.slices] == [150, 150]
    assert sum(t[1] for t in fact.tenths) == wrong.sum()
    assert summarise(Samples("classes", 3), "validation") is None


def test_the_error_of_naming_the_last_value_again() -> None:
    walk = torch.arange(24.0).reshape(2, 12)
    window, ahead = walk[:, :8], walk[:, 8:10]
    assert _repeated(window, ahead, ahead.shape, 1).tolist() == [2.5, 2.5]
    shifted = walk[:, 1:9]
    assert _repeated(window, shifted, shifted.shape, 1).tolist() == [1.0, 1.0]
    assert _repeated(window, window, window.shape, 1).isnan().all()
    assert _repeated(None, ahead, ahead.shape, 1).isnan().all()
