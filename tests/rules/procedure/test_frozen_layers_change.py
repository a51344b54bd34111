from __future__ import annotations

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import FrozenChangeFact, WiringFact
from torchdoctor.findings import Severity

NAME = "frozen-layers-change"


def run(frozen: list[str] | None = None) -> RunBuilder:
    return (
        RunBuilder(100)
        .parameters({"body.weight": (32, 16), "head.weight": (10, 32)})
        .optimizer("SGD", lr=0.1, momentum=0.9, weight_decay=1e-4)
        .fact(WiringFact(updates=100, total=2, frozen=frozen or []))
    )


def test_frozen_parameters_that_a_step_changes() -> None:
    fact = FrozenChangeFact(updates=60, changed=["body.weight"], gradients="kept", optimizer="0")
    (found,) = findings(run(["body.weight"]).fact(fact, 60).build(), NAME)
    assert found.severity is Severity.ERROR and found.first_step == 60
    assert "momentum 0.9" in found.evidence[0].text


def test_the_largest_of_many_channels_strays_further() -> None:
    fact = FrozenChangeFact(updates=60, norms=["body.1"], drift=0.07)
    assert findings(run().parameters({"body.1.weight": (16,)}, "BatchNorm2d").fact(fact).build(), NAME)
    assert not findings(run().parameters({"body.1.weight": (2048,)}, "BatchNorm2d").fact(fact).build(), NAME)


def test_running_statistics_behind_frozen_layers() -> None:
    fact = FrozenChangeFact(updates=60, norms=["body.1"], drift=0.7)
    (found,) = findings(run(["body.weight"]).fact(fact, 60).build(), NAME)
    assert found.severity is Severity.WARNING and found.fix.code == "model.train()\nmodel.body.eval()"
    assert not findings(run().fact(FrozenChangeFact(updates=60, norms=["body.1"], drift=0.001)).build(), NAME)


def zeroed(first: float, second: float, ratio: float, decay: float) -> RunBuilder:
    return (
        run()
        .matrix(signals.GRADIENT_L2, {"body.weight": first, "head.weight": second})
        .matrix(signals.UPDATE_RATIO, {"body.weight": ratio, "head.weight": 1e-3})
        .scalar(signals.WEIGHT_DECAY, decay, key="0.0")
    )


def test_gradients_zeroed_and_weights_decayed() -> None:
    (found,) = findings(zeroed(0.0, 1.0, 1e-5, 0.1).build(), NAME)
    assert found.severity is Severity.WARNING and "body.weight" in found.title


def test_without_movement_decay_or_with_a_gradient_it_is_fine() -> None:
    assert not findings(zeroed(0.0, 1.0, 0.0, 0.1).build(), NAME)
    assert not findings(zeroed(0.0, 1.0, 1e-5, 0.0).build(), NAME)
    assert not findings(zeroed(0.1, 1.0, 1e-5, 0.1).build(), NAME)
    assert not findings(zeroed(1.0, 0.0, 1e-5, 0.1).build(), NAME)


def test_dead_units_before_the_next_layer_are_another_matter() -> None:
    builder = zeroed(0.0, 1.0, 1e-5, 0.1).matrix(signals.ACTIVATION["dead"], {"relu": 1.0})
    assert not findings(builder.build(), NAME)


def test_nothing_frozen() -> None:
    assert not findings(run().build(), NAME)
