from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "gradients-reach"
LISTS = ("mlp", "cnn", "regression", "multilabel", "autoencoder")


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


class Cut(nn.Module):
    def __init__(self, how: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        return self.how(x)


def _insert(program: Program, at: int, part: nn.Module) -> Program:
    parts = list(program.model)  # type: ignore[call-overload]
    program.model = nn.Sequential(*parts[:at], part, *parts[at:])
    return program


@pytest.mark.parametrize("how", [Tensor.detach, lambda x: x.data, lambda x: torch.tensor(x.tolist())])
@pytest.mark.parametrize("kind", LISTS)
def test_a_graph_that_is_cut(kind: str, how: Callable[[Tensor], Tensor]) -> None:
    outcome = _insert(HEALTHY[kind](), 1, Cut(how)).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "disconnected-parameters"
    assert outcome.severity is Severity.ERROR and re.match(r"0 \(\w+\) gets no gradient", outcome.text)
    assert any("test_gradients_reach.py" in e.text for e in outcome.evidence)


class Sleeper(nn.Module):
    """A layer in the model that no one calls."""

    def __init__(self, model: nn.Module, size: int) -> None:
        super().__init__()
        self.model, self.spare = model, nn.Linear(size, size)

    def forward(self, *args: Tensor) -> Tensor:
        return self.model(*args)


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_layer_that_is_never_called(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = Sleeper(program.model, 200)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "disconnected-parameters"
    assert outcome.severity is Severity.WARNING and "never calls spare" in outcome.text


def test_a_small_part_that_is_never_called_is_worth_a_note() -> None:
    program = HEALTHY["mlp"]()
    program.model = Sleeper(program.model, 2)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO


class NoGraph(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = model

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.inner(x)


def test_layers_under_no_grad() -> None:
    program = HEALTHY["cnn"]()
    program.model[0] = NoGraph(program.model[0])  # type: ignore[index,operator]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "no graph is recorded" in outcome.text and "0.inner" in outcome.text


def test_a_loss_without_a_graph() -> None:
    program = HEALTHY["regression"]()
    program.model = NoGraph(program.model)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "disconnected-parameters"
    assert outcome.severity is Severity.ERROR


def test_nothing_to_train() -> None:
    program = HEALTHY["rnn"]()
    program.model.requires_grad_(False)
    assert program.outcome(NAME).diagnosis == "frozen-parameters"


def test_layers_in_a_plain_list() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = [nn.Linear(12, 12), nn.Linear(12, 12)], nn.Linear(12, 4)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x).relu()
            return self.head(x)

    program = HEALTHY["mlp"]()
    program.model = Listed()
    program.optimizer = torch.optim.SGD(program.model.parameters(), 0.1)
    outcome = program.outcome(NAME)
    assert (
        outcome.passed is False and outcome.diagnosis == "parameters-not-optimized" and "4 parameters" in outcome.text
    )
    every = [p for layer in program.model.layers for p in layer.parameters()]
    program.optimizer = torch.optim.SGD([*program.model.parameters(), *every], 0.1)
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("kind", LISTS)
def test_an_operation_without_slope(kind: str) -> None:
    outcome = _insert(HEALTHY[kind](), 1, Cut(torch.round)).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "disconnected-parameters"
    assert "round" in outcome.text and "0.weight" in outcome.text


def test_zeros_that_the_next_weights_make() -> None:
    program = HEALTHY["mlp"]()
    nn.init.zeros_(program.model[4].weight)  # type: ignore[index,union-attr,arg-type]
    assert program.outcome(NAME).passed


def _deep(kind: str, activation: Callable[[], nn.Module], depth: int = 10) -> Program:
    torch.manual_seed(0)
    x = torch.randn(96, 8)
    if kind == "pixels":
        x = torch.randn(64, 1, 6, 6)
        body = [part for _ in range(depth) for part in (nn.Conv2d(4, 4, 3, padding=1), activation())]
        model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *body, nn.Flatten(), nn.Linear(144, 2))
        target, loss = (x.mean((1, 2, 3)) > 0).long(), nn.CrossEntropyLoss()
    else:
        target, loss, outputs = {
            "classes": (x.argmax(1), nn.CrossEntropyLoss(), 8),
            "numbers": (x[:, :1], nn.MSELoss(), 1),
            "labels": ((x[:, :3] > 0).float(), nn.BCEWithLogitsLoss(), 3),
        }[kind]
        body = [part for _ in range(depth) for part in (nn.Linear(16, 16), activation())]
        model = nn.Sequential(nn.Linear(8, 16), *body, nn.Linear(16, outputs))
    return Program(model, loader(x, target), loss, optimizer=torch.optim.SGD(model.parameters(), 0.01))


@pytest.mark.parametrize("kind", ["classes", "numbers", "labels", "pixels"])
def test_gradients_that_vanish(kind: str) -> None:
    outcome = _deep(kind, nn.Sigmoid).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "vanishing-gradients"
    assert outcome.severity.at_least(Severity.WARNING) and "0.weight" in outcome.text


def test_an_adaptive_optimizer_makes_up_for_it() -> None:
    program = _deep("classes", nn.Sigmoid, depth=5)
    program.optimizer = torch.optim.Adam(program.model.parameters(), 1e-3)
    outcome = program.outcome(NAME)
    assert outcome.passed or outcome.severity is Severity.INFO


@pytest.mark.parametrize("kind", ["classes", "numbers", "labels", "pixels"])
def test_gradients_that_explode(kind: str) -> None:
    program = _deep(kind, nn.Tanh, depth=36)
    for parameter in program.model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=4.0 / (parameter[0].numel() ** 0.5))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "exploding-gradients"
    assert outcome.severity is Severity.WARNING


