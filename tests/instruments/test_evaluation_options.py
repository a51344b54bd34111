"""Options of evaluate() at their limits, and verdicts about models that are worse than none."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def test_of_many_labels_f1_is_that_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchdoctor.instruments.evaluating import judging_labels, predictions

    draw = np.random.default_rng(1)
    logits = draw.normal(size=(600, 4))
    labels = (logits + draw.normal(size=(600, 4)) > 0).astype(int)
    whole = evaluate_predictions(logits, labels)
    monkeypatch.setattr(judging_labels, "RESAMPLED", 1500)
    thinned = evaluate_predictions(logits, labels)
    assert thinned.notes == [] and thinned.metrics["precision_at_10"] == whole.metrics["precision_at_10"]
    monkeypatch.setattr(predictions, "NUMBERS_KEPT", 900)
    kept = evaluate_predictions(logits, labels)
    assert any("precision at k is left out" in note for note in kept.notes)
    assert not any(name.startswith("precision_at") for name in kept.metrics)
    for found in (thinned, kept):
        for name in ("micro_f1", "macro_f1"):
            a, b = found.metrics[name], whole.metrics[name]
            assert a.value == pytest.approx(b.value)
            assert a.high - a.low == pytest.approx(b.high - b.low, rel=0.4)
        assert (found.confusion == whole.confusion).all() and found.baseline == pytest.approx(whole.baseline)
        assert [c.f1 for c in found.classes] == [c.f1 for c in whole.classes]


def test_numbers_that_are_thinned_are_counted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchdoctor.instruments.evaluating import predictions

    monkeypatch.setattr(predictions, "NUMBERS_KEPT", 400)
    target = torch.randn(600, 3)
    found = evaluate_predictions(target + 1, target)
    assert found.elements == 1800 and "is in the figures" in found.notes[0]
