from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Decoder, Program, loader, token_loss
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.first_loss import perform
from torchdoctor.findings import Severity
from torchdoctor.instruments.subject import Subject

NAME = "first-loss"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


def _last(model: nn.Module) -> nn.Linear:
    return [m for m in model.modules() if isinstance(m, nn.Linear)][-1]


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_head_that_starts_too_large(kind: str) -> None:
    program = HEALTHY[kind]()
    with torch.no_grad():
        _last(program.model).weight.mul_(100)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "bad-initialization-scale"
    assert outcome.figures["times"] > 3 and outcome.where[0].parameter is not None


class Arc(nn.Module):
    """A head as of ArcFace, without its margin."""

    def __init__(self, scale: float, width: int, classes: int, how: str) -> None:
        super().__init__()
        self.body, self.scale, self.how = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, width)), scale, how
        self.weight = nn.Parameter(torch.randn(classes, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        if self.how == "similarity":
            return self.scale * F.cosine_similarity(x[:, None], self.weight, dim=-1)
        one = F.normalize(self.weight) if self.how != "one factor" else self.weight
        x = F.normalize(x)
        return self.scale * (x @ one.T if self.how == "product" else F.linear(x, one))


@pytest.mark.parametrize(("scale", "width", "classes"), [(64.0, 128, 10), (16.0, 8, 4)])
@pytest.mark.parametrize("how", ["linear", "product", "similarity", "one factor"])
def test_cosines_times_a_factor_are_meant(scale: float, width: int, classes: int, how: str) -> None:
    torch.manual_seed(0)
    train = loader(torch.randn(160, 12), torch.randint(0, classes, (160,)))
    outcome = Program(Arc(scale, width, classes, how), train, nn.CrossEntropyLoss()).outcome(NAME)
    assert outcome.passed is (how != "one factor"), outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder", "multilabel"])
def test_scores_that_are_multiplied(kind: str) -> None:
    """Normal weights, but the scores are not."""
    program = HEALTHY[kind]()
    criterion = program.loss_fn
    program.loss_fn = lambda out, y: criterion(100 * out, y)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "bad-initialization-scale"
    assert outcome.severity is Severity.WARNING


@pytest.mark.parametrize("kind", ["mlp", "cnn", "multilabel"])
def test_raw_inputs(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = program.train.dataset[:]
    norms = [m for m in program.model.modules() if isinstance(m, nn.BatchNorm2d)]
    program.model = nn.Sequential(*(m for m in program.model.children() if m not in norms))
    outcome = Program(program.model, loader(1e3 * x, y), program.loss_fn).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "unnormalized-inputs"


def test_targets_that_are_small_are_a_note() -> None:
    program = HEALTHY["regression"]()
    x, y = program.train.dataset[:]
    outcome = Program(program.model, loader(x, 1e-3 * y), nn.MSELoss()).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO and "targets" in outcome.text


class Told(nn.Module):
    """Finds the answer in its last columns."""

    def __init__(self, width: int, answers: int) -> None:
        super().__init__()
        self.inner, self.answers = nn.Linear(width, answers), answers

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x[:, : -self.answers]) + 8 * x[:, -self.answers :]


@pytest.mark.parametrize("kind", ["mlp", "binary", "tied", "pictures"])
def test_the_target_among_the_inputs(kind: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(160, 6), torch.randint(0, 3, (160,))
    hot = F.one_hot(y, 3).float()
    if kind == "mlp":
        program = Program(Told(6, 3), loader(torch.cat([x, hot], 1), y), nn.CrossEntropyLoss())
    elif kind == "binary":
        program = Program(Told(6, 3), loader(torch.cat([x, 2 * hot - 1], 1), hot), nn.BCEWithLogitsLoss())
    elif kind == "pictures":
        model = nn.Sequential(nn.Flatten(), Told(9, 3), nn.LogSoftmax(1))
        pictures = torch.cat([torch.randn(160, 9), hot], 1).reshape(160, 1, 3, 4)
        program = Program(model, loader(pictures, y), nn.NLLLoss())
    else:  # embeddings that serve as the output, and targets that are not shifted
        tied = Decoder(width=64)
        nn.init.normal_(tied.words.weight)
        nn.init.zeros_(tied.places.weight)
        tied.head = nn.Linear(64, 16, bias=False)
        tied.head.weight = tied.words.weight
        ids = torch.randint(0, 16, (160, 12))
        program = Program(tied, loader(ids, ids.clone()), lambda out, y: token_loss(out / 4, y))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "label-leakage"
    assert outcome.severity is Severity.WARNING and "below chance" in outcome.text


def test_a_model_that_was_trained_before() -> None:
    program = HEALTHY["cnn"]()
    for _ in range(30):
        for x, y in program.train:
            program.optimizer.zero_grad()
            program.loss_fn(program.model(x), y).backward()
            program.optimizer.step()
    outcome = program.outcome(NAME)
    assert outcome.passed and "trained before" in outcome.text


def _after_a_pass(std: float) -> Program:
    """As a script hands it over: its first pass is made, its first update is not."""
    program = HEALTHY["cnn"]()
    for parameter in program.model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=std)
    program.model(program.train.dataset[:][0][:16])
    return program


def test_statistics_of_the_first_pass_are_no_training() -> None:
    assert _after_a_pass(0.1).outcome(NAME).passed
    outcome = _after_a_pass(3.0).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "bad-initialization-scale"


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_that_was_trained_for_other_classes(frozen: bool) -> None:
    program = HEALTHY["cnn"]()
    if frozen:
        program.model[1].requires_grad_(False)  # type: ignore[index]
    rate = torch.optim.Adam([p for p in program.model.parameters() if p.requires_grad], 0.05)
    for _ in range(30):
        for x, y in program.train:
            rate.zero_grad()
            program.loss_fn(program.model(x), 1 - y).backward()
            rate.step()
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis is None and "trained before" in outcome.text


def test_known_in_closed_form() -> None:
    """Scores of zero, and three labels of one class for each of the other."""
    y = torch.tensor([0, 1, 1, 1]).repeat(16)
    model = nn.Linear(3, 2)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    outcome = Program(model, loader(torch.randn(64, 3), y, batch=64), nn.CrossEntropyLoss()).outcome(NAME)
    assert outcome.passed
    assert outcome.figures["loss"] == pytest.approx(math.log(2), abs=1e-5) == outcome.figures["blind"]
    assert outcome.figures["prior"] == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3), abs=1e-4)


