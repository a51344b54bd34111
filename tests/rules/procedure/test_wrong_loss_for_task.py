from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import LossCallFact
from torchdoctor.findings import Severity

NAME = "wrong-loss-for-task"


def called(function: str, inputs: list[int], targets: list[int], dtype: str = "float32", **given: Any) -> RunBuilder:
    classes = inputs[1] if function in ("cross_entropy", "nll_loss") and len(inputs) > 1 else None
    fact = LossCallFact(function, "train", inputs, "float32", targets, dtype, "mean", classes=classes, **given)
    return RunBuilder(50).optimizer("SGD", lr=0.1).fact(fact)


def test_raw_scores_in_nll_loss() -> None:
    (found,) = findings(called("nll_loss", [32, 10], [32], "int64", input_low=-3, input_high=2.5).build(), NAME)
    assert found.severity is Severity.ERROR and "cross_entropy" in (found.fix.code or "")


def test_log_probabilities_in_nll_loss_are_right() -> None:
    assert not findings(called("nll_loss", [32, 10], [32], "int64", input_low=-9, input_high=-1e-7).build(), NAME)


def test_raw_scores_in_bce_and_probabilities_as_a_remark() -> None:
    def run(low: float, high: float) -> Any:
        target = {"target_low": 0, "target_high": 1, "target_integral": True}
        return called("binary_cross_entropy", [32, 6], [32, 6], input_low=low, input_high=high, **target).build()

    assert findings(run(-1.0, 2.0), NAME)[0].severity is Severity.ERROR
    assert findings(run(0.1, 0.9), NAME)[0].severity is Severity.INFO


def test_quantities_in_cross_entropy_but_not_soft_labels() -> None:
    wrong = called("cross_entropy", [32, 2], [32, 2], target_low=-2.1, target_high=3.0, target_integral=False)
    assert findings(wrong.build(), NAME)[0].severity is Severity.ERROR
    soft = called("cross_entropy", [32, 5], [32, 5], target_low=0.0, target_high=0.9, target_integral=False)
    assert not findings(soft.build(), NAME)


def test_one_output_in_cross_entropy() -> None:
    assert findings(called("cross_entropy", [32, 1], [32, 1], target_low=0.0, target_high=1.0).build(), NAME)


def numbers(high: float, mean: float, std: float, **given: Any) -> RunBuilder:
    run = called("mse_loss", [32], [32], target_low=0, target_high=high, target_integral=True, **given)
    return run.scalar(signals.TARGET_MEAN, mean, key="train").scalar(signals.TARGET_STD, std, key="train")


def test_squared_error_on_class_numbers_but_not_on_counts_and_quantities() -> None:
    assert findings(numbers(9, 4.5, 2.87).build(), NAME)[0].severity is Severity.WARNING
    assert not findings(numbers(9, 1.2, 1.1).build(), NAME)
    rest = called("mse_loss", [32], [32], target_low=0, target_high=9, target_integral=False)
    assert not findings(rest.build(), NAME)


@pytest.mark.parametrize("function", ["mse_loss", "binary_cross_entropy_with_logits"])
def test_one_hot_rows_but_not_several_labels(function: str) -> None:
    def run(mean: Any) -> Any:
        target = {"target_low": 0, "target_high": 1, "target_integral": True}
        return called(function, [32, 5], [32, 5], **target).scalar(signals.TARGET_MEAN, mean, key="train").build()

    assert findings(run(0.2), NAME)[0].severity is Severity.WARNING
    assert not findings(run(0.2 + 0.01 * np.sin(np.arange(50))), NAME)


def test_one_sigmoid_for_each_exclusive_class_is_a_choice_where_training_works() -> None:
    target = {"target_low": 0, "target_high": 1, "target_integral": True}
    run = called("binary_cross_entropy_with_logits", [32, 5], [32, 5], **target)
    run = run.scalar(signals.TARGET_MEAN, 0.2, key="train")
    assert (
        findings(run.scalar(signals.LOSS_TRAIN, np.linspace(0.7, 0.1, 50)).build(), NAME)[0].severity is Severity.INFO
    )
    stuck = run.scalar(signals.LOSS_TRAIN, np.full(50, 0.5)).build()
    assert findings(stuck, NAME)[0].severity is Severity.WARNING


def test_a_least_squares_gan_is_left_alone() -> None:
    assert not findings(numbers(1, 0.5, 0.5).optimizer("Adam", key="1", lr=0.1).build(), NAME)
