from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "mode-switch"


class Then(nn.Module):
    """A model, and something done to what it gives."""

    def __init__(self, model: nn.Module, what: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.what = model, what

    def forward(self, *args: Tensor) -> Tensor:
        return self.what(self, self.model(*args))


def _then(kind: str, what: Callable[[nn.Module, Tensor], Tensor]) -> Program:
    program = HEALTHY[kind]()
    program.model = Then(program.model, what)
    return program


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


@pytest.mark.parametrize("kind", HEALTHY)
def test_dropout_by_a_function_that_is_told(kind: str) -> None:
    assert _then(kind, lambda model, x: F.dropout(x, 0.1, training=model.training)).outcome(NAME).passed


@pytest.mark.parametrize("kind", HEALTHY)
def test_dropout_by_a_function_that_is_not_told(kind: str) -> None:
    outcome = _then(kind, lambda _model, x: F.dropout(x, 0.1)).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "train-mode-in-evaluation"
    assert outcome.severity is Severity.WARNING and "test_mode_switch.py" in outcome.text
    assert outcome.fix is not None and "self.training" in (outcome.fix.listing or "")


@pytest.mark.parametrize("kind", ["mlp", "multilabel", "autoencoder", "rnn"])
def test_batch_norm_by_a_function_that_is_not_told(kind: str) -> None:
    program = HEALTHY[kind]()
    width = 16
    for module in program.model.modules():
        width = module.out_features if isinstance(module, nn.Linear) else width
    mean, var = torch.zeros(width), torch.ones(width)

    def normalise(_model: nn.Module, x: Tensor) -> Tensor:
        return F.batch_norm(x, mean, var, training=True)

    outcome = _then(kind, normalise).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "train-mode-in-evaluation"
    assert outcome.severity is Severity.ERROR and "F.batch_norm" in outcome.text


class Guarded(nn.Module):
    """With a dropout in front."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.drop = model, nn.Dropout(0.1)

    def forward(self, *args: Tensor) -> Tensor:
        return self.drop(self.model(*args))


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_model_left_in_eval_mode(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = Guarded(program.model)
    assert program.outcome(NAME).passed
    program.model.eval()
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "eval-mode-in-training" and "drop" in outcome.text
    assert outcome.severity is (Severity.ERROR if kind == "cnn" else Severity.WARNING)
    assert not program.model.training


def test_a_step_that_sets_the_mode_itself() -> None:
    program = HEALTHY["cnn"]()
    program.model.eval()

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        model.train()
        return F.cross_entropy(model(batch[0]), batch[1])

    program.loss_fn, program.more = None, {"step_fn": step}
    assert program.outcome(NAME).passed


def test_frozen_normalisation_in_eval_mode_is_meant() -> None:
    program = HEALTHY["cnn"]()
    program.model[1].eval().requires_grad_(False)  # type: ignore[index,operator,union-attr]
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "decoder"])
def test_dropout_whose_result_is_not_used(kind: str) -> None:
    program = _then(kind, lambda model, x: (model.drop(x), x)[1])  # type: ignore[operator]
    program.model.drop = nn.Dropout(0.5)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "not used" in outcome.text and "drop" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "decoder"])
def test_dropout_before_weights_of_zero_is_used(kind: str) -> None:
    program = HEALTHY[kind]()
    last = [m for m in program.model.modules() if isinstance(m, nn.Linear)][-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    last.register_forward_pre_hook(lambda module, args: (module.drop(args[0]),))
    last.drop = nn.Dropout(0.5)
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("share", [0.95, 1.0])
def test_a_share_to_keep_taken_for_one_to_drop(share: float) -> None:
    program = HEALTHY["multilabel"]()
    program.model[2].p = share  # type: ignore[index,union-attr]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "over-regularized"


@pytest.mark.parametrize(("setting", "value"), [("momentum", 0.99), ("momentum", 0.0), ("eps", 0.0), ("eps", 1.0)])
def test_odd_settings_of_batch_norm(setting: str, value: float) -> None:
    program = HEALTHY["cnn"]()
    setattr(program.model[1], setting, value)  # type: ignore[index]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and setting in outcome.text


def test_a_momentum_that_is_too_small_for_the_run() -> None:
    program = HEALTHY["cnn"]()
    program.model[1].momentum = 1e-3  # type: ignore[index,union-attr]
    assert program.outcome(NAME, epochs=1000).passed
    assert program.outcome(NAME, epochs=2).passed is False


def test_a_run_that_is_too_short_for_the_default_momentum() -> None:
    program = HEALTHY["cnn"]()
    x, y = program.train.dataset[:64]
    program.train = loader(x, y)
    outcome = program.outcome(NAME, epochs=1)
    assert outcome.passed is False and "too short" in outcome.text and "4 batches" in outcome.text
    assert "default" not in f"{outcome.text} {outcome.fix}"
    assert program.outcome(NAME, epochs=4).passed


def test_noise_in_eval_mode_is_worth_a_note() -> None:
    outcome = _then("autoencoder", lambda _model, x: x + torch.randn_like(x)).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO and "random" in outcome.text


def test_a_state_that_is_kept() -> None:
    def carry(model: nn.Module, x: Tensor) -> Tensor:
        model.kept = x.detach() + getattr(model, "kept", 0)
        return x + model.kept.mean(0)

    outcome = _then("mlp", carry).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO and "second time" in outcome.text


def test_a_model_that_fails_in_eval_mode() -> None:
    def fail(model: nn.Module, x: Tensor) -> Tensor:
        if not model.training:
            raise ValueError("no weights yet")
        return x

    outcome = _then("rnn", fail).outcome(NAME)
    assert outcome.passed is False and "no weights yet" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn"])
def test_what_only_train_mode_does_to_the_outputs(kind: str) -> None:
    outcome = _then(kind, lambda model, x: 3 * x + 1 if model.training else x.flip(-1)).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.WARNING
    assert "the model (Then)" in outcome.text and "in eval mode" in outcome.text


def test_outputs_alone_that_differ_are_worth_a_note() -> None:
    """Cross-entropy does not see what is added to all scores."""
    outcome = _then("mlp", lambda model, x: x + 5 if model.training else x).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO and "the loss" not in outcome.text


@pytest.mark.parametrize("finish", [lambda x: x.softmax(-1), torch.sigmoid, lambda x: x.clamp(-0.1, 0.1)])
def test_outputs_made_ready_for_use_are_worth_a_note(finish: Callable[[Tensor], Tensor]) -> None:
    outcome = _then("mlp", lambda model, x: x if model.training else finish(x)).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO


def _stochastic_depth(model: nn.Module, x: Tensor) -> Tensor:
    """Kept nearly always, and scaled up for it."""
    return x * (torch.rand(len(x), *[1] * (x.dim() - 1)) < 0.9999) / 0.9999 if model.training else x


def _auxiliary(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([x, x]) if model.training else x


class _OwnNorm(nn.Module):
    """A batch normalisation by hand, of which nobody knows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x - self.mean
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - x.mean(0)


@pytest.mark.parametrize("what", [_stochastic_depth, _auxiliary])
def test_differences_that_are_drawn_or_of_another_form_are_meant(
    what: Callable[[nn.Module, Tensor], Tensor],
) -> None:
    program = _then("mlp", what)
    criterion = program.loss_fn
    program.loss_fn = lambda outputs, target: criterion(outputs[: len(target)], target)
    assert program.outcome(NAME).passed


def test_a_normalisation_of_ones_own_is_meant() -> None:
    program = HEALTHY["mlp"]()
    program.model = nn.Sequential(program.model, _OwnNorm(4))
    assert program.outcome(NAME).passed


class _Recalled(nn.Module):
    """Is given the answer in training, and its own guess in use: teacher forcing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.then = nn.Linear(12, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        first = self.first(x)
        return first + self.then(known if self.training else first)


def test_a_model_that_is_given_the_answer_in_training_is_meant() -> None:
    torch.manual_seed(0)
    x = torch.randn(96, 12)
    y = x[:, :4].argmax(1)
    program = Program(_Recalled(), loader(x, F.one_hot(y, 4).float(), y), F.cross_entropy)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO


def test_modules_are_named_with_their_kind() -> None:
    """In a Sequential the name alone is a number."""
    program = HEALTHY["cnn"]()
    program.model.eval()
    assert "1 (BatchNorm2d) would not work" in program.outcome(NAME).text


class KeepsEval(nn.Module):
    """Its train() leaves the parts of some kind in eval mode."""

    def __init__(self, model: nn.Module, kind: type[nn.Module]) -> None:
        super().__init__()
        self.model, self.kind = model, kind

    def train(self, mode: bool = True) -> KeepsEval:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, self.kind):
                module.training = False
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def test_a_train_override_that_keeps_new_batch_norm_in_eval_mode() -> None:
    program = HEALTHY["cnn"]()
    program.model = KeepsEval(program.model, nn.BatchNorm2d).train()
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "eval-mode-in-training"
    assert "model.1" in outcome.text


def test_batch_norm_kept_in_eval_mode_with_statistics_is_named_as_that() -> None:
    """As in fine-tuning: the check passes, and counts no layer that the mode does not change."""
    program = HEALTHY["cnn"]()
    program.model[1].running_mean += 0.5  # type: ignore[index,operator,union-attr]
    program.model = KeepsEval(program.model, nn.BatchNorm2d).train()
    outcome = program.outcome(NAME)
    assert outcome.passed and outcome.figures["norms"] == 0 and "1 normalisation layer in eval mode" in outcome.text


def test_dropout_that_never_runs_is_not_counted() -> None:
    program = HEALTHY["mlp"]()
    program.model = Guarded(program.model)
    program.model.unused = nn.Dropout(0.3)
    outcome = program.outcome(NAME)
    assert outcome.passed and outcome.figures["dropouts"] == 1 and "not at all" in outcome.text
