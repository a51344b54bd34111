from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import InputsFact, LeakageFact, LossCallFact
from torchdoctor.findings import RuledOut, Severity
from torchdoctor.signals import LOSS_TRAIN

NAME = "label-leakage"


def record(told: list[float], *, task: str = "classes", width: int = 20, median: float = 0.05) -> RunBuilder:
    features = [7, *range(len(told) - 1)]
    return RunBuilder().fact(LeakageFact(task, 600, [width], features, told, median))


def test_one_column_tells_the_class() -> None:
    (found,) = findings(record([1.0, 0.4, 0.2]).build(), NAME)
    assert found.severity is Severity.WARNING and found.title.startswith("Feature 7")
    assert found.fix.code is not None and found.fix.code.startswith("X[:, [7]] = 0")


def test_a_one_hot_target_among_the_inputs() -> None:
    (found,) = findings(record([1.0, 1.0, 1.0, 0.3]).build(), NAME)
    assert "and 2 more" in found.title


@pytest.mark.parametrize(
    "run",
    [
        record([0.99, 0.95, 0.9], median=0.3),
        record([0.99, 0.6, 0.6], median=0.6),
        record([1.0, 0.1], width=2),
        record([0.99, 0.2], task="regression"),
    ],
    ids=["others are nearly as good", "an easy task", "two features", "a strong but real correlation"],
)
def test_what_is_no_leak(run: RunBuilder) -> None:
    assert findings(run.build(), NAME) == []


def test_a_regression_target_that_is_not_read_off_early_may_be_a_forecast() -> None:
    told, steps = [0.998, 0.5], np.arange(300)
    slow = record(told, task="regression").scalar(LOSS_TRAIN, 1.0 - 0.003 * steps)
    assert [f.severity for f in findings(slow.build(), NAME)] == [Severity.INFO]
    fast = record(told, task="regression").scalar(LOSS_TRAIN, np.exp(-steps / 4) + 1e-4)
    assert [f.severity for f in findings(fast.build(), NAME)] == [Severity.WARNING]


def test_weak_features_rule_it_out() -> None:
    assert [type(s) for s in detect(record([0.4, 0.3]).build(), NAME)] == [RuledOut]


def test_a_feature_that_tells_much_is_neither_found_nor_ruled_out() -> None:
    """The share of variance that lies between two classes is at most 0.75 for evenly spread values."""
    assert not detect(record([0.7, 0.3]).build(), NAME)


@pytest.mark.parametrize(("end", "severity"), [(0.1, Severity.WARNING), (2.2, Severity.INFO)], ids=["used", "stuck"])
def test_a_leak_that_the_model_does_not_use_is_an_info(end: float, severity: Severity) -> None:
    call = LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", reduction="mean", classes=10)
    run = record([1.0, 0.4, 0.2]).fact(call).scalar(LOSS_TRAIN, np.geomspace(2.3, end, 300))
    assert [f.severity for f in findings(run.build(), NAME)] == [severity]


def test_a_leak_with_noise_on_it_stands_out_among_weak_features() -> None:
    assert [f.severity for f in findings(record([0.93, 0.16, 0.1]).build(), NAME)] == [Severity.WARNING]
    assert not findings(record([0.93, 0.6, 0.1]).build(), NAME)
    assert not findings(record([0.93, 0.3, 0.3], median=0.28).build(), NAME)


def test_the_targets_of_a_binary_loss_are_classes() -> None:
    call = LossCallFact("binary_cross_entropy_with_logits", "train", [32], "float32", [32], "float32", "mean")
    assert not findings(record([0.93, 0.16], task="regression").build(), NAME)
    (found,) = findings(record([0.93, 0.16], task="regression").fact(call).build(), NAME)
    assert found.severity is Severity.WARNING


def test_a_token_that_decides_is_a_leak_where_the_others_tell_the_class_too() -> None:
    def tokens(beside: float | None) -> RunBuilder:
        fact = LeakageFact("classes", 600, [12], [1, 4, 5], [1.0, 0.01, 0.01], 0.005, beside)
        return RunBuilder().fact(fact).fact(InputsFact("train", "input", [32, 12], "int64"))

    assert [f.severity for f in findings(tokens(9.0).build(), NAME)] == [Severity.WARNING]
    assert [f.severity for f in findings(tokens(2.0).build(), NAME)] == [Severity.INFO]
    assert [f.severity for f in findings(tokens(None).build(), NAME)] == [Severity.INFO]
