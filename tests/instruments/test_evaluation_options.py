"""Options of evaluate() at their limits, and verdicts about models that are worse than none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.evaluation import evaluate_predictions

LABELS = torch.arange(60) % 3
LOGITS = 5.0 * torch.nn.functional.one_hot((LABELS + 1) % 3, 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"threshold": 0.0}, "threshold is 0.0"),
        ({"threshold": 1.5}, "between 0 and 1"),
        ({"slice_parts": 0}, "slice_parts is 0"),
        ({"worst": -1}, "worst -1"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        evaluate_predictions(LOGITS, LABELS, **options)


def test_single_numbers_are_no_samples() -> None:
    with pytest.raises(UsageError, match="a row a sample"):
        evaluate_predictions(torch.tensor(1.0), torch.tensor(1.0))


def test_no_worst_samples_if_none_are_wanted() -> None:
    found = evaluate_predictions(LOGITS, LABELS, worst=0)
    assert found.worst == [] and "largest loss" not in str(found)


def test_a_model_that_is_worse_than_a_constant_answer_is_called_so() -> None:
    assert "which is less than always naming" in str(evaluate_predictions(LOGITS, LABELS)).splitlines()[0]
