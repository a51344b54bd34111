from __future__ import annotations

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, PredictionsFact, SamplesFact

NAME = "weak-slice"


def part(by: str, samples: int, correct: int, **more: object) -> dict[str, object]:
    return {"by": by, "low": 1.0, "high": 2.0, "samples": samples, "loss": 0.5, "correct": correct, **more}


def course(correct: list[int], slices: list[dict[str, object]], support: int = 60) -> RunBuilder:
    builder = RunBuilder(300)
    builder.fact(LossCallFact("cross_entropy", "train", [32, 5], "float32", [32], "int64", classes=len(correct)))
    total = support * len(correct)
    for step in (199, 299):
        fact = PredictionsFact("validation", len(correct), total, [support] * len(correct), correct, correct)
        builder.fact(fact, step)
        confused = [[2, 1, 40]]
        builder.fact(
            SamplesFact(
                "validation", "classes", total, 0.3, len(correct), sum(correct), confused=confused, slices=slices
            ),
            step,
        )
    return builder


def test_a_class_far_below_the_others() -> None:
    (found,) = findings(course([57, 58, 12, 57, 58], []).build(), NAME)
    assert "Class 2" in found.title
    assert any("class 1" in e.text for e in found.evidence)


def test_a_slice_of_the_inputs() -> None:
    slices = [part("length", 60, 25), part("length", 240, 236)]
    (found,) = findings(course([52, 53, 52, 52, 52], slices).build(), NAME)
    assert "Length 1 to 2" in found.title and "log_predictions" in (found.fix.code or "")


def test_a_group_of_the_user() -> None:
    slices = [part("site", 60, 25, value="north"), part("site", 240, 236, value="south")]
    (found,) = findings(course([52, 53, 52, 52, 52], slices).build(), NAME)
    assert "site = north" in found.title.lower() and found.fix.code is None


@pytest.mark.parametrize(
    ("correct", "slices"),
    [
        ([57, 58, 48, 57, 58], []),
        ([30, 20, 12, 25, 28], []),
        ([57, 45, 32, 50, 40], []),
        ([57, 58, 57, 57, 58], [part("length", 12, 4)]),
    ],
    ids=["a harder class", "all are bad", "classes vary", "too few samples"],
)
def test_what_is_not_outstanding_is_silent(correct: list[int], slices: list[dict[str, object]]) -> None:
    assert findings(course(correct, slices).build(), NAME) == []


def test_numbers_by_slice() -> None:
    slices = [
        {"by": "feature 0", "low": 1.0, "high": 1.0, "samples": 80, "loss": 1.5, "spread": 1.0},
        {"by": "feature 0", "low": 0.0, "high": 0.0, "samples": 320, "loss": 0.05, "spread": 1.0},
    ]
    builder = RunBuilder(300)
    loss = (80 * 1.5 + 320 * 0.05) / 400
    builder.fact(SamplesFact("validation", "regression", 400, loss, metrics={"variance": 1.0}, slices=slices), 299)
    (found,) = findings(builder.build(), NAME)
    assert "feature 0 1" in found.title


def test_a_slice_of_numbers_that_hardly_differ_is_not_weak() -> None:
    alike = {"by": "feature 0", "low": 1.0, "high": 1.0, "samples": 80, "loss": 0.09, "spread": 0.05}
    rest = {"by": "feature 0", "low": 0.0, "high": 0.0, "samples": 320, "loss": 0.06, "spread": 1.0}
    fact = SamplesFact("validation", "regression", 400, 0.066, metrics={"variance": 1.0}, slices=[alike, rest])
    assert findings(RunBuilder(300).fact(fact, 299).build(), NAME) == []


@pytest.mark.parametrize(("loss", "outlier", "count"), [(1.5, 8.0, 1), (0.5, 8.0, 0), (1.5, 90.0, 0)])
def test_the_largest_targets_are_far_off(loss: float, outlier: float, count: int) -> None:
    part = {"by": "target magnitude", "low": 2.0, "high": 4.0, "samples": 100, "loss": loss, "spread": 0.4}
    run = RunBuilder(300)
    worst = [{"index": i, "loss": outlier} for i in range(5)]
    fact = SamplesFact(
        "validation", "regression", 500, 0.2 * loss + 0.08, metrics={"variance": 1.0}, worst=worst, slices=[part]
    )
    assert len(findings(run.fact(fact, 199).fact(fact, 299).build(), NAME)) == count


@pytest.mark.parametrize(("by", "count"), [("brightness", 1), ("feature 3", 0)])
def test_what_a_sample_is_like_as_a_whole_needs_less(by: str, count: int) -> None:
    slices = [part(by, 100, 75), part(by, 200, 198)]
    assert len(findings(course([55, 55, 54, 55, 54], slices).build(), NAME)) == count
