from __future__ import annotations

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, PredictionsFact

NAME = "majority-class-collapse"


def course(support: list[int], *predicted: list[int], weighted: bool = False) -> RunBuilder:
    builder = RunBuilder(300)
    builder.fact(
        LossCallFact("cross_entropy", "train", [32, 3], "float32", [32], "int64", classes=3, weighted=weighted)
    )
    for i, guesses in enumerate(predicted):
        correct = [min(s, g) for s, g in zip(support, guesses, strict=True)]
        fact = PredictionsFact("validation", len(support), sum(support), support, correct, guesses)
        builder.fact(fact, 100 * i + 99)
    return builder


def test_one_answer_for_all_is_told_with_its_onset() -> None:
    run = course([100, 90, 80], [90, 90, 90], [0, 270, 0], [0, 270, 0], weighted=True).build()
    (found,) = findings(run, NAME)
    assert found.first_step == 199
    assert "weight" in found.fix.text


def test_one_answer_that_is_mostly_right_is_silent() -> None:
    assert findings(course([5, 260, 5], [0, 270, 0], [0, 270, 0]).build(), NAME) == []


def test_several_answers_are_silent() -> None:
    assert findings(course([100, 90, 80], [0, 230, 40], [0, 250, 20]).build(), NAME) == []


def test_a_first_pass_alone_decides_nothing() -> None:
    assert findings(course([100, 90, 80], [0, 270, 0], [80, 100, 90]).build(), NAME) == []
