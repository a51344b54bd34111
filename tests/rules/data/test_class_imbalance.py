from __future__ import annotations

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, PredictionsFact
from torchdoctor.findings import Severity

NAME = "class-imbalance"


def tally(phase: str, support: list[int], correct: list[int]) -> PredictionsFact:
    missed = sum(support) - sum(correct)
    predicted = [correct[0] + missed, *correct[1:]]
    return PredictionsFact(phase, len(support), sum(support), support, correct, predicted)


def course(support: list[int], correct: list[int], train: list[int] | None = None, **call: object) -> RunBuilder:
    builder = RunBuilder(300)
    fields = {"function": "cross_entropy", "phase": "train", "input_shape": [32, 2], "input_dtype": "float32"}
    fields |= {"target_shape": [32], "target_dtype": "int64", "classes": len(support), **call}
    builder.fact(LossCallFact(**fields))
    for step in (99, 199, 299):
        builder.fact(tally("validation", support, correct), step)
        builder.fact(tally("train", train or support, train or correct), step)
    return builder


def test_a_rare_class_that_is_missed_is_told() -> None:
    (found,) = findings(course([960, 40], [955, 4]).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "96%" in found.title


def test_while_the_run_goes_on_a_rising_recall_is_an_info() -> None:
    assert [f.severity for f in findings(course([960, 40], [955, 4]).live().build(), NAME)] == [Severity.WARNING]
    builder = course([960, 40], [955, 4])
    for step, found in ((320, 4), (340, 9), (360, 16)):
        builder.fact(tally("validation", [960, 40], [955, found]), step)
    assert [f.severity for f in findings(builder.live().build(), NAME)] == [Severity.INFO]


def test_a_rare_class_that_is_found_is_fine() -> None:
    assert findings(course([960, 40], [950, 31]).build(), NAME) == []


@pytest.mark.parametrize(
    "builder",
    [
        course([960, 40], [955, 4], weighted=True),
        course([960, 40], [955, 4], train=[500, 500]),
        course([550, 450], [500, 100]),
        course([96, 4], [96, 1]),
        course([960, 40], [955, 4], target_shape=[32, 64]),
    ],
    ids=["weighted", "balanced sampler", "hard but not rare", "too few", "tokens"],
)
def test_what_is_no_hidden_imbalance_is_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), NAME) == []


def test_one_answer_among_classes_that_are_no_rarity_is_a_collapse() -> None:
    assert findings(course([700, 100, 80, 70, 50], [700, 0, 0, 0, 0]).build(), NAME) == []
    assert len(findings(course([950, 50], [950, 0]).build(), NAME)) == 1
