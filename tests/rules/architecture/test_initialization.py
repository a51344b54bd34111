"""Symmetric and badly scaled initial weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import GraphFact, LossCallFact, ModuleFact, NonfiniteFact, ParameterFact, WiringFact
from torchdoctor.findings import Finding, Proof, RuledOut, Severity

SYMMETRIC, SCALE = "symmetric-initialization", "bad-initialization-scale"
LOOKS = (0, 1, 2, 5, 12, 20)
NAN = float("nan")


def found(builder: RunBuilder, name: str) -> list[Finding]:
    return findings(builder.build(), name)


def spreads(weight: list[float], gradient: list[float], norm: float = 1.0, gradient_norm: float = 1.0) -> RunBuilder:
    """A hidden layer with these spreads between its units, and a healthy output layer."""
    return (
        RunBuilder(100)
        .parameters({"fc.1.weight": (64, 32), "out.weight": (10, 64)})
        .matrix(signals.WEIGHT_UNIT_SPREAD, {"fc.1.weight": weight, "out.weight": 1.2}, steps=LOOKS)
        .matrix(signals.GRADIENT_UNIT_SPREAD, {"fc.1.weight": gradient, "out.weight": 1.1}, steps=LOOKS)
        .matrix(signals.WEIGHT_L2, {"fc.1.weight": norm, "out.weight": 1.0}, steps=LOOKS)
        .matrix(signals.GRADIENT_L2, {"fc.1.weight": gradient_norm, "out.weight": 1.0}, steps=LOOKS)
    )


class TestSymmetric:
    def test_units_that_start_and_stay_equal(self) -> None:
        (said,) = found(spreads([0.0, 0, 1e-7, 1e-6, 1e-5, 1e-5], [0.0, 0, 0, 1e-6, 0, 1e-6]), SYMMETRIC)
        assert said.severity is Severity.ERROR and said.proof is Proof.STRUCTURE
        assert said.fix.code == "nn.init.kaiming_normal_(model.fc[1].weight, nonlinearity='relu')"

    def test_all_zero_with_no_gradient_at_all(self) -> None:
        (said,) = found(spreads([NAN] * 6, [NAN] * 6, norm=0.0, gradient_norm=0.0), SYMMETRIC)
        assert "zero" in said.title

    @pytest.mark.parametrize(
        ("weight", "gradient"),
        [
            ([1.2] * 6, [1.3] * 6),
            ([0.0, 1.1, 1.2, 1.3, 1.2, 1.4], [1.5] * 6),
            ([0.0, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4], [1.5] * 6),
        ],
        ids=["random", "zero-initialised branch or adapter", "constant output layer at a small rate"],
    )
    def test_what_comes_apart_is_fine(self, weight: list[float], gradient: list[float]) -> None:
        assert not found(spreads(weight, gradient), SYMMETRIC)

    def test_frozen_and_unreached_layers_are_left_out(self) -> None:
        for fields in ({"frozen": ["fc.1.weight"]}, {"unreached": ["fc.1.weight"]}):
            builder = spreads([0.0] * 6, [0.0] * 6).fact(WiringFact(updates=50, total=2, **fields))
            assert not found(builder, SYMMETRIC)

    def test_random_weights_rule_it_out(self) -> None:
        assert [type(s) for s in spreads([1.2] * 6, [1.3] * 6).detect(SYMMETRIC)] == [RuledOut]


def call(function: str = "cross_entropy", **fields: Any) -> LossCallFact:
    given = {"classes": 10, "reduction": "mean", "input_low": -300.0, "input_high": 300.0}
    shape = [64, 10]
    return LossCallFact(function, "train", shape, "float32", [64], "int64", **{**given, **fields})


def classifier(loss: Any, gain: float | list[float], steps: int = 200, **fields: Any) -> RunBuilder:
    shapes = {"0.weight": (128, 64), "2.weight": (128, 128), "4.weight": (10, 128)}
    gains = gain if isinstance(gain, list) else [gain] * 3
    norms = {
        name: g / math.sqrt(shape[1]) * math.sqrt(math.prod(shape))
        for (name, shape), g in zip(shapes.items(), gains, strict=True)
    }
    return (
        RunBuilder(steps)
        .parameters(shapes)
        .scalar(signals.LOSS_TRAIN, loss)
        .matrix(signals.WEIGHT_L2, norms, steps=[0])
        .fact(call(**fields))
    )


class TestScale:
    def test_weights_of_spread_one(self) -> None:
        (said,) = found(classifier(np.geomspace(180, 0.4, 200), [8.0, 11.3, 11.3]), SCALE)
        assert said.severity is Severity.WARNING and "180" in said.title and "78 times" in said.title

    def test_it_is_an_error_if_chance_is_never_reached_or_it_breaks(self) -> None:
        assert [f.severity for f in found(classifier(np.linspace(180, 20, 200), 8.0), SCALE)] == [Severity.ERROR]
        broken = np.linspace(180, 20, 200)
        broken[50:] = np.nan
        assert [f.severity for f in found(classifier(broken, 8.0), SCALE)] == [Severity.ERROR]

    def test_a_first_loss_that_is_not_finite(self) -> None:
        (said,) = found(classifier(NAN, 40.0), SCALE)
        assert said.symptoms == ("nan-at-first-step",)
        bad_input = classifier(NAN, 40.0).fact(NonfiniteFact("input", "x", "train", 3, 3))
        assert not found(bad_input, SCALE)

    def test_layers_that_amplify_together(self) -> None:
        builder = classifier(np.geomspace(5e4, 100, 200), 2.5)
        spread = {"0": 1.0, "2": 30.0, "4": 900.0}
        for order, name in enumerate(spread):
            builder.fact(ModuleFact(name, "Linear", None, order))
        (said,) = found(builder.matrix(signals.ACTIVATION["std"], spread, steps=[0]), SCALE)
        assert any("900" in e.text for e in said.evidence)

    def test_a_tied_embedding_that_serves_as_output(self) -> None:
        embedding = ParameterFact("tok.weight", [30, 48], "float32", "cpu", "tok", "Embedding", 0)
        graph = GraphFact("Nll", [], [{"op": "MmBackward0", "depth": 2, "parameters": ["tok.weight"]}], {})
        builder = (
            RunBuilder(100)
            .fact(embedding)
            .scalar(signals.LOSS_TRAIN, np.geomspace(60, 1, 100))
            .matrix(signals.WEIGHT_L2, {"tok.weight": math.sqrt(30 * 48)}, steps=[0])
            .fact(call(classes=30))
        )
        assert not found(builder, SCALE)
        assert found(builder.fact(graph), SCALE)

    def test_regression_against_the_targets_size(self) -> None:
        def regression(first: float) -> RunBuilder:
            return (
                classifier(np.geomspace(first, 0.5, 200), 8.0, function="mse_loss", classes=None)
                .scalar(signals.TARGET_MEAN, 0.0, key="train")
                .scalar(signals.TARGET_STD, 1.0, key="train")
            )

        assert found(regression(500.0), SCALE)
        assert not found(regression(3.0), SCALE)

    def test_weights_too_small_for_their_depth(self) -> None:
        loss = np.full(200, 2.303)
        assert [f.severity for f in found(classifier(loss, 0.01), SCALE)] == [Severity.ERROR]
        assert not found(classifier(np.geomspace(2.303, 0.3, 200), 0.01), SCALE)
        normed = classifier(loss, 0.01).fact(
            ParameterFact("bn.weight", [128], "float32", "cpu", "bn", "BatchNorm1d", 3)
        )
        assert not found(normed, SCALE)

    def test_a_signal_that_fades_at_usual_gains_is_a_matter_of_depth(self) -> None:
        layers = 24
        shapes = {f"{i}.weight": (64, 64) for i in range(layers)}
        builder = (
            RunBuilder(200)
            .parameters(shapes)
            .scalar(signals.LOSS_TRAIN, 2.303)
            .matrix(signals.WEIGHT_L2, dict.fromkeys(shapes, 0.577 * 8), steps=[0])
            .fact(call())
        )
        assert not found(builder, SCALE)

    @pytest.mark.parametrize(
        ("first", "gain", "fields"),
        [
            (2.35, 0.58, {"input_low": -0.4, "input_high": 0.4}),
            (0.2, 1.0, {"input_low": -9.0, "input_high": 9.0}),
            (40.0, 0.58, {}),
            (40.0, 8.0, {"input_low": -0.3, "input_high": 0.3}),
            (400.0, 8.0, {"reduction": "sum"}),
            (3.4, 1.4, {}),
        ],
        ids=[
            "default",
            "fine-tuned",
            "raw inputs, normal weights",
            "compound loss",
            "summed loss",
            "a little high",
        ],
    )
    def test_healthy_starts(self, first: float, gain: float, fields: dict[str, Any]) -> None:
        assert not found(classifier(np.geomspace(first, first / 10, 200), gain, **fields), SCALE)

    def test_a_first_loss_at_chance_rules_it_out(self) -> None:
        builder = classifier(np.geomspace(2.3, 0.2, 200), 0.58)
        assert [type(s) for s in builder.detect(SCALE)] == [RuledOut]
