"""Eval mode in training, train mode and gradients in evaluation: the three rules that read modes."""

from __future__ import annotations

from typing import Any

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import CallSiteFact, GraphFact, ModelFact, ModesFact, PhaseFact, WiringFact
from torchdoctor.findings import RuledOut, Severity

EVAL, TRAIN_MODE, GRADIENTS = "eval-mode-in-training", "train-mode-in-evaluation", "gradients-in-evaluation"


def modes(
    phase: str, training: bool, grad: bool | None = None, passes: int = 1, model: str = "Net", **lists: Any
) -> ModesFact:
    """A model with one dropout and one batch-norm, both in the root's mode unless told otherwise."""
    mode = "training" if training else "eval"
    given = lists or {f"dropout_{mode}": ["drop"], f"norm_{mode}": ["bn"]}
    grad_enabled = phase == "train" if grad is None else grad
    return ModesFact(model, phase, training, grad_enabled, passes=passes, file="t.py", line=7, **given)


def run(steps: int = 200, validations: int = 4) -> RunBuilder:
    return (
        RunBuilder(steps)
        .parameters({"a.weight": (8, 8), "b.weight": (2, 8)})
        .optimizer("SGD", lr=0.1)
        .fact(WiringFact(updates=steps, total=2))
        .scalar(signals.LOSS_VALIDATION, [1.0] * validations, steps=range(50, 50 + validations))
        .fact(
            PhaseFact(
                updates=steps,
                backwards=steps,
                passes_train=steps,
                passes_validation=20,
                passes_unknown=0,
                validations=validations,
                updates_between_validations=50.0,
            )
        )
    )


class TestEvalModeInTraining:
    def test_never_switched_back_after_the_first_validation(self) -> None:
        built = (
            run()
            .fact(modes("train", True))
            .fact(modes("train", False), step=50)
            .fact(CallSiteFact("eval", "t.py", 33, "self.net.eval()"))
            .build()
        )
        (found,) = findings(built, EVAL)
        assert found.severity is Severity.ERROR and found.first_step == 50
        assert "75%" in found.title and found.fix.code == "self.net.train()"
        assert found.where[0].line == 33

    def test_new_batch_norm_that_is_kept_in_eval_mode(self) -> None:
        kept = {"dropout_training": ["drop"], "norm_eval": ["bn"]}
        (found,) = findings(run().fact(modes("train", True, **kept, norm_idle=["bn"])).build(), EVAL)
        assert found.severity is Severity.WARNING and found.where[1].module == "bn"
        assert not run().fact(modes("train", True, **kept)).detect(EVAL)

    def test_in_eval_mode_from_the_start_without_norms_is_a_warning(self) -> None:
        built = run().fact(modes("train", False, dropout_eval=["drop"])).build()
        assert [f.severity for f in findings(built, EVAL)] == [Severity.WARNING]

    def test_the_rest_of_an_epoch_after_a_validation_in_its_middle(self) -> None:
        built = run().fact(modes("train", True)).fact(modes("train", False), 80).fact(modes("train", True), 100).build()
        assert findings(built, EVAL)

    def test_totals_at_the_end_are_no_new_stretches(self) -> None:
        built = (
            run()
            .fact(modes("train", False))
            .fact(modes("train", True), 1)
            .fact(modes("train", True, passes=199), 199)
            .fact(modes("train", False, passes=2), 199)
            .build()
        )
        assert not findings(built, EVAL)

    def test_frozen_norms_in_a_model_in_train_mode_are_meant(self) -> None:
        built = run().fact(modes("train", True, norm_eval=["bn"], dropout_training=["drop"])).build()
        assert not findings(built, EVAL)

    def test_norms_whose_weights_are_frozen_are_meant(self) -> None:
        assert not findings(run().fact(modes("train", False, norm_eval=["bn"], norm_frozen=["bn"])).build(), EVAL)

    def test_a_model_with_nothing_that_depends_on_modes(self) -> None:
        assert not findings(run().fact(modes("train", False, dropout_eval=[])).build(), EVAL)

    def test_an_attack_made_in_eval_mode_within_each_step(self) -> None:
        builder = run()
        for step in range(200):
            builder.fact(modes("train", False), step).fact(modes("train", True), step)
        assert not findings(builder.build(), EVAL)

    def test_a_fixed_backbone_may_be_in_eval_mode(self) -> None:
        built = (
            RunBuilder(100)
            .parameters({"backbone.0.weight": (8, 8), "head.weight": (2, 8)})
            .optimizer("SGD")
            .fact(WiringFact(updates=100, total=2, frozen=["backbone.0.weight"]))
            .fact(ModelFact("backbone", "Net", 64, 0, 3))
            .fact(ModelFact("head", "Linear", 16, 16, 1))
            .fact(modes("train", False, model="backbone"))
            .build()
        )
        assert not findings(built, EVAL)

    def test_train_mode_throughout_rules_it_out(self) -> None:
        assert [type(s) for s in run().fact(modes("train", True)).detect(EVAL)] == [RuledOut]


class TestTrainModeInEvaluation:
    def test_eval_is_never_called(self) -> None:
        built = run().fact(modes("validation", True), 50).fact(CallSiteFact("train", "t.py", 20, "net.train()")).build()
        (found,) = findings(built, TRAIN_MODE)
        assert found.severity is Severity.ERROR and found.fix.code == "net.eval()"

    def test_dropout_alone_is_a_warning(self) -> None:
        built = run().fact(modes("validation", True, dropout_training=["drop"]), 50).build()
        assert [f.severity for f in findings(built, TRAIN_MODE)] == [Severity.WARNING]

    def test_monte_carlo_dropout_in_an_evaluated_model_is_meant(self) -> None:
        built = run().fact(modes("validation", False, dropout_training=["drop"], norm_eval=["bn"]), 50).build()
        assert not findings(built, TRAIN_MODE)

    def test_recomputing_statistics_before_the_evaluation_is_meant(self) -> None:
        built = run().fact(modes("validation", True), 199).fact(modes("validation", False), 199).build()
        assert not findings(built, TRAIN_MODE)

    def test_samples_of_a_generator_in_every_step_are_no_validation(self) -> None:
        phase = PhaseFact(100, 200, 200, 100, 0, 100, 1.0)
        built = RunBuilder(100).fact(modes("validation", True)).fact(phase).build()
        assert not findings(built, TRAIN_MODE)

    def test_eval_mode_rules_it_out(self) -> None:
        assert [type(s) for s in run().fact(modes("validation", False), 50).detect(TRAIN_MODE)] == [RuledOut]


class TestGradientsInEvaluation:
    def test_validated_again_and_again_with_gradients(self) -> None:
        built = run().fact(modes("validation", False, grad=True), 50).build()
        assert [f.severity for f in findings(built, GRADIENTS)] == [Severity.WARNING]

    def test_a_single_evaluation_is_only_a_remark(self) -> None:
        built = run(validations=1).fact(modes("validation", False, grad=True), 199).build()
        assert [f.severity for f in findings(built, GRADIENTS)] == [Severity.INFO]

    def test_forces_need_gradients(self) -> None:
        graph = GraphFact("Add", [], [], {"TanhBackwardBackward0": 3})
        assert not findings(run().fact(graph).fact(modes("validation", False, grad=True), 50).build(), GRADIENTS)

    def test_no_grad_rules_it_out(self) -> None:
        assert [type(s) for s in run().fact(modes("validation", False), 50).detect(GRADIENTS)] == [RuledOut]