class Reader(nn.Module):
    def __init__(self, cell: type[nn.RNNBase] = nn.RNN) -> None:
        super().__init__()
        self.body, self.head = cell(4, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


def _reading(cell: type[nn.RNNBase], length: int) -> Program:
    torch.manual_seed(0)
    x, model = torch.randn(96, length, 4), Reader(cell)
    y = (x[:, -1, 0] > 0).long()
    return Program(model, loader(x, y), nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), 0.5))


def test_a_gradient_that_explodes_over_time() -> None:
    program = _reading(nn.RNN, 40)
    program.model.body.nonlinearity = "relu"  # type: ignore[union-attr]
    program.model.body.mode = "RNN_RELU"  # type: ignore[union-attr]
    nn.init.orthogonal_(program.model.body.weight_hh_l0, gain=2.0)  # type: ignore[union-attr,arg-type]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "exploding-gradients" and "body" in outcome.text


def test_a_gradient_that_fades_over_time_is_worth_a_note() -> None:
    outcome = _reading(nn.RNN, 60).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "vanishing-gradients"
    assert outcome.severity is Severity.INFO and "60 time steps" in outcome.text
    assert _reading(nn.RNN, 8).outcome(NAME).passed and _reading(nn.GRU, 60).outcome(NAME).passed


def _root_at_zero(outputs: Tensor, target: Tensor) -> Tensor:
    return ((outputs - target).square().sum() * 0 + (outputs * 0).square().sum(-1)).sqrt().mean()


@pytest.mark.parametrize("kind", ["regression", "autoencoder", "multilabel", "mlp"])
def test_a_gradient_that_is_not_finite(kind: str) -> None:
    program = HEALTHY[kind]()
    program.loss_fn = (lambda outputs, target: (outputs.sum(-1) * 0).sqrt().sum()) if kind == "mlp" else _root_at_zero
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "sqrt-at-zero"


def test_a_loss_that_is_not_finite() -> None:
    program = HEALTHY["multilabel"]()
    program.loss_fn = lambda outputs, target: -((outputs.sigmoid() * 0).log()).mean()
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "log-of-zero"


def test_experts_that_are_seldom_chosen() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(12, 3)
            self.experts = nn.ModuleList(nn.Linear(12, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            weights = self.gate(x).softmax(-1).mean(0)
            chosen = int(weights.argmax() if len(x) % 2 == 0 else torch.randint(3, ()))
            return self.experts[chosen](x) * weights[chosen]

    program = HEALTHY["mlp"]()
    program.model = Experts()
    program.optimizer = torch.optim.Adam(program.model.parameters())
    outcome = program.outcome(NAME)
    assert outcome.passed or outcome.severity is not Severity.ERROR


class Criterion(nn.Module):
    """A loss with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(4, 4))

    def forward(self, outputs: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs @ self.centres, target)


@pytest.mark.parametrize("within_step", [False, True])
def test_parameters_of_the_loss_are_told_as_such(within_step: bool) -> None:
    program, criterion = HEALTHY["mlp"](), Criterion()
    program.loss_fn = criterion
    if within_step:
        program.loss_fn = None
        program.more["step_fn"] = lambda model, batch: criterion(model(batch[0]), batch[1])
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "parameters-not-optimized"
    assert "the loss function has one parameter of its own (of shape (4, 4))" in outcome.text
    assert outcome.fix is not None and "*loss_fn.parameters()" in (outcome.fix.listing or "")
    criterion.eval()  # a critic that is to stay as it is
    assert program.outcome(NAME).passed


def test_modules_in_a_plain_list_are_the_models() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.others = nn.Linear(12, 4), [nn.Linear(4, 4)]

        def forward(self, x: Tensor) -> Tensor:
            return self.others[0](self.first(x).relu())

    program = HEALTHY["mlp"]()
    program.model = Hidden()
    program.optimizer = torch.optim.Adam(program.model.parameters())
    outcome = program.outcome(NAME)
    assert outcome.fix is not None and "ModuleList" in outcome.fix.text and "2 parameters" in outcome.text


def test_several_modules_without_a_gradient_are_named_with_their_kinds() -> None:
    class Frozen(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self[2](self[0](x).relu()).relu()
            return self[4](x)

    program = HEALTHY["mlp"]()
    program.model = Frozen(*program.model)  # type: ignore[arg-type]
    text = program.outcome(NAME).text
    assert text.startswith("0 (Linear), 2 (Linear) get no gradient") and "they run where no graph" in text
