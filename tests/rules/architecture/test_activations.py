"""Dead ReLU units and saturated sigmoids and tanhs."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import GraphFact, InputsFact, LayersFact, LossCallFact, ModelFact, ModuleFact
from torchdoctor.findings import Finding, RuledOut, Severity

DEAD, SATURATED = "dead-relu", "saturated-activations"
STEPS = 100
STUCK = np.full(STEPS, 2.3)
FALLING = np.geomspace(2.3, 0.2, STEPS)
CALL = LossCallFact("mse_loss", "train", [64, 1], "float32", [64, 1], "float32", reduction="mean")


def found(builder: RunBuilder, name: str) -> list[Finding]:
    return findings(builder.build(), name)


def relus(dead: dict[str, float | np.ndarray], units: int = 128, loss: np.ndarray = STUCK) -> RunBuilder:
    builder = RunBuilder(STEPS).matrix(signals.ACTIVATION["dead"], dead).scalar(signals.LOSS_TRAIN, loss)
    for order, name in enumerate(dead):
        builder.fact(ModuleFact(name, "ReLU", "relu", order, units))
    return builder


class TestDead:
    def test_a_layer_that_is_all_dead_while_the_loss_is_stuck(self) -> None:
        (said,) = found(relus({"relu1": 0.2, "relu2": 1.0}), DEAD)
        assert said.severity is Severity.ERROR and "relu2" in said.title and said.where[0].module == "relu2"

    def test_mostly_dead_from_the_start_is_a_fault_even_if_the_rest_learns(self) -> None:
        assert [f.severity for f in found(relus({"relu1": 0.85}, loss=FALLING), DEAD)] == [Severity.WARNING]

    @pytest.mark.parametrize("name", ["2", "relu after 1"])
    def test_biases_that_start_low_are_named_and_repaired(self, name: str) -> None:
        builder = relus({name: 0.95}).parameters({"0.weight": (9, 9), "1.weight": (9, 9), "1.bias": (9,)})
        for order, module in enumerate(("0", "1")):
            builder.fact(ModuleFact(module, "Linear", None, order - 2))
        builder.matrix(signals.WEIGHT["mean"], {"0.weight": 0.0, "1.weight": 0.0, "1.bias": -4.0}, steps=[0])
        (said,) = found(builder, DEAD)
        assert said.fix.code == "nn.init.zeros_(model[1].bias)"
        assert any("1.bias" in e.text and "-4" in e.text for e in said.evidence)

    def test_units_that_died_later_and_stopped_the_training(self) -> None:
        dead = np.where(np.arange(STEPS) < 40, 0.05, 0.99)
        (said,) = found(relus({"relu1": dead}), DEAD)
        assert said.severity is Severity.ERROR and said.first_step == 40

    def test_sparsity_learned_by_a_model_that_works_is_only_a_remark(self) -> None:
        dead = np.linspace(0.05, 0.95, STEPS).clip(max=0.8)
        assert all(f.severity is Severity.INFO for f in found(relus({"relu1": dead}, loss=FALLING), DEAD))

    @pytest.mark.parametrize("units", [2, 4, 8])
    def test_a_narrow_layer_that_passes_nothing(self, units: int) -> None:
        assert found(relus({"relu1": 1.0}, units=units), DEAD)

    @pytest.mark.parametrize(("share", "units"), [(0.3, 128), (0.5, 128), (0.62, 128), (0.8, 16), (0.95, 8)])
    def test_what_chance_may_do_in_a_layer_of_that_width(self, share: float, units: int) -> None:
        assert not found(relus({"relu1": share}, units=units), DEAD)

    def test_a_small_batch_that_overstates_it_at_first(self) -> None:
        dead = np.full(STEPS, 0.3)
        dead[:20] = 0.9
        assert not found(relus({"relu1": dead}, loss=FALLING), DEAD)

    def test_a_training_that_has_solved_its_task_is_not_sick(self) -> None:
        memorised = np.concatenate([np.full(20, 2.3), np.geomspace(2.3, 1e-3, 80)])
        assert [f.severity for f in found(relus({"relu1": 0.85}, loss=memorised), DEAD)] == [Severity.INFO]

    def test_a_regression_that_found_only_the_mean_has_not_solved_it(self) -> None:
        loss = np.geomspace(100.0, 1.0, STEPS)
        builder = relus({"relu1": 0.85}, loss=loss).fact(CALL)
        builder.scalar(signals.TARGET_MEAN, 10.0, "train").scalar(signals.TARGET_STD, 1.0, "train")
        assert [f.severity for f in found(builder, DEAD)] == [Severity.WARNING]

    def test_few_samples_say_little_of_a_sparse_layer(self) -> None:
        looks = [0, 1, 3, 9]
        builder = relus({"relu1": 0.7}).matrix(signals.ACTIVATION["dead"], {"relu1": 0.7}, steps=looks)
        assert not found(builder.scalar(signals.BATCH_SIZE, 8.0, "train"), DEAD)
        assert found(builder.scalar(signals.BATCH_SIZE, 64.0, "train"), DEAD)
        silent = relus({"relu1": 1.0}).matrix(signals.ACTIVATION["dead"], {"relu1": 1.0}, steps=looks)
        assert found(silent.scalar(signals.BATCH_SIZE, 8.0, "train"), DEAD)

    def test_after_a_nan_nothing_counts(self) -> None:
        loss = STUCK.copy()
        loss[10:] = np.nan
        dead = np.where(np.arange(STEPS) < 10, 0.1, 1.0)
        assert not found(relus({"relu1": dead}, loss=loss), DEAD)

    def test_living_units_rule_it_out(self) -> None:
        assert [type(s) for s in relus({"relu1": 0.1}).detect(DEAD)] == [RuledOut]


def tanhs(
    saturated: dict[str, float | np.ndarray], loss: np.ndarray = STUCK, kind: str = "tanh", last: str | None = "out"
) -> RunBuilder:
    """Linear layers with a tanh each, and behind them an output layer, unless the last tanh is the output."""
    builder = RunBuilder(STEPS).scalar(signals.LOSS_TRAIN, loss)
    columns: dict[str, float | np.ndarray] = {}
    shapes = {}
    order = 0
    for name, share in saturated.items():
        shapes[f"fc_{name}.weight"] = (32, 32)
        builder.fact(ModuleFact(f"fc_{name}", "Linear", None, order, 32))
        builder.fact(ModuleFact(name, kind.title(), kind, order + 1, 32))
        columns |= {f"fc_{name}": float("nan"), name: share}
        order += 2
    if last:
        shapes[f"{last}.weight"] = (4, 32)
        builder.fact(ModuleFact(last, "Linear", None, order, 4))
    return builder.parameters(shapes).matrix(signals.ACTIVATION["saturated"], columns)


class TestSaturated:
    @pytest.mark.parametrize("kind", ["tanh", "sigmoid"])
    def test_from_the_start_and_stuck(self, kind: str) -> None:
        (said,) = found(tanhs({"act1": 0.9, "act2": 0.1}, kind=kind), SATURATED)
        assert said.severity is Severity.ERROR and "act1" in said.title and kind in (said.fix.code or "")

    def test_from_the_start_is_a_fault_even_if_the_rest_learns(self) -> None:
        assert [f.severity for f in found(tanhs({"act1": 0.9}, FALLING), SATURATED)] == [Severity.WARNING]

    def test_driven_there_in_a_training_that_goes_nowhere(self) -> None:
        later = np.where(np.arange(STEPS) < 20, 0.02, 0.95)
        (said,) = found(tanhs({"act1": later}), SATURATED)
        assert said.first_step == 20 and "since step 20" in said.title

    def test_gates_that_learned_to_be_open_or_shut(self) -> None:
        assert not found(tanhs({"gate": np.linspace(0.02, 0.9, STEPS)}, FALLING, "sigmoid"), SATURATED)

    def test_the_output_of_a_model_may_be_sure(self) -> None:
        assert not found(tanhs({"act1": 0.05, "probability": 0.98}, kind="sigmoid", last=None), SATURATED)

    def test_a_generators_output_is_an_output_although_the_critic_comes_behind(self) -> None:
        builder = tanhs({"generator.tanh": 0.9}, last="critic.fc")
        builder.fact(ModelFact("generator", "G", 10, 10, 3)).fact(ModelFact("critic", "D", 10, 10, 3))
        assert not found(builder, SATURATED)

    def test_functions_found_in_the_graph_stand_where_their_layer_does(self) -> None:
        hidden = {"fc1.weight": (32, 32), "fc2.weight": (4, 32)}
        for name, faulty in (("sigmoid after fc1", True), ("sigmoid after fc2", False)):
            builder = (
                RunBuilder(STEPS)
                .scalar(signals.LOSS_TRAIN, STUCK)
                .parameters(hidden)
                .fact(ModuleFact("fc1", "Linear", None, 0, 32))
                .fact(ModuleFact("fc2", "Linear", None, 1, 4))
                .fact(ModuleFact(name, "sigmoid", "sigmoid", 2, 32))
                .matrix(signals.ACTIVATION["saturated"], {name: 0.9})
            )
            assert bool(found(builder, SATURATED)) is faulty

    def test_without_a_known_place_the_graph_tells_an_output(self) -> None:
        builder = (
            RunBuilder(STEPS)
            .scalar(signals.LOSS_TRAIN, STUCK)
            .fact(ModuleFact("sigmoid", "sigmoid", "sigmoid", None, 32))
            .fact(GraphFact("Mse", [], [{"op": "SigmoidBackward0", "depth": 1}], {}))
            .matrix(signals.ACTIVATION["saturated"], {"sigmoid": 0.9})
        )
        assert not found(builder, SATURATED)

    @pytest.mark.parametrize(
        ("name", "weights", "faulty"),
        [
            ("sigmoid after W1", ("W1", "W2"), True),
            ("sigmoid after W2", ("W1", "W2"), False),
            ("sigmoid after core", ("core.A", "core.B"), False),
            ("sigmoid after core #2", ("core.A", "core.B"), True),
        ],
    )
    def test_functions_on_matrices_without_a_module(self, name: str, weights: tuple[str, str], faulty: bool) -> None:
        below, above = weights
        names = [name] if "core" not in name else ["sigmoid after core", "sigmoid after core #2"]
        link = {"above": above, "below": below, "ops": ["AddBackward0", "SigmoidBackward0"]}
        builder = (
            RunBuilder(STEPS)
            .scalar(signals.LOSS_TRAIN, STUCK)
            .parameters({below: (32, 32), above: (32, 1)})
            .fact(LayersFact([], [link]))
            .fact(GraphFact("Neg", [], [{"op": "SigmoidBackward0", "depth": 1}], {}))
            .matrix(signals.ACTIVATION["saturated"], {n: 0.9 if n == name else 0.1 for n in names})
        )
        for order, each in enumerate(names):
            builder.fact(ModuleFact(each, "sigmoid", "sigmoid", order, 32))
        assert bool(found(builder, SATURATED)) is faulty

    def test_units_in_their_range_rule_it_out(self) -> None:
        assert [type(s) for s in tanhs({"act1": 0.03}).detect(SATURATED)] == [RuledOut]


class TestGates:
    def lstm(self, norm: float, loss: np.ndarray = STUCK, size: float = 1.0) -> RunBuilder:
        names = {"lstm.weight_ih_l0": (192, 4), "lstm.weight_hh_l0": (192, 48)}
        return (
            RunBuilder(STEPS)
            .parameters(names, module_type="LSTM")
            .fact(ModuleFact("lstm", "LSTM", None, 0))
            .fact(InputsFact("train", "input", [32, 20, 4], "float32", mean=0.0, std=size))
            .matrix(signals.WEIGHT_L2, dict.fromkeys(names, norm))
            .matrix(signals.ACTIVATION["std"], {"lstm": 0.4})
            .matrix(signals.ACTIVATION["saturated"], {"lstm": np.nan})
            .scalar(signals.LOSS_TRAIN, loss)
        )

    def test_weights_so_wide_that_the_gates_are_pinned(self) -> None:
        (said,) = found(self.lstm(norm=100.0), SATURATED)
        assert said.severity is Severity.ERROR and "lstm" in said.title

    def test_what_pinned_gates_do_to_the_gradient_is_no_explosion_of_its_own(self) -> None:
        def steep(norm: float) -> RunBuilder:
            climbs = np.linspace(1.0, 3.0, STEPS)
            return self.lstm(norm, climbs).matrix(signals.GRADIENT_L2, {"lstm.weight_hh_l0": 1e3 / norm})

        assert found(steep(4.0), "exploding-gradients")
        assert not found(steep(100.0), "exploding-gradients")

    def test_usual_weights_and_gates_that_learn(self) -> None:
        assert not found(self.lstm(norm=4.0), SATURATED)
        assert not found(self.lstm(norm=100.0, loss=FALLING), SATURATED)
        assert found(self.lstm(norm=4.0, size=50.0), SATURATED)
