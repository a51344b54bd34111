"""Sharpness: bowls and saddles whose Hessian is known, plateaus, and nothing left behind."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.distributions.intervals import mean_interval, median_interval
from torchdoctor.errors import UsageError
from torchdoctor.instruments.weight_space.hessian import find_extremes
from torchdoctor.instruments.weight_space.sharpness import sharpness

X, Y = torch.randn(40, 5, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3
LOADER = DataLoader(TensorDataset(X, Y), 16)


class Quadratic(nn.Module):
    """The loss is offset + sum of curvature times w squared, halved: its Hessian is the diagonal of curvatures."""

    def __init__(self, curvatures: list[float], weights: list[float], offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weights))
        self.register_buffer("curvatures", torch.tensor(curvatures))
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean() * (self.offset + (self.curvatures * self.weight.square()).sum() / 2)


class Product(nn.Module):
    """Two factors that are zero, between which the gradient cannot choose, and one weight beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.factors, self.other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.tensor(10.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1] * self.factors.prod() + 0 * self.other


def measured(model: nn.Module, **options):  # type: ignore[no-untyped-def]
    return sharpness(model, [torch.ones(4)] * 2, step_fn=lambda m, batch: m(batch), progress=False, **options)


def network(*extra: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(), *extra, nn.Linear(8, 3))


def test_the_bowl() -> None:
    found = measured(Quadratic([1.0, 10.0, 3.0, 3.0], [0.0] * 4, offset=1e-3))
    assert found.kind == "minimum"
    assert found.curvature.largest == pytest.approx(10, rel=1e-4)
    assert found.curvature.smallest == pytest.approx(1, rel=1e-4)
    assert found.curvature.converged and found.curvature.exact
    assert found.loss == pytest.approx(1e-3) and found.gradient_norm == 0
    assert "all weights are zero" in str(found)


def test_noise_in_a_round_bowl_is_known_in_closed_form() -> None:
    found = measured(Quadratic([2.0] * 3, [0.6, 0.0, 0.8]), radii=(0.1, 0.5))
    for rise in found.rises:
        assert rise.mean == pytest.approx(rise.radius**2, rel=1e-4)
        assert rise.low == pytest.approx(rise.high, rel=1e-3)
    assert found.kind == "slope" and "Slope" in str(found)
    assert found.doubling_radius is None
    assert measured(Quadratic([2.0] * 3, [0.6, 0.0, 0.8]), radii=(0.1, 2.0)).doubling_radius == pytest.approx(
        0.1 + 1.9 * 0.99 / 3.99, rel=1e-3
    )


def test_the_saddle() -> None:
    found = measured(Quadratic([4.0, -1.0], [0.0, 0.0], offset=1e-6))
    assert found.kind == "saddle"
    assert found.point.negative == pytest.approx(0.25, rel=1e-3)
    assert "25% of the largest curvature (-1 and 4)" in str(found)


def test_the_top_and_the_plain() -> None:
    assert measured(Quadratic([-2.0, -3.0], [0.0, 0.0], offset=1e-6)).kind == "maximum"
    assert measured(Quadratic([0.0, 0.0], [1.0, 2.0], offset=1.0)).kind == "flat"


def test_a_loss_of_zero_cannot_double() -> None:
    found = measured(Quadratic([2.0, 2.0], [0.0, 0.0]))
    assert found.doubling_radius is None and str(found).startswith("Minimum") and found.plot() is not None


def test_a_loss_that_breaks_has_not_doubled() -> None:
    model = Quadratic([1.0, 1.0], [1.0, 1.0])
    found = sharpness(
        model, [torch.ones(4)], step_fn=lambda m, _: (m.weight - 0.9).log().sum() + 9, radii=(0.5,), progress=False
    )
    assert found.doubling_radius is None and "not finite" in str(found) and "doubles" not in str(found)


def test_plateaus_and_saddles_are_diagnosed_where_much_is_left_to_learn() -> None:
    dead = network(nn.Linear(8, 8), nn.ReLU())
    with torch.no_grad():
        dead[4].bias.fill_(-1e3)
        dead[-1].bias.zero_()
    numbers = DataLoader(TensorDataset(X, X[:, :1] - X[:, :1].mean()), 40)
    for model, loader, loss, title in (
        (Product(), numbers, nn.MSELoss(), "saddle"),
        (dead, LOADER, nn.CrossEntropyLoss(), "plateau"),
    ):
        found = sharpness(model, loader, loss, progress=False)
        assert found.finding is not None and found.finding.name == "plateau-or-saddle", str(found)
        assert title in found.finding.title and "H011" in str(found)


def test_a_model_that_has_learned_its_data_is_on_no_plateau() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.eval()(X), Y).backward()
        optimizer.step()
    assert sharpness(model, LOADER, nn.CrossEntropyLoss(), progress=False).finding is None


def test_a_network_of_dead_units_is_flat() -> None:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
        model[2].bias.copy_(torch.log(torch.bincount(Y).float()))
    assert sharpness(model, LOADER, nn.CrossEntropyLoss(), progress=False).kind == "flat"


