"""Frozen on purpose or by mistake."""

from __future__ import annotations

from typing import Any

from building import RunBuilder, findings
from torchdoctor.facts import FrozenFact, ModuleFact, WiringFact
from torchdoctor.findings import Proof, RuledOut, Severity

NAME = "frozen-parameters"
SHAPES = {"body.0.weight": (64, 64), "body.0.bias": (64,), "head.weight": (10, 64), "head.bias": (10,)}
BODY = ["body.0.weight", "body.0.bias"]


def frozen(names: list[str], shapes: dict[str, tuple[int, ...]] = SHAPES, **fields: Any) -> RunBuilder:
    builder = RunBuilder(400).parameters(shapes).optimizer("Adam", lr=1e-3)
    for order, module in enumerate(dict.fromkeys(n.rpartition(".")[0] for n in shapes)):
        builder.fact(ModuleFact(module, "Linear", None, order))
    builder.fact(WiringFact(updates=400, total=len(shapes), frozen=names))
    groups = fields.pop("groups", [{"parameters": 2, "frozen": 0, "lr": 1e-3}])
    return builder.fact(FrozenFact("0", names, groups=groups, **fields))


def test_a_pretrained_body_under_a_new_head_is_meant() -> None:
    assert not findings(frozen(BODY).build(), NAME)
    everything = [{"parameters": 4, "frozen": 2, "lr": 1e-3}]
    assert not findings(frozen(BODY, loaded=BODY, groups=everything).build(), NAME)


def test_a_body_frozen_as_it_was_initialised() -> None:
    (said,) = findings(frozen(BODY, fresh=BODY[:1]).build(), NAME)
    assert said.severity is Severity.WARNING and said.proof is Proof.STRUCTURE
    assert said.fix.code == "model.body.requires_grad_(True)"


def test_a_teacher_with_the_shapes_of_its_student_is_meant() -> None:
    shapes = {"student.0.weight": (64, 64), "second.0.weight": (64, 64)}
    assert not findings(frozen(["second.0.weight"], shapes, fresh=["second.0.weight"]).build(), NAME)


def test_random_features_that_say_so_are_meant() -> None:
    shapes = {"random_features.weight": (64, 64), "head.weight": (10, 64)}
    assert not findings(frozen(["random_features.weight"], shapes, fresh=["random_features.weight"]).build(), NAME)


def test_a_group_with_its_own_rate() -> None:
    groups = [{"parameters": 2, "frozen": 2, "lr": 1e-5}, {"parameters": 2, "frozen": 0, "lr": 1e-3}]
    (said,) = findings(frozen(BODY, groups=groups).build(), NAME)
    assert said.severity is Severity.WARNING and "own rate" in said.title


def test_groups_that_differ_by_decay_only_are_usual() -> None:
    groups = [{"parameters": 2, "frozen": 2, "lr": 1e-3}, {"parameters": 2, "frozen": 0, "lr": 1e-3}]
    assert not findings(frozen(BODY, groups=groups).build(), NAME)


def test_a_second_stage_that_holds_what_is_frozen_still() -> None:
    builder = frozen(BODY).fact(FrozenFact("1", BODY, groups=[{"parameters": 4, "frozen": 2, "lr": 1e-3}]), 200)
    (said,) = findings(builder.build(), NAME)
    assert "still frozen" in said.title


def test_a_lone_bias() -> None:
    (said,) = findings(frozen([n for n in SHAPES if n != "head.bias"]).build(), NAME)
    assert "head.bias" in said.title


def test_backward_fails_because_all_is_frozen() -> None:
    builder = RunBuilder(0).parameters(SHAPES).fact(WiringFact(updates=0, total=4, frozen=list(SHAPES)))
    builder.info(exception={"type": "RuntimeError", "message": "element 0 of tensors does not require grad and ..."})
    (said,) = findings(builder.build(), NAME)
    assert said.severity is Severity.ERROR and "all 4" in said.title


def test_nothing_frozen_rules_it_out() -> None:
    builder = RunBuilder(10).fact(WiringFact(updates=10, total=4))
    assert [type(s) for s in builder.detect(NAME)] == [RuledOut]
