"""One batch by heart: models that can, and models that cannot, with the reason."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.errors import UsageError

torch.manual_seed(0)
X, Y, NUMBERS = torch.randn(16, 8), torch.arange(16) % 4, torch.randn(16, 1)
CORNERS = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]).repeat(4, 1) + 0.01 * torch.randn(16, 2)
CE = nn.CrossEntropyLoss()


def net(*tail: nn.Module, out: int = 4, width: int = 32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, out), *tail)


def changed(model: nn.Sequential, change: Callable[[nn.Sequential], Any]) -> nn.Sequential:
    with torch.no_grad():
        change(model)
    return model


class Cut(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.inner, self.where = net(), where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).detach() if self.where == "inside" else self.inner(x)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.dropout = net(), nn.Dropout(0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(F.dropout(self.dropout(x), 0.9, training=self.training))


@pytest.mark.parametrize(
    ("model", "batch", "loss", "floor"),
    [
        (net, (X, Y), CE, 0.0),
        (net, {"x": X, "labels": Y}, CE, 0.0),
        (Noisy, (X, Y), CE, 0.0),
        (lambda: net(out=1), (X, NUMBERS), nn.MSELoss(), 0.0),
        (lambda: net(out=1), (X, NUMBERS), lambda out, y: (out - y).square().mean(), 0.0),
        (lambda: net(nn.BatchNorm1d(4)).eval(), (X, Y), CE, 0.0),
        (lambda: net(nn.LogSoftmax(1)), (X, Y), nn.NLLLoss(), 0.0),
        (
            net,
            (X, Y),
            nn.CrossEntropyLoss(label_smoothing=0.2),
            -(0.85 * math.log(0.85) + 3 * 0.05 * math.log(0.05)),
        ),
        (
            net,
            (X, Y),
            lambda out, y: F.cross_entropy(out, y, label_smoothing=0.2) / 8,
            -(0.85 * math.log(0.85) + 3 * 0.05 * math.log(0.05)) / 8,
        ),
        (lambda: net(out=1), (X, torch.full((16, 1), 0.5)), nn.BCEWithLogitsLoss(), math.log(2)),
    ],
)
def test_what_can_be_memorised(model, batch: Any, loss: Any, floor: float) -> None:  # type: ignore[no-untyped-def]
    result = torchdoctor.overfit_batch(model(), batch, loss)
    assert result.success and result, str(result)
    assert result.steps is not None and result.losses[-1] <= result.goal and result.reason is None
    assert result.floor == pytest.approx(floor, rel=1e-3)
    assert str(result).startswith("The model memorises this batch of 16 samples")


@pytest.mark.parametrize(
    ("name", "model", "batch", "loss", "options"),
    [
        ("frozen-parameters", lambda: net().requires_grad_(False), (X, Y), CE, {}),
        ("disconnected-parameters", lambda: Cut("inside"), (X, Y), CE, {}),
        ("disconnected-parameters", net, (X, Y), lambda o, y: CE(o.detach(), y), {}),
        ("disconnected-parameters", net, (X, Y), lambda o, y: CE(o, y) * 0 + 1, {}),
        ("learning-rate-too-low", net, (X, Y), CE, {"optimizer": torch.optim.SGD, "lr": 1e-7, "steps": 120}),
        ("learning-rate-too-high", net, (X, Y), CE, {"optimizer": torch.optim.SGD, "lr": 1e4, "steps": 120}),
        ("learning-rate-too-high", net, (X, Y), CE, {"lr": 1e4}),
        ("softmax-before-cross-entropy", lambda: net(nn.Softmax(1)), (X, Y), CE, {}),
        ("misplaced-activation", lambda: net(nn.Tanh()), (X, Y), CE, {}),
        (
            "sigmoid-before-bce-with-logits",
            lambda: net(nn.Sigmoid(), out=1),
            (X, (Y[:, None] > 1).float()),
            nn.BCEWithLogitsLoss(),
            {},
        ),
        ("misplaced-activation", lambda: net(nn.Sigmoid(), out=1), (X, 5 * NUMBERS), nn.MSELoss(), {}),
        ("shape-broadcast-in-loss", lambda: net(out=1), (X, NUMBERS[:, 0]), nn.MSELoss(), {}),
        ("wrong-loss-for-task", net, (X, Y), nn.NLLLoss(), {}),
        ("wrong-loss-for-task", lambda: net(out=1), (X, 0 * Y), CE, {}),
        ("loss-sign-flipped", net, (X, Y), lambda o, y: -CE(o, y), {}),
        ("dead-relu", lambda: changed(net(), lambda m: m[0].bias.fill_(-100)), (X, Y), CE, {}),
        ("nonfinite-parameters", lambda: changed(net(), lambda m: m[0].weight.fill_(math.nan)), (X, Y), CE, {}),
        ("nan-in-inputs", net, (X * math.nan, Y), CE, {}),
        ("unnormalized-inputs", lambda: net(out=1), (X, 100 * NUMBERS + 3000), nn.MSELoss(), {}),
        ("inputs-and-labels-unrelated", net, (X[:2].repeat(8, 1), Y), CE, {}),
        ("capacity-too-low", lambda: nn.Linear(2, 2), (CORNERS, torch.tensor([0, 1, 1, 0] * 4)), CE, {}),
        (
            "missing-nonlinearity",
            lambda: changed(net(), lambda m: m.__delitem__(1)),
            (X[:, :1].repeat(1, 8), Y),
            CE,
            {},
        ),
    ],
)
def test_what_cannot_be_memorised_and_why(
    name: str, model: Callable[[], nn.Module], batch: Any, loss: Any, options: dict[str, Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torchdoctor.overfit_batch(model(), batch, loss, **({"steps": 80} | options))
    assert not result.success and not result
    assert result.reason is not None and result.reason.name == name and result.reason.proven, str(result)
    assert "cannot memorise" in str(result) and result.reason.fix in str(result)


@pytest.mark.parametrize(
    ("model", "batch", "least"),
    [(lambda: net(nn.Softmax(1)), (X, Y), math.log1p(3 / math.e)), (net, (X[:2].repeat(8, 1), Y), math.log(2))],
)
def test_where_the_loss_stops_in_closed_form(model: Callable[[], nn.Module], batch: Any, least: float) -> None:
    """Softmax before cross-entropy; equal inputs with two targets, equally often."""
    result = torchdoctor.overfit_batch(model(), batch, CE, steps=100)
    assert min(result.losses) == pytest.approx(least, rel=0.02)
    assert result.reason is not None and f"{least:.3g}" in result.reason.text


def test_an_optimizer_without_the_parameters() -> None:
    model = net()
    optimizer = torch.optim.SGD(nn.Linear(3, 3).parameters(), 0.1)
    result = torchdoctor.overfit_batch(model, (X, Y), CE, optimizer=optimizer, steps=100)
    assert result.reason is not None and result.reason.name == "parameters-not-optimized"
    assert "4 of 4 parameters" in result.reason.text


def test_too_much_frozen() -> None:
    model = changed(net(), lambda m: m[0].weight.zero_())
    model[0].requires_grad_(False)
    result = torchdoctor.overfit_batch(model, (X, Y), CE, steps=100)
    assert result.reason is not None and result.reason.name == "frozen-parameters", str(result)
    assert not model[0].weight.requires_grad


def test_a_part_of_the_batch_shows_that_the_model_is_too_small() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1), nn.Tanh(), nn.Linear(1, 4))
    result = torchdoctor.overfit_batch(model, (X, Y), CE, steps=150)
    assert result.reason is not None and result.reason.name == "capacity-too-low"
    assert "2 of the samples are memorised" in result.reason.text and "1 wide" in result.reason.text


def test_sequences_that_begin_alike_have_a_floor_for_models_that_look_back() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.recurrent, self.head = (
                nn.Embedding(3, 16),
                nn.GRU(16, 32, batch_first=True),
                nn.Linear(32, 3),
            )

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.recurrent(self.embedding(tokens))[0])

    tokens = torch.tensor([[0, 1, 2, 1], [0, 2, 1, 2]])
    result = torchdoctor.overfit_batch(
        Causal(), (tokens[:, :-1], tokens[:, 1:]), lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())
    )
    assert result.success and result.floor == pytest.approx(math.log(2) / 3)


def test_nothing_is_left_behind() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 4)).eval()
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader = DataLoader(TensorDataset(X, Y), 8, shuffle=True, generator=torch.Generator().manual_seed(0))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    drawn, own = torch.random.get_rng_state(), loader.generator.get_state()
    with torch.no_grad():
        torchdoctor.overfit_batch(model, loader, CE, optimizer=optimizer, steps=30)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m.training for m in model.modules()) and model[2].p == 0.3
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.01
    assert all(p.grad is None for p in model.parameters()) and not model[0].weight.requires_grad
    assert torch.equal(drawn, torch.random.get_rng_state()) and torch.equal(own, loader.generator.get_state())


def test_goals_floors_steps_and_optimizers_of_ones_own() -> None:
    model = net()
    result = torchdoctor.overfit_batch(model, (X, Y), CE, target=1.0)
    assert result.goal == 1.0 and result.success
    assert torchdoctor.overfit_batch(model, (X, Y), lambda o, y: CE(o, y) - 3, floor=-3).success
    assert torchdoctor.overfit_batch(model, (X, Y), CE, optimizer=torch.optim.RMSprop).optimizer == "RMSprop"
    search = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    assert torchdoctor.overfit_batch(model, (X, Y), CE, optimizer=search, steps=20).success
    short = torchdoctor.overfit_batch(net(width=8), (X, Y), CE, lr=1e-3, steps=50)
    assert not short.success


def test_any_kind_of_batch_by_a_step_of_ones_own() -> None:
    batch = SimpleNamespace(x=X, y=Y)
    result = torchdoctor.overfit_batch(net(), batch, step_fn=lambda m, b: F.cross_entropy(m(b.x), b.y))
    assert result.success and result.floor_known and result.samples is None


def test_what_got_no_gradient_is_told_all_the_same() -> None:
    model = nn.ModuleDict({"used": net(), "unused": nn.Linear(2, 2)})
    result = torchdoctor.overfit_batch(model, (X, Y), step_fn=lambda m, b: CE(m["used"](b[0]), b[1]))
    assert result.success and any("unused.weight" in note for note in result.notes)


def test_one_target_for_all_is_told() -> None:
    result = torchdoctor.overfit_batch(net(), (X, 0 * Y), CE)
    assert result.success and any("same target" in note for note in result.notes)


def test_pictures_and_dictionary() -> None:
    good = torchdoctor.overfit_batch(net(), (X, Y), CE)
    assert "memorised in" in good.plot().layout.title.text and good.plot().layout.yaxis.type == "log"
    bad = torchdoctor.overfit_batch(net(nn.Softmax(1)), (X, Y), CE, steps=80)
    assert "softmax-before-cross-entropy" in bad.plot().layout.title.text
    assert bad.to_dict()["reason"]["name"] == "softmax-before-cross-entropy"
    assert torchdoctor.overfit_batch(net(), (X * math.nan, Y), CE).plot() is not None


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (([], CE), {}, "gives no batch"),
        (((X, Y), nn.CrossEntropyLoss(reduction="none")), {}, "one number"),
        ((None, CE), {}, "None"),
        (((X,),), {}, "gives no loss by itself"),
        (({"a": X, "b": Y}, CE), {}, "none of these is known"),
        (((X, Y), CE), {"steps": 0}, "at least one step"),
        (((X, Y), CE), {"lr": 0.0}, "above 0"),
        (((X, Y), CE), {"optimizer": "adam"}, "hand over an optimizer"),
        (((X, Y), CE), {"step_fn": lambda m, b: m(b)}, "not both"),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple[Any, ...], options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        torchdoctor.overfit_batch(net(), *arguments, **options)


def test_answers_that_are_all_right_are_memorised_though_bounded_scores_hold_the_loss_up() -> None:
    """Pairs of views, told apart by their cosines: the least loss is far from zero."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32))

    def step(model: nn.Module, views: torch.Tensor) -> torch.Tensor:
        codes = nn.functional.normalize(model(views.flatten(0, 1)), dim=1)
        scores = (codes @ codes.T / 0.5).fill_diagonal_(-math.inf)
        other = torch.arange(len(codes)) ^ 1
        return nn.functional.cross_entropy(scores, other)

    anchors = torch.randn(16, 1, 12)
    result = torchdoctor.overfit_batch(model, anchors + 0.05 * torch.randn(16, 2, 12), step_fn=step, progress=False)
    assert result.success and result.end > result.goal
    assert "all predictions are correct" in str(result)


def test_right_answers_are_not_enough_where_the_loss_could_fall() -> None:
    """Blocks without skip connections: the goal is missed many times, though every class is named right."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(14)]
    model = nn.Sequential(nn.Linear(20, 16), *blocks, nn.Linear(16, 4))
    batch = torch.randn(16, 20), torch.arange(16) % 4
    result = torchdoctor.overfit_batch(model, batch, CE, steps=60, progress=False)
    assert result.end > 2 * result.goal and not result.success
    assert result.reason is not None and "all predictions are correct" in result.reason.text