@pytest.mark.parametrize(
    ("lr", "momentum", "said"), [(0.1, 0, "50% of that"), (0.25, 0, "1.25 times"), (0.25, 0.9, "66%")]
)
def test_the_edge_of_stability(lr: float, momentum: float, said: str) -> None:
    found = measured(Quadratic([10.0, 1.0], [0.0, 0.0], offset=1.0), lr=lr, momentum=momentum)
    assert found.edge == pytest.approx(2 * (1 + momentum) / lr)
    assert said in str(found)


def test_the_hessian_of_a_network_against_the_whole_of_it() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    data = [(X[:16].double(), Y[:16]), (X[16:].double(), Y[16:])]
    found = sharpness(model, data, nn.CrossEntropyLoss(), tolerance=1e-6, iterations=60, progress=False)
    names = [n for n, _ in model.named_parameters()]

    def loss(*values: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (X.double(),))
        return nn.functional.cross_entropy(logits, Y)

    blocks = torch.autograd.functional.hessian(loss, tuple(p.detach() for p in model.parameters()))
    sizes = [p.numel() for p in model.parameters()]
    whole = torch.cat([torch.cat([b.reshape(n, -1) for b in row], 1) for n, row in zip(sizes, blocks, strict=True)])
    values = torch.linalg.eigvalsh(whole)
    assert found.curvature.largest == pytest.approx(float(values[-1]), rel=1e-5)
    assert found.curvature.smallest == pytest.approx(float(values[0]), rel=1e-4)


def test_what_cannot_be_differentiated_twice_is_taken_from_gradients() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(w)
            return (3 * w.square()).sum() / 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            return 3 * ctx.saved_tensors[0] * grad

    model = Quadratic([0.0] * 2, [0.3, 0.4])
    found = sharpness(model, [torch.ones(1)], step_fn=lambda m, b: Once.apply(m.weight), progress=False)
    assert found.curvature.largest == pytest.approx(3, rel=1e-2)
    assert not found.curvature.exact and "cannot be differentiated twice" in str(found)


def test_attention_and_recurrence_have_a_hessian() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.recurrence = nn.LSTM(8, 3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.recurrence(self.attention(x, x, x, need_weights=False)[0])[0][:, -1]

    found = sharpness(Both(), [(torch.randn(4, 6, 8), Y[:4])], nn.CrossEntropyLoss(), progress=False, iterations=8)
    assert found.curvature.exact


def test_nothing_is_left_behind() -> None:
    model = network().train()
    nn.functional.cross_entropy(model(X), Y).backward()
    model[0].weight.requires_grad_(False)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    drawn = torch.random.get_rng_state()
    first = sharpness(model, LOADER, nn.CrossEntropyLoss(), training=True, progress=False)
    again = sharpness(model, LOADER, nn.CrossEntropyLoss(), training=True, progress=False)
    assert first.to_dict() == again.to_dict()
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in state.items())
    assert all(torch.equal(a, p.grad) for a, p in zip(grads, model.parameters(), strict=True) if a is not None)
    assert torch.equal(drawn, torch.random.get_rng_state())
    assert model.training and not model[0].weight.requires_grad


def test_batches_by_name_and_inside_no_grad() -> None:
    model = nn.Linear(5, 3)
    with torch.no_grad():
        found = torchdoctor.sharpness(model, [{"x": X, "labels": Y}], nn.CrossEntropyLoss(), progress=False)
    assert found.samples == 40 and found.parameters == 18


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"radii": ()}, "radii"),
        ({"radii": (-0.1,)}, "radii"),
        ({"directions": 1}, "too few"),
        ({"batches": 0}, "at least 1"),
        ({"lr": 0.0}, "above 0"),
        ({"confidence": 95}, "between 0 and 1"),
        ({"loss_fn": nn.CrossEntropyLoss(reduction="none")}, r"shape \(16,\)"),
        ({"loader": []}, "gives no batch"),
        ({"model": nn.ReLU(), "loss_fn": lambda out, y: out.mean()}, "no parameter"),
        ({"loss_fn": lambda out, y: out.mean() * math.nan}, "is nan"),
        ({"loss_fn": lambda out, y: out.detach().mean()}, "does not depend"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, object], said: str) -> None:
    given = {"model": nn.Linear(5, 3), "loader": LOADER, "loss_fn": nn.CrossEntropyLoss(), "progress": False} | options
    with pytest.raises(UsageError, match=said):
        sharpness(**given)  # type: ignore[arg-type]


def test_the_picture() -> None:
    found = sharpness(network(), LOADER, nn.CrossEntropyLoss(), progress=False)
    drawing = found.plot()
    assert "noise of 20%" in drawing.layout.title.text
    assert len(drawing.data[0].x) == 4
    assert "plotly" in found._repr_html_()
    assert sharpness(network(), LOADER, nn.CrossEntropyLoss(), eigenvalues=False, progress=False).kind is None


def test_lanczos_and_intervals_by_known_values() -> None:
    matrix = torch.diag(torch.tensor([3.0, 3.0, -1.0, 0.5]))
    ends = find_extremes(lambda v: matrix @ v, torch.ones(4), 10, 1e-4)
    assert (ends.largest, ends.smallest) == pytest.approx((3, -1), rel=1e-5)
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)
    assert median_interval([float(i) for i in range(1, 11)]) == (2.0, 9.0)
