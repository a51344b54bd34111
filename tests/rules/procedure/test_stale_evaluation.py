from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import WiringFact
from torchdoctor.findings import Proof, RuledOut, Severity

NAME = "stale-evaluation"
AT = [99, 199, 299, 399]


def training(validation: list[float], ratio: float = 1e-3) -> RunBuilder:
    return (
        RunBuilder(400)
        .scalar(signals.LOSS_TRAIN, np.linspace(2.3, 0.3, 400))
        .scalar(signals.LOSS_VALIDATION, validation, steps=AT)
        .scalar(signals.LEARNING_RATE, 0.1, key="0.0")
        .matrix(signals.UPDATE_RATIO, {"fc.weight": ratio})
        .fact(WiringFact(updates=400, total=2))
    )


def test_the_same_number_every_time() -> None:
    (found,) = findings(training([2.31, 2.31, 2.31, 2.31]).build(), NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE
    assert found.evidence[0].value == 2.31


def test_different_numbers_rule_it_out() -> None:
    (said,) = training([2.31, 2.32, 2.30, 2.29]).detect(NAME)
    assert isinstance(said, RuledOut)


def test_a_plateau_is_not_exact() -> None:
    assert not findings(training([0.5, 0.5 + 1e-7, 0.5, 0.5 - 1e-7]).build(), NAME)


def test_a_model_that_does_not_move_may_repeat() -> None:
    assert not findings(training([2.31] * 4, ratio=1e-9).build(), NAME)
    assert not findings(training([2.31] * 4).scalar(signals.LEARNING_RATE, 0.0, key="0.0").build(), NAME)


def test_a_saturated_model_may_repeat() -> None:
    """Softmax before the loss, driven to one answer: hardly a gradient is left, and momentum moves the weights on."""
    gone = np.where(np.arange(400) < 80, 1.0, 1e-9)
    assert not findings(training([1.2436] * 4).matrix(signals.GRADIENT_L2, {"fc.weight": gone}).build(), NAME)
    trains = np.linspace(1.0, 0.01, 400)
    assert findings(training([1.2436] * 4).matrix(signals.GRADIENT_L2, {"fc.weight": trains}).build(), NAME)


def test_a_reference_scored_beside_the_model_is_fine() -> None:
    run = training([1.5] * 4).scalar(signals.LOSS_VALIDATION, [2.0, 1.0, 0.8, 0.7], key="test", steps=AT)
    assert not findings(run.build(), NAME)


def test_a_loss_of_zero_says_nothing() -> None:
    assert not findings(training([0.0] * 4).build(), NAME)


def test_a_share_of_few_samples_may_stand_still() -> None:
    assert not findings(training([3 / 60] * 4).build(), NAME)
    assert not findings(training([float(np.float32(0.05))] * 4).build(), NAME)
    assert findings(training([0.14142136] * 4).build(), NAME)


def test_equal_values_of_different_folds_are_not_stale() -> None:
    folds = training([2.31] * 4)
    for number, first in enumerate(range(0, 400, 100)):
        folds.scalar(signals.LEARNING_RATE, 0.1, key=f"{number}.0", steps=range(first, first + 100))
    assert not findings(folds.build(), NAME)