def test_padding_is_left_out() -> None:
    program = HEALTHY["decoder"]()
    x, y = program.train.dataset[:]
    y = y.clone()
    y[:, 4:] = -100
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.passed and outcome.figures["blind"] == pytest.approx(math.log(16), abs=1e-4)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": nn.CrossEntropyLoss(reduction="sum"),
    "weights": nn.CrossEntropyLoss(torch.tensor([1.0, 9.0, 0.1, 3.0])),
    "smooth": nn.CrossEntropyLoss(label_smoothing=0.2),
    "none": lambda out, y: F.cross_entropy(out, y, reduction="none").mean(),
    "by hand": lambda out, y: -out.log_softmax(1)[torch.arange(len(y)), y].mean(),
    "soft": lambda out, y: F.cross_entropy(out, F.one_hot(y, 4).float()),
    "with a penalty": lambda out, y: F.cross_entropy(out, y) + 50 + out.square().mean(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_any_way_a_loss_is_written(loss: str) -> None:
    program = HEALTHY["mlp"]()
    program.loss_fn = LOSSES[loss]
    assert program.outcome(NAME).passed
    with torch.no_grad():
        _last(program.model).weight.mul_(100)
    assert program.outcome(NAME).passed is False


@pytest.mark.parametrize(
    "loss", [nn.L1Loss(), nn.HuberLoss(), lambda a, b: (a - b).square().mean(), lambda a, b: (a - b).abs().mean()]
)
def test_any_way_an_error_is_written(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    program = HEALTHY["regression"]()
    program.loss_fn = loss
    assert program.outcome(NAME).passed
    with torch.no_grad():
        _last(program.model).weight.mul_(1000)
    assert program.outcome(NAME).passed is False


def test_an_unknown_loss_is_not_judged() -> None:
    program = HEALTHY["regression"]()
    program.loss_fn = lambda out, y: (out - y).pow(4).mean().log1p()
    assert program.outcome(NAME).passed is None


@pytest.mark.parametrize("where", ["inputs", "targets", "weights", "overflow", "loss"])
def test_a_loss_that_is_no_number(where: str) -> None:
    program = HEALTHY["regression"]()
    x, y = (t.clone() for t in program.train.dataset[:])
    if where == "inputs":
        x[:, 0] = math.nan
    elif where == "targets":
        y[:] = math.inf
    elif where == "weights":
        nn.init.constant_(program.model[2].bias, math.nan)  # type: ignore[index,arg-type]
    elif where == "overflow":
        nn.init.constant_(program.model[2].weight, 1e30)  # type: ignore[index,arg-type]
        program.model.append(nn.Linear(1, 1))  # type: ignore[operator]
        nn.init.constant_(program.model[3].weight, 1e30)  # type: ignore[index,arg-type]
    else:
        program.loss_fn = lambda out, y: (out - out).log().mean()
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    expected = {
        "inputs": "nan-in-inputs",
        "targets": "nan-in-targets",
        "weights": "nonfinite-parameters",
        "overflow": "bad-initialization-scale",
        "loss": None,
    }
    assert outcome.passed is False and outcome.diagnosis == expected[where]


def _pairs(model: nn.Module, batch: list[Tensor]) -> Tensor:
    one, other = (F.normalize(model(batch[0] + 0.1 * torch.randn_like(batch[0])), dim=1) for _ in range(2))
    return F.cross_entropy(one @ other.T / 0.1, torch.arange(len(one)))


class Cosines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32)), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(self.body(x), dim=1), F.normalize(self.classes.weight, dim=1))


