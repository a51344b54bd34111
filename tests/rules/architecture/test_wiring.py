"""Parameters the loss never reaches, and parameters no optimizer holds."""

from __future__ import annotations

from typing import Any

import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import CallSiteFact, ModelFact, ModesFact, ModuleFact, ParameterFact, WiringFact
from torchdoctor.findings import Finding, Proof, RuledOut, Severity

DISCONNECTED, NOT_OPTIMIZED = "disconnected-parameters", "parameters-not-optimized"
SHAPES = {"encoder.0.weight": (64, 64), "encoder.2.weight": (32, 64), "head.weight": (10, 32), "extra.weight": (64, 32)}
ENCODER = ["encoder.0.weight", "encoder.2.weight"]


def found(builder: RunBuilder, name: str) -> list[Finding]:
    return findings(builder.build(), name)


def wired(shapes: dict[str, tuple[int, ...]] | None = None, updates: int = 100, **fields: Any) -> RunBuilder:
    given = shapes or SHAPES
    builder = RunBuilder(updates).parameters(given, unreached=fields.get("unreached", ())).optimizer("Adam", lr=3e-4)
    for order, name in enumerate(given):
        builder.fact(ModuleFact(name.rpartition(".")[0], "Linear", None, order))
    return builder.fact(WiringFact(updates=updates, total=len(given), **fields))


class TestDisconnected:
    def test_a_cut_before_layers_that_learn(self) -> None:
        (said,) = found(wired(unreached=ENCODER), DISCONNECTED)
        assert said.severity is Severity.ERROR and said.proof is Proof.STRUCTURE
        assert "encoder.0" in said.title and said.where[0].parameter == "encoder.0.weight"

    def test_the_place_of_the_cut_where_it_is_known(self) -> None:
        (said,) = found(wired(unreached=["extra.weight"], detached_at="net.py:31"), DISCONNECTED)
        assert said.severity is Severity.ERROR and (said.where[0].file, said.where[0].line) == ("net.py", 31)

    def test_a_large_branch_whose_result_is_dropped(self) -> None:
        assert [f.severity for f in found(wired(unreached=["extra.weight"]), DISCONNECTED)] == [Severity.WARNING]

    @pytest.mark.parametrize("name", ["bert.pooler.dense.weight", "aux.weight"])
    def test_a_pooler_or_a_small_head_is_only_a_remark(self, name: str) -> None:
        shapes = {"bert.layer.weight": (96, 96), name: (96, 96) if "pooler" in name else (4, 96), "out.weight": (2, 96)}
        assert [f.severity for f in found(wired(shapes, unreached=[name]), DISCONNECTED)] == [Severity.INFO]

    def test_a_pretrained_part_under_no_grad_is_only_a_remark(self) -> None:
        assert [f.severity for f in found(wired(unreached=ENCODER, loaded=ENCODER), DISCONNECTED)] == [Severity.INFO]

    def test_the_first_updates_say_nothing_yet(self) -> None:
        assert not found(wired(updates=2, unreached=ENCODER), DISCONNECTED)

    def test_a_branch_that_was_used_between_two_readings_of_the_wiring(self) -> None:
        gradient = [float("nan")] * 99 + [0.1]
        builder = wired(unreached=["extra.weight"]).matrix(signals.GRADIENT_L2, {"extra.weight": gradient})
        assert not found(builder, DISCONNECTED)

    def test_where_nothing_is_reached_another_rule_speaks(self) -> None:
        assert not found(wired(unreached=list(SHAPES)), DISCONNECTED)

    def test_all_reached_rules_it_out(self) -> None:
        assert [type(s) for s in wired(stepped=len(SHAPES)).detect(DISCONNECTED)] == [RuledOut]

    def test_where_no_optimizer_stepped_nothing_is_ruled_out(self) -> None:
        assert not wired(stepped=0).detect(DISCONNECTED)


