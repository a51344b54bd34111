from __future__ import annotations

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Severity

NAME = "miscalibrated"


def look(loss: float, accuracy: float, confidence: float, best: float | None = None) -> SamplesFact:
    bins = [[0, 0.0, 0.0] for _ in range(15)]
    bins[14 if confidence > 0.94 else 12] = [1000, confidence, accuracy]
    rescaled = [2 * loss, loss, best or loss, loss, loss, loss, loss]
    ece = abs(confidence - accuracy)
    correct = round(1000 * accuracy)
    return SamplesFact("validation", "classes", 1000, loss, 4, correct, ece=ece, bins=bins, rescaled=rescaled)


def course(*looks: SamplesFact, train: float = 0.99, smoothing: float = 0.0) -> RunBuilder:
    builder = RunBuilder(600)
    builder.fact(
        LossCallFact("cross_entropy", "train", [32, 4], "float32", [32], "int64", classes=4, label_smoothing=smoothing)
    )
    for i, fact in enumerate(looks):
        builder.fact(fact, 100 * i + 99)
    hits = round(250 * train)
    return builder.fact(PredictionsFact("train", 4, 1000, [250] * 4, [hits] * 4, [250] * 4), 599)


RISING = [look(0.5, 0.85, 0.8), look(0.42, 0.87, 0.86), look(0.5, 0.87, 0.92), look(0.7, 0.87, 0.96)]


def test_a_loss_that_rises_while_accuracy_holds() -> None:
    last = look(0.9, 0.87, 0.98, best=0.45)
    (found,) = findings(course(*RISING, last).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "/ 1.5" in (found.fix.code or "")


def test_without_a_rise_it_is_only_told() -> None:
    looks = [look(0.6, 0.87, 0.96, best=0.45)] * 3 + [look(0.59, 0.87, 0.96, best=0.45)] * 2
    (found,) = findings(course(*looks).build(), NAME)
    assert found.severity is Severity.INFO


def test_a_scale_that_is_off_from_the_first_pass_on() -> None:
    (found,) = findings(course(*[look(1.0, 0.87, 0.98, best=0.4)] * 5).build(), NAME)
    assert found.severity is Severity.WARNING


def test_a_model_that_is_not_sure_enough_needs_no_regularisation() -> None:
    (found,) = findings(course(*[look(0.7, 0.93, 0.8, best=0.4)] * 4, look(0.69, 0.93, 0.8, best=0.4)).build(), NAME)
    assert found.severity is Severity.INFO and "longer" in found.fix.text
    assert "decay" not in found.fix.text and "checkpoint" not in found.fix.text


def test_an_overfitted_model_is_only_told() -> None:
    looks = [look(1.5, 0.6, 0.65), look(1.4, 0.63, 0.7), look(1.6, 0.63, 0.85), look(2.4, 0.63, 0.96)]
    found = findings(course(*looks, look(2.6, 0.63, 0.97, best=1.5), train=1.0).build(), NAME)
    assert [f.severity for f in found] == [Severity.INFO]


def test_a_calibrated_model_is_silent() -> None:
    looks = [look(0.5, 0.85, 0.84), look(0.45, 0.86, 0.87), look(0.44, 0.87, 0.88), look(0.44, 0.87, 0.89)]
    assert findings(course(*looks).build(), NAME) == []


def test_smoothed_labels_make_it_less_sure_on_purpose() -> None:
    looks = [look(0.7, 0.93, 0.8, best=0.4)] * 4
    assert findings(course(*looks, smoothing=0.1).build(), NAME) == []


def test_accuracy_that_falls_is_not_this() -> None:
    assert findings(course(*RISING, look(1.2, 0.8, 0.98, best=0.6)).build(), NAME) == []


def test_some_accuracy_may_go_where_a_temperature_takes_most_of_the_rise_back() -> None:
    (found,) = findings(course(*RISING, *[look(0.9, 0.845, 0.98, best=0.45)] * 2).build(), NAME)
    assert found.severity is Severity.WARNING
    assert findings(course(*RISING, *[look(0.9, 0.845, 0.98, best=0.8)] * 2).build(), NAME) == []
    assert findings(course(*RISING, *[look(0.9, 0.8, 0.98, best=0.45)] * 2).build(), NAME) == []
