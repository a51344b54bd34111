from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LabelsFact, LossCallFact
from torchdoctor.findings import Proof, Severity
from torchdoctor.signals import LOSS_TRAIN

NAME = "invalid-labels"


def classes(low: float, high: float, width: int = 10, **fields: object) -> LossCallFact:
    given: dict[str, object] = {
        "target_dtype": "int64",
        "ignore_index": -100,
        "target_integral": True,
        "ignored": 0.0,
        **fields,
    }
    return LossCallFact(
        "cross_entropy", "train", [32, width], "float32", [32], target_low=low, target_high=high, classes=width,
        file="train.py", line=12, **given,
    )  # type: ignore[arg-type]  # fmt: skip


def binary(low: float, high: float, integral: bool = True) -> LossCallFact:
    return LossCallFact(
        "binary_cross_entropy_with_logits", "train", [32], "float32", [32], "float32", target_low=low, target_high=high,
        target_integral=integral,
    )  # fmt: skip


def said(fact: LossCallFact):
    return findings(RunBuilder(50).fact(fact).build(), NAME)


def test_labels_out_of_range() -> None:
    (found,) = said(classes(0, 10))
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE
    assert found.where[0].line == 12
    assert "Label 10" in found.title


def test_labels_counted_from_one() -> None:
    assert said(classes(1, 10))[0].fix.code == "y = y - 1"


def test_a_negative_label_without_ignore_index() -> None:
    (found,) = said(classes(-1, 9))
    assert "ignore_index=-1" in (found.fix.code or "")


@pytest.mark.parametrize(
    ("low", "high", "code"),
    [(-1, 1, "(y + 1) / 2"), (1, 2, "y - 1"), (0, 255, "y / 255")],
    ids=["-1..1", "1..2", "0..255"],
)
def test_binary_labels_outside_their_range(low: float, high: float, code: str) -> None:
    (found,) = said(binary(low, high))
    assert found.severity is Severity.ERROR
    assert code in (found.fix.code or "")


@pytest.mark.parametrize(
    "fact",
    [
        classes(0, 9),
        classes(2, 7),
        classes(-100, 9, ignored=0.4),
        classes(0.0, 1.0, target_dtype="float32"),
        classes(0.01, 0.9, target_dtype="float32", target_integral=False),
        classes(0, 49_000, width=50_257),
        binary(0, 1),
        binary(0.1, 0.9, integral=False),
        binary(0.0, 1.2, integral=False),
        LossCallFact("mse_loss", "train", [32, 1], "float32", [32, 1], "float32", target_low=-4000, target_high=9000),
        LossCallFact("soft_margin_loss", "train", [32], "float32", [32], "float32", target_low=-1, target_high=1),
    ],
)
def test_labels_that_fit_are_silent(fact: LossCallFact) -> None:
    assert said(fact) == []


def test_all_ignored_and_the_loss_is_nan() -> None:
    run = RunBuilder(50).fact(classes(-100, -100, ignored=1.0)).scalar(LOSS_TRAIN, np.full(50, np.nan)).build()
    (found,) = findings(run, NAME)
    assert found.symptoms == ("nan-at-first-step",)
    finite = RunBuilder(50).fact(classes(-100, -100, ignored=1.0)).scalar(LOSS_TRAIN, 0.0).build()
    assert findings(finite, NAME) == []


def test_class_zero_that_never_occurs_is_an_info() -> None:
    counts = {str(c): 100 for c in range(1, 11)}
    run = RunBuilder(50).fact(classes(1, 10, width=11)).fact(LabelsFact("train", counts, 40)).build()
    assert [f.severity for f in findings(run, NAME)] == [Severity.INFO]
    reserved = (
        RunBuilder(50).fact(classes(1, 10, width=11, ignore_index=0)).fact(LabelsFact("train", counts, 40)).build()
    )
    assert findings(reserved, NAME) == []
    unsure = RunBuilder(50).fact(classes(1, 10, width=11)).fact(LabelsFact("train", {"1": 4, "10": 3}, 1)).build()
    assert findings(unsure, NAME) == []


def test_signs_where_zero_and_one_are_given() -> None:
    fact = LossCallFact(
        "soft_margin_loss", "train", [32], "float32", [32], "float32", target_low=0, target_high=1, target_integral=True
    )
    assert said(fact)[0].fix.code == "y = 2 * y - 1"


MESSAGES = [
    ("IndexError", "Target 10 is out of bounds.", "unique"),
    ("IndexError", "Target -1 is out of bounds.", "ignore_index=-1"),
    ("RuntimeError", "expected target dtype to be Long or Byte, but got Float", ".long()"),
    ("RuntimeError", "expected scalar type Long but found Float", ".long()"),
    ("RuntimeError", "0D or 1D target tensor expected, multi-target not supported", "squeeze(1)"),
    ("RuntimeError", "Expected floating point type for target with class probabilities, got Long", "argmax"),
    ("RuntimeError", "all elements of target should be between 0 and 1", "y > 0"),
    ("RuntimeError", "result type Float can't be cast to the desired output type Long", ".float()"),
    ("ValueError", "Target size (torch.Size([4])) must be the same as input size (torch.Size([4, 1]))", "squeeze"),
    ("ValueError", "Expected input batch_size (4) to match target batch_size (3).", "assert"),
    ("RuntimeError", "Expected target size [4, 3], got [4, 7]", "flatten"),
]


@pytest.mark.parametrize(("type", "message", "code"), MESSAGES)
def test_the_error_that_ended_the_program_is_explained(type: str, message: str, code: str) -> None:
    error = {"type": type, "message": message, "file": "train.py", "line": 31}
    (found,) = findings(RunBuilder(0).info(exception=error).build(), NAME)
    assert found.severity is Severity.ERROR
    assert found.where[0].line == 31
    assert code in (found.fix.code or "")
    assert message[:20] in found.evidence[0].text


@pytest.mark.parametrize(
    "message", ["index out of range in self", "CUDA out of memory", "mat1 and mat2 shapes cannot be multiplied"]
)
def test_other_errors_are_not_ours(message: str) -> None:
    assert findings(RunBuilder(5).info(exception={"type": "RuntimeError", "message": message}).build(), NAME) == []


def test_a_device_side_assert_behind_a_classification_loss() -> None:
    error = {"type": "RuntimeError", "message": "CUDA error: device-side assert triggered"}
    assert findings(RunBuilder(5).info(exception=error).build(), NAME) == []
    (found,) = findings(RunBuilder(5).fact(classes(0, 9)).info(exception=error).build(), NAME)
    assert found.confidence < 0.7
