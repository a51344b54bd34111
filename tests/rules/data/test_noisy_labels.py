from __future__ import annotations

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Severity

NAME = "noisy-labels"


def course(wrong: list[int], unlikely: float, classes: int = 10, dtype: str = "int64") -> RunBuilder:
    samples, missed = 64 * len(wrong), sum(wrong)
    builder = RunBuilder(300)
    builder.fact(LossCallFact("cross_entropy", "train", [32, classes], "float32", [32], dtype, classes=classes))
    share = samples // classes
    builder.fact(PredictionsFact("train", classes, share * classes, [share] * classes, [0] * classes, [0] * classes))
    tenths = [[64, w, 0.5 + 0.05 * i] for i, w in enumerate(wrong)]
    fact = SamplesFact(
        "train", "classes", samples, 1.0, classes, samples - missed, tenths=tenths, unlikely=round(unlikely * missed)
    )
    return builder.fact(fact, 199)


def test_errors_that_do_not_care_how_sure_the_model_is() -> None:
    (found,) = findings(course([30, 26, 24, 22, 21, 20, 19, 18, 18, 17], 0.45).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "30%" in found.title or "31%" in found.title


def validated(builder: RunBuilder, wrong: list[int], unlikely: float, passes: int = 4, classes: int = 10) -> RunBuilder:
    samples, missed = 50 * len(wrong), sum(wrong)
    tenths = [[50, w, 0.5 + 0.05 * i] for i, w in enumerate(wrong)]
    for i in range(passes):
        fact = SamplesFact(
            "validation",
            "classes",
            samples,
            1.0,
            classes,
            samples - missed,
            tenths=tenths,
            unlikely=round(unlikely * missed),
        )
        builder.fact(fact, 60 * (i + 1))
    return builder


CONFUSED = [30, 26, 24, 22, 21, 20, 19, 18, 18, 17]


def test_labels_confused_with_the_next_class_in_both_splits() -> None:
    (found,) = findings(validated(course(CONFUSED, 0.0), [17, 16, 16, 15, 15, 15, 14, 14, 14, 13], 0.0).build(), NAME)
    assert "training and validation" in found.title


@pytest.mark.parametrize("wrong", [[30, 28, 26, 22, 18, 14, 10, 8, 6, 4], [2] * 10], ids=["hard", "few errors"])
def test_a_validation_that_errs_where_it_is_unsure_confirms_nothing(wrong: list[int]) -> None:
    assert findings(validated(course(CONFUSED, 0.0), wrong, 0.0).build(), NAME) == []


def test_two_classes_are_judged_by_confidence_alone() -> None:
    assert findings(course([18, 16, 14, 14, 13, 13, 12, 12, 12, 11], 0.0, classes=2).build(), NAME)


@pytest.mark.parametrize(
    "builder",
    [
        course([40, 35, 28, 20, 12, 6, 3, 1, 0, 0], 0.1),
        course([30, 26, 24, 22, 21, 20, 19, 18, 18, 17], 0.08),
        course([60] * 10, 0.5),
        course([30, 26, 24, 22, 21, 20, 19, 18, 18, 17], 0.45, dtype="float32"),
    ],
    ids=["hard", "confused pairs", "nothing learned", "mixed targets"],
)
def test_a_hard_task_is_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), NAME) == []
