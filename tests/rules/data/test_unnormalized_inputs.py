from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import InputsFact, LossCallFact, ModuleFact
from torchdoctor.findings import Severity
from torchdoctor.signals import ACTIVATION, LOSS_TRAIN, TARGET_MEAN, TARGET_STD

NAME = "unnormalized-inputs"


def images(low: float, high: float, mean: float, std: float, dtype: str = "float32") -> InputsFact:
    return InputsFact("train", "input", [32, 1, 28, 28], dtype, mean, std, low, high)


def table(means: list[float], stds: list[float], binary: bool = False) -> InputsFact:
    m, s = np.array(means), np.array(stds)
    whole = float(np.sqrt((s**2).mean() + m.var()))
    low, high = (np.zeros(len(m)), np.ones(len(m))) if binary else (m - 3 * s, m + 3 * s)
    return InputsFact(
        "train", "input", [32, len(m)], "float32", float(m.mean()), whole, float(low.min()), float(high.max()),
        feature_dim=1, feature_mean=means, feature_std=stds, feature_low=low.tolist(), feature_high=high.tolist(),
    )  # fmt: skip


def classify(fact: InputsFact, first_loss: float = 2.4) -> RunBuilder:
    call = LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", reduction="mean", classes=10)
    return RunBuilder(100).fact(fact).fact(call).scalar(LOSS_TRAIN, np.linspace(first_loss, 0.3, 100))


def test_raw_pixels() -> None:
    (found,) = findings(classify(images(0, 255, 33, 78), first_loss=14.0).build(), NAME)
    assert found.severity is Severity.WARNING and found.confidence > 0.8
    assert found.fix.code == "X = X / 255.0"
    assert "255" in found.title


def test_a_raw_table_names_its_extreme_columns() -> None:
    (found,) = findings(classify(table([0.1, 650.0, 14.0], [0.01, 350.0, 3.5])).build(), NAME)
    assert found.severity is Severity.WARNING
    assert any("feature 1: mean 650" in e.text and "feature 2: mean 14" in e.text for e in found.evidence)


@pytest.mark.parametrize(
    "fact",
    [
        images(0, 1, 0.13, 0.3),
        images(-0.42, 2.8, 0.0, 1.0),
        images(0, 16, 4.9, 6.0),
        table([0.0] * 8, [1.0] * 8),
        table([0.02] * 40, [0.14] * 40, binary=True),
        images(0, 50_000, 20_000, 9_000, dtype="int64"),
        table([10.0, 20.0], [3.0, 5.0]),
    ],
    ids=["0..1", "standardised", "digits 0..16", "table", "one-hot", "token ids", "mild"],
)
def test_sound_inputs_are_silent(fact: InputsFact) -> None:
    assert findings(classify(fact).build(), NAME) == []


def test_mild_scale_counts_only_with_a_first_loss_far_above_chance() -> None:
    mild = images(0, 60, 30, 15)
    assert findings(classify(mild, first_loss=2.5).build(), NAME) == []
    assert findings(classify(mild, first_loss=12.0).build(), NAME)[0].severity is Severity.WARNING


def test_large_initial_weights_are_not_taken_for_large_inputs() -> None:
    run = (
        classify(images(0, 60, 30, 15), first_loss=300.0)
        .parameters({"fc1.weight": (64, 784)})
        .matrix(ACTIVATION["mean"], {"fc1": 10.0}, steps=[0])
        .matrix(ACTIVATION["std"], {"fc1": 900.0}, steps=[0])
        .build()
    )
    assert findings(run, NAME) == []


def test_a_normalising_first_layer_makes_it_an_info() -> None:
    run = classify(images(0, 255, 33, 78)).fact(ModuleFact("norm", "BatchNorm2d", order=0)).build()
    assert [f.severity for f in findings(run, NAME)] == [Severity.INFO]


def test_scaling_inside_forward_shows_in_the_first_layer() -> None:
    run = (
        classify(images(0, 255, 33, 78))
        .parameters({"conv1.weight": (8, 1, 3, 3)}, module_type="Conv2d")
        .matrix(ACTIVATION["mean"], {"conv1": 0.05}, steps=[0])
        .matrix(ACTIVATION["std"], {"conv1": 0.2}, steps=[0])
        .build()
    )
    assert [f.severity for f in findings(run, NAME)] == [Severity.INFO]


def test_a_recurrent_layer_squashes_its_inputs_but_does_not_scale_them() -> None:
    run = (
        classify(table([650.0] * 3, [350.0] * 3))
        .parameters({"lstm.weight_ih_l0": (256, 3)}, module_type="LSTM")
        .matrix(ACTIVATION["mean"], {"lstm": 0.05}, steps=[0])
        .matrix(ACTIVATION["std"], {"lstm": 0.2}, steps=[0])
        .build()
    )
    assert [f.severity for f in findings(run, NAME)] == [Severity.WARNING]


def test_floats_that_are_looked_up_in_an_embedding_are_silent() -> None:
    run = classify(images(0, 5000, 900, 700)).fact(ModuleFact("emb", "Embedding", order=0)).build()
    assert findings(run, NAME) == []


def regress(mean: float, std: float, last: float) -> RunBuilder:
    call = LossCallFact("mse_loss", "train", [32, 1], "float32", [32, 1], "float32", reduction="mean")
    return (
        RunBuilder(200)
        .fact(table([0.0] * 4, [1.0] * 4))
        .fact(call)
        .scalar(TARGET_MEAN, mean, "train", steps=range(0, 200, 10))
        .scalar(TARGET_STD, std, "train", steps=range(0, 200, 10))
        .scalar(LOSS_TRAIN, np.geomspace(mean**2 + std**2, last, 200))
    )


def test_targets_in_the_hundred_thousands() -> None:
    (found,) = findings(regress(3e5, 9e4, last=6e10).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "targets" in found.title and "y_train" in (found.fix.code or "")


def test_large_targets_that_were_learned_anyway_are_at_most_an_info() -> None:
    assert findings(regress(150, 77, last=3000).build(), NAME) == []
    assert findings(regress(3e5, 9e4, last=1e9).build(), NAME)[0].severity is Severity.INFO


def test_standardised_targets_are_silent() -> None:
    assert findings(regress(0.0, 1.0, last=1.0).build(), NAME) == []


def test_one_finding_when_both_are_raw() -> None:
    run = regress(3e5, 9e4, last=6e10).fact(table([650.0, 3.0], [350.0, 1.0])).build()
    assert len(findings(run, NAME)) == 1