class TestNotOptimized:
    def test_layers_in_a_plain_list(self) -> None:
        (said,) = found(wired(unregistered=["Linear(64, 64) at net.py:12"]), NOT_OPTIMIZED)
        assert said.severity is Severity.ERROR and "ModuleList" in (said.fix.code or "")

    def test_an_optimizer_built_before_the_head_was_replaced(self) -> None:
        builder = wired(unheld=["head.weight"], used=["head.weight"], stale=2)
        (said,) = found(builder, NOT_OPTIMIZED)
        assert said.severity is Severity.ERROR and "torch.optim.Adam(model.parameters(), lr=0.0003)" in str(
            said.fix.code
        )

    def test_the_fix_keeps_what_the_user_wrote(self) -> None:
        builder = wired(unheld=["head.weight"], used=["head.weight"], stale=2)
        builder.optimizer("AdamW", lr=3.3e-5, initial_lr=1e-3, weight_decay=0.01)
        (said,) = found(builder.fact(CallSiteFact("step", "train.py", 9, "opt.step()")), NOT_OPTIMIZED)
        assert str(said.fix.code).startswith("opt = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.01)")

    def test_a_model_made_anew_after_the_optimizer(self) -> None:
        assert found(wired(unheld=list(SHAPES), used=list(SHAPES), stale=4), NOT_OPTIMIZED)

    def test_a_part_that_was_forgotten(self) -> None:
        builder = wired(unheld=ENCODER, used=ENCODER, loaded=[])
        assert [f.severity for f in found(builder, NOT_OPTIMIZED)] == [Severity.ERROR]
        unknown = wired(unheld=ENCODER, used=ENCODER)
        assert [f.severity for f in found(unknown, NOT_OPTIMIZED)] == [Severity.WARNING]

    def test_one_of_two_models_was_forgotten(self) -> None:
        shapes = {"encoder.0.weight": (8, 8), "decoder.0.weight": (8, 8)}
        builder = wired(shapes, unheld=["encoder.0.weight"], used=["encoder.0.weight"], loaded=[])
        builder.fact(ModelFact("encoder", "Sequential", 64, 64, 2)).fact(ModelFact("decoder", "Sequential", 64, 64, 2))
        (said,) = found(builder, NOT_OPTIMIZED)
        assert '.add_param_group({"params": [*encoder.parameters()]})' in (said.fix.code or "")

    def test_parts_are_added_to_the_groups_that_are_there(self) -> None:
        shapes = {"body.0.weight": (8, 8), "body.1.weight": (8, 8), "head.weight": (8, 8), "head.bias": (8,)}
        used = ["body.1.weight", "head.weight", "head.bias"]
        (said,) = found(wired(shapes, unheld=used, used=used, loaded=[]), NOT_OPTIMIZED)
        code = '.add_param_group({"params": [*model.body[1].parameters(), *model.head.parameters()]})'
        assert code in (said.fix.code or "")

    def test_training_only_the_head_of_a_pretrained_net_is_a_choice(self) -> None:
        builder = wired(unheld=ENCODER, used=ENCODER, loaded=ENCODER)
        assert [f.severity for f in found(builder, NOT_OPTIMIZED)] == [Severity.INFO]

    def test_a_fixed_critic_in_eval_mode_is_a_choice(self) -> None:
        shapes = {"vgg.0.weight": (8, 8), "net.0.weight": (8, 8)}
        builder = wired(shapes, unheld=["vgg.0.weight"], used=["vgg.0.weight"], loaded=[])
        for name in ("vgg", "net"):
            builder.fact(ModelFact(name, "Sequential", 64, 64, 2))
            builder.fact(ModesFact(name, "train", name == "net", True))
        assert [f.severity for f in found(builder, NOT_OPTIMIZED)] == [Severity.INFO]

    @pytest.mark.parametrize(
        "fields",
        [
            {"unheld": list(SHAPES), "used": list(SHAPES)},
            {"unheld": ENCODER, "used": ENCODER, "changed_outside": ENCODER},
            {"unheld": ENCODER},
            {"frozen": ENCODER},
        ],
        ids=["an input is optimized", "updated by hand", "a teacher without gradients", "frozen"],
    )
    def test_deliberate_ways(self, fields: dict[str, Any]) -> None:
        assert not found(wired(**fields), NOT_OPTIMIZED)

    def test_models_trained_one_after_the_other_were_all_held(self) -> None:
        shapes = {f"fold{i}.weight": (8, 8) for i in range(3)}
        builder = wired(
            shapes, unheld=["fold0.weight", "fold1.weight"], used=["fold0.weight", "fold1.weight"], loaded=[]
        )
        assert found(builder, NOT_OPTIMIZED)
        assert not found(builder.optimizer("Adam", key="1").optimizer("Adam", key="2"), NOT_OPTIMIZED)

    def test_an_image_optimized_through_a_fixed_net(self) -> None:
        builder = wired(unheld=list(SHAPES), used=list(SHAPES), loaded=[])
        builder.fact(ParameterFact("image", [1, 3, 8, 8], "float32", "cpu", "", "", 0))
        assert not found(builder, NOT_OPTIMIZED)

    def test_everything_held_rules_it_out(self) -> None:
        assert [type(s) for s in wired().detect(NOT_OPTIMIZED)] == [RuledOut]