def _margin(model: nn.Module, batch: list[Tensor]) -> Tensor:
    scores = model(batch[0])
    return F.cross_entropy(16 * (scores - 0.35 * F.one_hot(batch[1], scores.shape[1])), batch[1])


def test_samples_that_are_each_others_classes() -> None:
    program = HEALTHY["mlp"]()
    program.loss_fn, program.more = None, {"step_fn": _pairs}
    assert program.outcome(NAME).passed is None


def test_a_margin_is_meant() -> None:
    torch.manual_seed(0)
    train = loader(torch.randn(160, 12), torch.randint(0, 10, (160,)))
    outcome = Program(Cosines(), train, more={"step_fn": _margin}).outcome(NAME)
    assert outcome.passed and "margin" in outcome.text


@pytest.mark.parametrize("weight", [0.02, 50.0])
def test_weights_on_rare_labels(weight: float) -> None:
    """With them the frequencies of the labels are a bad guess."""
    torch.manual_seed(0)
    x = torch.randn(320, 10)
    y = (x[:, :1] > 1.7).float()
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([weight]))
    assert Program(nn.Linear(10, 1), loader(x, y, batch=64), loss).outcome(NAME).passed
    classes = nn.CrossEntropyLoss(torch.tensor([1.0, weight]))
    assert Program(nn.Linear(10, 2), loader(x, y[:, 0].long(), batch=64), classes).outcome(NAME).passed


def test_a_teacher_that_starts_as_a_copy() -> None:
    program = HEALTHY["mlp"]()
    teacher = copy.deepcopy(program.model)

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        out = model(batch[0])
        with torch.no_grad():
            wanted = teacher(batch[0])
        return F.cross_entropy(out, batch[1]) + F.mse_loss(out, wanted)

    outcome = Program(program.model, program.train, optimizer=program.optimizer).outcome(NAME, step_fn=step)
    assert outcome.passed, outcome.text


def test_a_sequence_whose_neighbours_are_the_inputs_has_no_margin() -> None:
    """A tied head of a large embedding answers with its own input, which is the target of the row before it."""
    embedding = nn.Embedding(20, 16)
    ids = torch.randint(20, (8, 13))

    def step(model: nn.Module, batch: Tensor) -> Tensor:
        return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = embedding

        def forward(self, x: Tensor) -> Tensor:
            return self.words(x) @ self.words.weight.T

    model = Tied()
    outcome = perform(Bench(Subject(model, step_fn=step), [ids], [], torch.optim.Adam(model.parameters())))
    assert outcome.passed is False and outcome.diagnosis == "bad-initialization-scale"
