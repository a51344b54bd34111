"""Gradients over depth: vanishing and exploding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import GraphFact, InputsFact, LayersFact, LossCallFact, ModuleFact, NonfiniteFact, WiringFact
from torchdoctor.findings import Finding, RuledOut, Severity
from torchdoctor.rules import baseline

VANISHING, EXPLODING = "vanishing-gradients", "exploding-gradients"
WIDTH = 32
STEPS = 100


def net(gradients: list[float], optimizer: str = "SGD", module_type: str = "Linear") -> RunBuilder:
    """Layers of one width whose gradients have these root mean squares, first layer first; the last is the output."""
    shapes = {f"{i}.weight": (WIDTH, WIDTH) for i in range(len(gradients) - 1)} | {"out.weight": (4, WIDTH)}
    sizes = [WIDTH * np.prod(s[:1]) for s in shapes.values()]
    noise = np.exp(0.2 * np.random.default_rng(0).standard_normal((STEPS, len(gradients))))
    columns = {
        name: rms * np.sqrt(size) * noise[:, i]
        for i, (name, rms, size) in enumerate(zip(shapes, gradients, sizes, strict=True))
    }
    return (
        RunBuilder(STEPS)
        .parameters(shapes, module_type=module_type)
        .optimizer(optimizer, lr=0.1)
        .matrix(signals.GRADIENT_L2, columns)
    )


def falling(layers: int, factor: float, top: float = 1e-2) -> list[float]:
    """Each layer has `factor` of the gradient of the one behind it."""
    return [top * factor ** (layers - 1 - i) for i in range(layers)]


def found(builder: RunBuilder, name: str) -> list[Finding]:
    return findings(builder.build(), name)


class TestVanishing:
    def test_a_deep_sigmoid_net_under_plain_descent(self) -> None:
        builder = (
            net(falling(9, 0.15))
            .scalar(signals.LOSS_TRAIN, 2.3)
            .fact(ModuleFact("act1", "Sigmoid", "sigmoid", order=1))
        )
        (said,) = found(builder, VANISHING)
        assert said.severity is Severity.ERROR
        assert "0.weight" in said.title and "sigmoid" in said.fix.text
        assert said.where[0].parameter == "0.weight"

    def test_it_is_a_warning_where_the_loss_still_falls_by_the_late_layers(self) -> None:
        builder = net(falling(9, 0.15)).scalar(signals.LOSS_TRAIN, np.linspace(2.3, 1.5, STEPS))
        assert [f.severity for f in found(builder, VANISHING)] == [Severity.WARNING]

    def test_an_adaptive_optimizer_makes_up_for_it(self) -> None:
        loss = np.linspace(2.3, 0.5, STEPS)
        builder = net(falling(9, 0.3), "Adam").scalar(signals.LOSS_TRAIN, loss)
        updates = {f"{i}.weight": 1e-3 for i in range(8)}
        builder.matrix(signals.UPDATE_RATIO, updates)
        assert [f.severity for f in found(builder, VANISHING)] in ([], [Severity.INFO])

    def test_below_eps_not_even_that_helps(self) -> None:
        builder = net(falling(12, 0.1, top=1e-3), "AdamW").scalar(signals.LOSS_TRAIN, 2.3)
        builder.matrix(signals.UPDATE_RATIO, {f"{i}.weight": 1e-4 for i in range(11)})
        (said,) = found(builder, VANISHING)
        assert said.severity is Severity.ERROR and any("eps" in e.text for e in said.evidence)

    def test_a_model_that_has_learned_is_left_alone(self) -> None:
        builder = net(falling(9, 0.15)).scalar(signals.LOSS_TRAIN, np.geomspace(2.3, 0.05, STEPS))
        assert all(f.severity is Severity.INFO for f in found(builder, VANISHING))

    @pytest.mark.parametrize(
        "gradients",
        [
            [1e-2] * 9,
            [3e-2, 1e-2, 4e-3, 2e-3, 1e-3, 9e-4, 2e-2],
            falling(9, 0.6),
            [1e-7] + [1e-2] * 8,
            [1e-6, 1e-2, 1e-6, 1e-2, 1e-6, 1e-2, 1e-6, 1e-2, 1e-2],
            falling(4, 0.01),
        ],
        ids=["even", "larger early", "mild", "sparse first layer", "queries and keys", "shallow"],
    )
    def test_healthy_profiles(self, gradients: list[float]) -> None:
        assert not found(net(gradients).scalar(signals.LOSS_TRAIN, 2.3), VANISHING)

    def test_embeddings_and_frozen_layers_are_left_out(self) -> None:
        assert not found(net(falling(9, 0.15), module_type="Embedding").scalar(signals.LOSS_TRAIN, 2.3), VANISHING)
        frozen = net(falling(9, 0.15)).fact(
            WiringFact(updates=STEPS, total=9, frozen=[f"{i}.weight" for i in range(6)])
        )
        assert not found(frozen.scalar(signals.LOSS_TRAIN, 2.3), VANISHING)

    def test_even_gradients_rule_it_out(self) -> None:
        assert [type(s) for s in net([1e-2] * 9).detect(VANISHING)] == [RuledOut]


class TestVanishingOverTime:
    def rnn(
        self, norm: float, loss: object = 1.39, ratio: float = 3e-3, cell: str = "RNN", length: int = 30
    ) -> RunBuilder:
        names = {"rnn.weight_ih_l0": (64, 8), "rnn.weight_hh_l0": (64, 64), "out.weight": (4, 64)}
        return (
            RunBuilder(300)
            .parameters(names, module_type=cell)
            .optimizer("Adam", lr=1e-3)
            .matrix(signals.GRADIENT_L2, dict.fromkeys(names, 0.1))
            .matrix(signals.WEIGHT_L2, {"rnn.weight_ih_l0": 3.0, "rnn.weight_hh_l0": norm * 8, "out.weight": 1.0})
            .matrix(signals.UPDATE_RATIO, dict.fromkeys(names, ratio))
            .scalar(signals.LOSS_TRAIN, loss)
            .fact(InputsFact("train", "input", [32, length], "int64"))
            .fact(LossCallFact("cross_entropy", "train", [32, 4], "float32", [32], "int64"))
        )

    def test_a_recurrent_matrix_that_forgets(self) -> None:
        (said,) = found(self.rnn(0.577), VANISHING)
        assert said.severity is Severity.WARNING and "30 time steps" in said.title
        assert said.fix.code == "nn.init.orthogonal_(model.rnn.weight_hh_l0)"

    def test_sequences_first(self) -> None:
        builder = self.rnn(0.577).fact(InputsFact("train", "input", [50, 32, 8], "float32"), step=1)
        assert "50 time steps" in found(builder, VANISHING)[0].title

    @pytest.mark.parametrize(
        "healthy",
        [
            {"norm": 1.0},
            {"norm": 1e12, "length": 1000},
            {"norm": 0.577, "loss": np.linspace(1.39, 0.6, 300)},
            {"norm": 0.577, "ratio": 1e-6},
            {"norm": 0.577, "cell": "LSTM"},
            {"norm": 0.577, "length": 10},
        ],
        ids=["orthogonal", "far too large", "it learns", "the rate is to blame", "gated", "short"],
    )
    def test_what_is_left_alone(self, healthy: dict[str, Any]) -> None:
        assert not found(self.rnn(**healthy), VANISHING)


class TestExploding:
    def test_over_depth_into_nan(self) -> None:
        loss = np.full(STEPS, 3.0)
        loss[20:] = np.nan
        (said,) = found(net(falling(9, 6.0)).scalar(signals.LOSS_TRAIN, loss), EXPLODING)
        assert said.severity is Severity.ERROR and "0.weight" in said.title

    def test_over_depth_without_harm_is_not_reported(self) -> None:
        builder = net(falling(9, 6.0)).scalar(signals.LOSS_TRAIN, np.linspace(3, 0.5, STEPS))
        assert not found(builder, EXPLODING)

    @pytest.mark.parametrize(("shuffled", "named"), [(False, True), (True, False)])
    def test_a_rise_that_the_first_update_hides(self, shuffled: bool, named: bool) -> None:
        """Only the first look has it, so there it must be in order."""
        first = np.array(falling(9, 6.0))
        if shuffled:
            first[1:8] = first[[4, 1, 6, 3, 7, 2, 5]]
        shapes = {f"{i}.weight": (WIDTH, WIDTH) for i in range(8)} | {"out.weight": (4, WIDTH)}
        sizes = [np.sqrt(np.prod(shape)) for shape in shapes.values()]
        columns = {n: np.r_[v, np.full(STEPS - 1, 1e-2)] * s for n, v, s in zip(shapes, first, sizes, strict=True)}
        builder = net(falling(9, 6.0)).matrix(signals.GRADIENT_L2, columns).scalar(signals.LOSS_TRAIN, 3.0)
        builder.matrix(signals.UPDATE_RATIO, dict.fromkeys(shapes, 2.0))
        assert bool(found(builder, EXPLODING)) is named

    def recurrent(self, norms: np.ndarray, loss: np.ndarray, ratio: float = 1e-3) -> RunBuilder:
        names = ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "out.weight"]
        return (
            RunBuilder(STEPS)
            .parameters(dict.fromkeys(names, (WIDTH, WIDTH)), module_type="RNN")
            .optimizer("SGD", lr=0.01)
            .matrix(signals.GRADIENT_L2, dict.fromkeys(names, norms))
            .matrix(signals.UPDATE_RATIO, dict.fromkeys(names, ratio))
            .scalar(signals.GRADIENT_GLOBAL_L2, norms)
            .scalar(signals.LOSS_TRAIN, loss)
        )

    def jumping(self) -> tuple[np.ndarray, np.ndarray]:
        norms, loss = np.full(STEPS, 0.5), np.full(STEPS, 0.7)
        norms[60:], loss[61:] = 900.0, 50.0
        return norms, loss

    def test_a_jump_in_a_recurrent_model(self) -> None:
        (said,) = found(self.recurrent(*self.jumping()), EXPLODING)
        assert said.first_step == 60 and "clip_grad_norm_" in (said.fix.code or "")

    @pytest.mark.parametrize(("broken", "faulty"), [(np.inf, True), (np.nan, False)])
    def test_an_overflow_is_a_jump_and_nan_alone_is_none(self, broken: float, faulty: bool) -> None:
        norms, loss = np.full(STEPS, 0.5), np.full(STEPS, 0.7)
        norms[60:], loss[60:] = broken, np.nan
        assert bool(found(self.recurrent(norms, loss), EXPLODING)) is faulty

    @pytest.mark.parametrize(("slope", "end", "faulty"), [(900.0, 0.65, True), (900.0, 0.2, False), (1.0, 0.65, False)])
    def test_a_steep_start_from_which_the_loss_never_comes_away(
        self, slope: float, end: float, faulty: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loss = np.linspace(0.7, end, STEPS)
        builder = self.recurrent(np.full(STEPS, slope), loss).matrix(signals.WEIGHT_L2, {"rnn.weight_hh_l0": 8.0})
        assert not found(builder, EXPLODING)
        monkeypatch.setattr(baseline, "chance", lambda _run: 0.693)
        assert bool(found(builder, EXPLODING)) is faulty

    def test_an_overflow_in_a_recurrent_model(self) -> None:
        norms, loss = np.full(STEPS, 0.5), np.full(STEPS, 0.7)
        norms[60:], loss[61:] = np.inf, np.nan
        assert found(self.recurrent(norms, loss), EXPLODING)

    def test_a_gradient_that_explodes_over_the_time_steps_at_once(self) -> None:
        norms, loss = np.full(STEPS, 2700.0), np.full(STEPS, np.nan)
        loss[0] = 17.0
        norms[1:] = np.nan
        weights = {"rnn.weight_hh_l0": 7.0}
        steep = self.recurrent(norms, loss, ratio=2.0).matrix(signals.WEIGHT_L2, weights)
        (said,) = found(steep, EXPLODING)
        assert "rnn" in said.title and "1,112 %" in said.evidence[0].text
        assert not found(steep.scalar(signals.CLIP_NORM, 2700.0), EXPLODING)
        too_fast = self.recurrent(np.where(np.isnan(norms), norms, 3.0), loss, ratio=2.0)
        assert not found(too_fast.matrix(signals.WEIGHT_L2, weights), EXPLODING)

    def test_large_updates_before_it_point_at_the_learning_rate(self) -> None:
        assert not found(self.recurrent(*self.jumping(), ratio=0.3), EXPLODING)

    def test_a_jump_that_was_clipped_or_did_no_harm(self) -> None:
        norms, loss = self.jumping()
        assert not found(self.recurrent(norms, loss).scalar(signals.CLIP_NORM, norms), EXPLODING)
        assert not found(self.recurrent(norms, np.linspace(1, 0.1, STEPS)), EXPLODING)

    def test_a_jump_in_another_model_is_left_to_others(self) -> None:
        norms, loss = self.jumping()
        builder = net([1e-2] * 5).scalar(signals.GRADIENT_GLOBAL_L2, norms).scalar(signals.LOSS_TRAIN, loss)
        builder.fact(NonfiniteFact("loss", "train.py:3", "train", 1, 1), step=70)
        assert not found(builder, EXPLODING)

    def test_steady_norms_rule_it_out(self) -> None:
        builder = net([1e-2] * 5).scalar(signals.GRADIENT_GLOBAL_L2, 1.0).scalar(signals.LOSS_TRAIN, 1.0)
        assert [type(s) for s in builder.detect(EXPLODING)] == [RuledOut]


class TestCellsWrittenByHand:
    def cell(self, length: int = 60, repeated: bool = True, gated: bool = False, loss: float = 1.39) -> RunBuilder:
        names = {"given.weight": (64, 8), "before.weight": (64, 64), "out.weight": (4, 64)}
        times = length if repeated else 1
        operators = {"AddmmBackward0": 2 * times + 1, "TanhBackward0": times, "SigmoidBackward0": times * gated}
        layers = [{"name": n, "op": "AddmmBackward0", "fan_in": s[1], "fan_out": s[0]} for n, s in names.items()]
        return (
            RunBuilder(300)
            .parameters(names, module_type="Linear")
            .optimizer("Adam", lr=1e-3)
            .matrix(signals.GRADIENT_L2, dict.fromkeys(names, 0.1))
            .matrix(signals.WEIGHT_L2, {"given.weight": 3.0, "before.weight": 4.6, "out.weight": 1.0})
            .matrix(signals.UPDATE_RATIO, dict.fromkeys(names, 3e-3))
            .scalar(signals.LOSS_TRAIN, np.r_[np.linspace(2.5, loss, 60), np.full(240, loss)])
            .fact(InputsFact("train", "input", [32, length, 8], "float32"))
            .fact(LossCallFact("cross_entropy", "train", [32, 4], "float32", [32], "int64", "mean", classes=4))
            .fact(GraphFact("NllLossBackward0", [], [], operators))
            .fact(LayersFact(layers, []))
        )

    def test_the_start_of_the_sequence_is_out_of_reach(self) -> None:
        (said,) = found(self.cell(), VANISHING)
        assert "60 time steps" in said.title and said.where[0].parameter == "before.weight"

    def test_what_is_no_plain_recurrence_or_learns(self) -> None:
        assert not found(self.cell(repeated=False), VANISHING)
        assert not found(self.cell(gated=True), VANISHING)
        assert not found(self.cell(loss=0.9), VANISHING)
        assert not found(self.cell(length=12), VANISHING)


class TestGrowthOverBlocks:
    def stack(self, growth: float = 1.5, gain: float = 1.4, layers: int = 16) -> RunBuilder:
        names = [f"{i}.weight" for i in range(layers)]
        loss = np.full(STEPS, 50.0)
        loss[3:] = np.nan
        spread = {f"{i}": growth**i for i in range(layers)}
        return (
            net([1e-2] * (layers + 1))
            .scalar(signals.LOSS_TRAIN, loss)
            .matrix(signals.WEIGHT_L2, dict.fromkeys([*names, "out.weight"], gain * np.sqrt(WIDTH)))
            .matrix(signals.ACTIVATION["std"], spread)
        )

    def test_usual_layers_that_add_up(self) -> None:
        (said,) = found(self.stack(), EXPLODING)
        assert said.severity is Severity.ERROR and "without normalisation" in said.title

    def test_layers_that_are_too_large_by_themselves_or_keep_the_scale(self) -> None:
        assert not found(self.stack(gain=4.0), EXPLODING)
        assert not found(self.stack(growth=1.05), EXPLODING)
