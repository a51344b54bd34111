"""Batches with a planted fault, and batches without one."""

from __future__ import annotations

import math
import re
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.errors import UsageError
from torchdoctor.findings import Severity

torch.manual_seed(0)
TABLE, CLASSES = torch.randn(64, 6), torch.arange(64) % 4
IMAGES, BYTES = torch.randn(16, 3, 8, 8), torch.rand(16, 3, 8, 8) * 255
NUMBERS = torch.randn(64)


def with_value(tensor: torch.Tensor, index: tuple[int, ...], value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed[index] = value
    return changed


@dataclass
class Sample:
    image: torch.Tensor
    label: torch.Tensor


@pytest.mark.parametrize(
    "batch",
    [
        (TABLE, CLASSES),
        [TABLE, NUMBERS],
        {"x": IMAGES, "labels": CLASSES[:16]},
        Sample(IMAGES, CLASSES[:16]),
        namedtuple("Pair", "x y")(TABLE, NUMBERS),
        (torch.rand(32, 1, 28, 28), CLASSES[:32]),
        {"input_ids": torch.randint(0, 99, (8, 5)), "attention_mask": torch.ones(8, 5).long(), "labels": CLASSES[:8]},
        (torch.randint(0, 99, (8, 5)), torch.randint(0, 99, (8, 5))),
        (TABLE, (NUMBERS[:, None] > torch.tensor([-1.0, 0.0, 1.0])).float()),
        (TABLE, torch.nn.functional.one_hot(CLASSES).float()),
        (TABLE.numpy(), NUMBERS.numpy()),
        TABLE,
        (TABLE,),
    ],
)
def test_sound_batches_have_no_problem(batch: object) -> None:
    report = torchdoctor.validate_batch(batch)
    assert report.ok and report, str(report)
    assert str(report).startswith("Nothing wrong")


@pytest.mark.parametrize(
    ("batch", "severity", "said"),
    [
        ((with_value(TABLE, (3, 1), math.nan), CLASSES), "error", "1 element is NaN or Inf, in 1 of 64"),
        ((TABLE, with_value(NUMBERS, (5,), math.inf)), "error", r"the first \(Inf\) at \[5\]"),
        ((TABLE[:1].expand(64, 6), CLASSES), "error", "all 64 samples are the same"),
        ((TABLE, CLASSES[:60]), "error", "the others have"),
        ((TABLE[:0], CLASSES[:0]), "error", "empty"),
        ((IMAGES.to(torch.uint8), CLASSES[:16]), "error", "bytes"),
        ((TABLE, CLASSES - 1), "error", "the lowest label is -1"),
        ((TABLE, torch.full((64,), -100)), "error", "leaves out"),
        ((TABLE, CLASSES.int()), "error", "type int32"),
        ((BYTES, CLASSES[:16]), "warning", "pixels up to"),
        ((TABLE * 500, CLASSES), "warning", "not normalised"),
        ((TABLE * torch.tensor([1.0, 1, 1, 1, 1, 5e-5]) * 20, CLASSES), "warning", "features differ .*-fold in scale"),
        ((TABLE.double(), CLASSES), "warning", "float64"),
        ((TABLE, CLASSES * 0 + 2), "warning", "all 64 samples are of class 2"),
        ((TABLE, CLASSES + 1), "warning", "no label is 0"),
        ((TABLE, CLASSES[:, None]), "warning", r"shape \(64, 1\)"),
        ((TABLE, NUMBERS * 1e4), "warning", "of size"),
        ((TABLE, NUMBERS * 0 + 3), "warning", "every target is 3"),
        ((TABLE, TABLE[:, 2] * 3 + 1), "warning", "feature 2 of .* is the target itself"),
        ((torch.randn(16, 32, 32, 3), CLASSES[:16]), "warning", "channels seem to come last"),
        ((TABLE.repeat(4, 1), CLASSES.repeat(4)), "warning", "192 of 256 samples are copies"),
        ({"x": TABLE, "mask": with_value(torch.ones(64, 5).long(), (3,), 0), "y": CLASSES}, "warning", "masked altog"),
        ((with_value(TABLE, (slice(None), 1), 0.5), CLASSES), "info", "1 of 6 features are constant"),
        ((TABLE, (torch.arange(64) > 60).long()), "info", "class 0 makes up 95%"),
        ((TABLE, CLASSES.float() * 2), "info", "whole numbers"),
    ],
)
def test_planted_faults_are_told(batch: object, severity: str, said: str) -> None:
    report = torchdoctor.validate_batch(batch)
    hits = [p for p in report.problems if re.search(said, p.text)]
    assert hits and hits[0].severity is Severity(severity), str(report)
    assert report.ok == all(p.severity is Severity.INFO for p in report.problems)


def test_labels_against_the_number_of_outputs() -> None:
    assert torchdoctor.validate_batch((TABLE, CLASSES), classes=4).ok
    too_high = torchdoctor.validate_batch((TABLE, CLASSES), classes=3).problems[0]
    assert "up to 3, with 3 classes they end at 2" in too_high.text and too_high.severity is Severity.ERROR
    from_one = torchdoctor.validate_batch((TABLE, CLASSES + 1), classes=4).problems[0]
    assert "subtract 1" in from_one.fix


def test_counts_in_closed_form() -> None:
    report = torchdoctor.validate_batch((TABLE, CLASSES))
    assert report.labels is not None and report.labels.counts == {"0": 16, "1": 16, "2": 16, "3": 16}
    assert report.samples == 64
    seen = report.tensors[0]
    assert (seen.mean, seen.low) == pytest.approx((float(TABLE.mean()), float(TABLE.min())), rel=1e-5)
    assert report.to_dict()["problems"] == []


def test_worst_first_and_a_picture() -> None:
    report = torchdoctor.validate_batch((with_value(TABLE * 500, (0, 0), math.nan), CLASSES - 1))
    severities = [p.severity.rank for p in report.problems]
    assert severities == sorted(severities) and "3 problems" in str(report)
    figure = report.plot()
    assert "NaN or Inf" in figure.layout.title.text and len(figure.data) == 2
    assert "without a problem" in torchdoctor.validate_batch((TABLE, CLASSES)).plot().layout.title.text


def test_first_batch_of_a_loader_which_stays_where_it_was() -> None:
    loader = DataLoader(TensorDataset(TABLE, CLASSES), 8, shuffle=True, generator=torch.Generator().manual_seed(0))
    before, drawn = loader.generator.get_state(), torch.random.get_rng_state()
    assert torchdoctor.validate_batch(loader).samples == 8
    assert torch.equal(before, loader.generator.get_state()) and torch.equal(drawn, torch.random.get_rng_state())


@pytest.mark.parametrize(
    "sample",
    [
        (TABLE[0], torch.tensor(1)),
        (TABLE[0], torch.tensor(1.5)),
        (IMAGES[0], 3),
        {"x": TABLE[0], "labels": torch.tensor(True)},
        {"x": TABLE[0], "labels": np.float32(2.5)},
        Sample(IMAGES[0], torch.tensor(3)),
        torch.tensor(2.0),
    ],
)
def test_a_sample_is_no_batch(sample: object) -> None:
    with pytest.raises(UsageError, match=r"one sample without a batch dimension.*default_collate\(\[sample\]\)"):
        torchdoctor.validate_batch(sample)
    assert torchdoctor.validate_batch((TABLE, CLASSES, 7)).samples == 64


def test_a_batch_of_one_is_called_so() -> None:
    report = torchdoctor.validate_batch((IMAGES[:1], CLASSES[:1]))
    assert str(report).startswith("Nothing wrong with this batch of 1 sample.")
    assert "1 samples" not in str(torchdoctor.validate_batch((with_value(TABLE[:1], (0, 0), math.nan), CLASSES[:1])))


def test_what_is_no_tensor_is_listed() -> None:
    report = torchdoctor.validate_batch({"x": TABLE, "labels": CLASSES, "path": ["a.png"], "id": 3})
    assert report.other == ("str", "int")


@pytest.mark.parametrize(
    ("batch", "said"),
    [([], "gives no batch"), (SimpleNamespace(x=1), "without a tensor"), (None, "None"), (np.array(["a"]), "without")],
)
def test_what_cannot_be_is_said(batch: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        torchdoctor.validate_batch(batch)
