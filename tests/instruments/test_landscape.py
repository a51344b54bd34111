"""Landscapes: a bowl and a way between two checkpoints whose losses are known, and nothing left behind."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.errors import UsageError
from torchdoctor.instruments.weight_space.landscape import landscape
from torchdoctor.instruments.weight_space.terrain import count_dips

X, Y = torch.randn(40, 5, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3
LOADER = DataLoader(TensorDataset(X, Y), 16)


class Point(nn.Module):
    """Its loss is any function of one vector of weights."""

    def __init__(self, *weights: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weights))


def mapped(model: nn.Module, function, **options):  # type: ignore[no-untyped-def]
    return landscape(model, [torch.ones(2)], step_fn=lambda m, _: function(m.weight), progress=False, **options)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))
    model(X + seed)
    return model.eval()


def state(*weights: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.tensor(weights)}


def test_the_way_between_two_checkpoints_is_a_parabola() -> None:
    found = mapped(Point(9.0, 9.0), lambda w: w.square().sum(), between=(state(1.0, 0.0), state(-1.0, 2.0)), points=13)
    for a, loss in zip(found.x, found.losses, strict=True):
        assert loss == pytest.approx((1 - 2 * a) ** 2 + (2 * a) ** 2, rel=1e-5)
    assert 0.0 in found.x and 1.0 in found.x and min(found.x) == -0.25 and max(found.x) == 1.25
    assert found.barrier == 0 and "No barrier" in str(found)


def test_a_slope_that_is_first_flat_is_no_barrier() -> None:
    found = mapped(Point(0.0), lambda w: 2 - w.pow(4).sum(), between=(state(0.0), state(1.0)), span=0)
    assert found.barrier > 0.3 and "No barrier" in str(found) and "falls all the way" in str(found)


def test_a_double_well_has_a_barrier() -> None:
    found = mapped(Point(0.0), lambda w: (w**2 - 1).square().sum() + 0.1, between=(state(-1.0), state(1.0)), span=0)
    assert found.barrier == pytest.approx(1.0, rel=1e-5)
    assert found.x[0] == 0 and found.x[-1] == 1
    assert "barrier of 1 lies between" in found.plot().layout.title.text
    assert "highest between them 1.1, at 0.50 of the way" in str(found)


def test_a_round_bowl_along_any_direction() -> None:
    found = mapped(Point(3.0, 4.0), lambda w: (w - torch.tensor([3.0, 4.0])).square().sum() + 1, span=0.5, points=10)
    assert len(found.x) == 11 and found.x[5] == 0
    assert found.losses == pytest.approx([1 + 25 * a**2 for a in found.x], rel=1e-5)
    assert "bottom of a bowl" in str(found) and "doubles 20% of" in str(found)


def test_a_place_beside_the_bottom_is_not_called_the_bottom() -> None:
    """The loss rises from 2.27 to 2.6, and the weights have 2.3."""
    found = mapped(Point(1.0), lambda w: 2.27 + 0.03 * ((w - 2) ** 2).sum(), span=2.0, points=21)
    assert found.verdict.startswith("The weights lie near the bottom along this random direction")
    assert "2.27" in found.verdict and "2.3 at the weights" in found.verdict


def test_what_is_not_finite_has_neither_doubled_nor_a_range() -> None:
    found = mapped(Point(1.0, 1.0), lambda w: (w - 2).log().sum(), points=5)
    assert "not finite at 5 of 5 points" in str(found)
    assert "doubles" not in str(found) and "Inf" not in str(found)


def test_lower_ground_and_a_plain_are_told() -> None:
    assert "Not at the bottom" in str(mapped(Point(1.0, 2.0), lambda w: w.square().sum()))
    assert "Flat" in str(mapped(Point(1.0, 2.0), lambda w: 0 * w.sum() + 3))


def test_a_plane_and_its_contour() -> None:
    found = torchdoctor.landscape(network(), LOADER, nn.CrossEntropyLoss(), dims=2, points=5, span=0.4, progress=False)
    assert np.shape(found.losses) == (5, 5) and found.y == found.x
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(network()(X), Y))
    assert found.loss == pytest.approx(expected, rel=1e-5)
    drawing = found.plot()
    assert drawing.data[0].type == "contour" and drawing.layout.title.text.replace("<br>", " ") == found.verdict
    assert "5 x 5 points" in str(found)


def test_a_plane_between_two_checkpoints_has_them_on_its_axis() -> None:
    a, b = network(1), network(2)
    line = landscape(network(), LOADER, nn.CrossEntropyLoss(), between=(a, b), points=7, progress=False)
    plane = landscape(network(), LOADER, nn.CrossEntropyLoss(), between=(a, b), points=7, dims=2, progress=False)
    assert plane.line == pytest.approx(np.asarray(line.losses), rel=1e-5)
    assert len(plane.plot().data[1].x) == 2


def test_batch_norm_is_interpolated_and_said_or_taken_anew() -> None:
    a, b = network(1), network(2)
    found = landscape(network(), LOADER, nn.CrossEntropyLoss(), between=(a, b), points=5, span=0, progress=False)
    for model, loss in ((a, found.losses[0]), (b, found.losses[-1])):
        with torch.no_grad():
            assert loss == pytest.approx(float(nn.functional.cross_entropy(model(X), Y)), rel=1e-5)
    assert "1 batch-norm layer were interpolated" in str(found)
    options = {"batch_norm": "recompute", "between": (a, b), "points": 5, "span": 0, "progress": False}
    anew = landscape(network(), [(X, Y)], nn.CrossEntropyLoss(), **options)  # type: ignore[arg-type]
    trained = network(1)
    trained[1].train()
    trained[1].momentum = 1.0
    with torch.no_grad():
        trained(X)
        assert anew.losses[0] == pytest.approx(float(nn.functional.cross_entropy(trained.eval()(X), Y)), rel=1e-4)
    assert "taken anew" in str(anew)


def test_checkpoints_from_files(tmp_path: Path) -> None:
    a, b = network(1), network(2)
    expected = landscape(network(), LOADER, nn.CrossEntropyLoss(), between=(a, b), points=3, progress=False)
    prefixed = {f"module.{k}": v for k, v in a.state_dict().items()}
    torch.save({"model_state_dict": prefixed, "epoch": 3}, tmp_path / "a.pt")
    save_file(b.state_dict(), tmp_path / "b.safetensors")
    found = landscape(
        network(),
        LOADER,
        nn.CrossEntropyLoss(),
        between=(tmp_path / "a.pt", str(tmp_path / "b.safetensors")),
        points=3,
        progress=False,
    )
    assert found.losses == expected.losses


class Trap:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (exec, ("raise SystemExit('unpickled')",))


def test_a_file_is_never_unpickled(tmp_path: Path) -> None:
    torch.save({"state_dict": Trap()}, tmp_path / "bad.pt")
    with pytest.raises(UsageError, match="weights alone"):
        landscape(network(), LOADER, nn.CrossEntropyLoss(), between=(tmp_path / "bad.pt", network()))


def test_nothing_is_left_behind() -> None:
    model = network().train()
    nn.functional.cross_entropy(model(X), Y).backward()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    grads = [p.grad.clone() for p in model.parameters()]
    ends = network(1), network(2)
    drawn = torch.random.get_rng_state()
    for options in ({}, {"between": ends, "batch_norm": "recompute"}, {"training": True}):
        landscape(model, LOADER, nn.CrossEntropyLoss(), points=3, progress=False, **options)  # type: ignore[arg-type]
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in before.items())
    assert all(torch.equal(g, p.grad) for g, p in zip(grads, model.parameters(), strict=True))
    assert torch.equal(drawn, torch.random.get_rng_state())
    assert model.training and model[1].training and model[1].momentum == 0.1


def test_losses_that_are_not_finite_are_counted() -> None:
    found = mapped(Point(0.0), lambda w: 1 / (w.sum() - 0.5).abs(), between=(state(0.0), state(1.0)), span=0, points=5)
    assert math.isinf(found.barrier) and "not finite at 1 of 5" in str(found) and "wall" in str(found)
    assert found.to_dict()["losses"][2] is None
    assert found.plot().data[0].y[2] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dims": 3}, "dims is 3"),
        ({"points": 2}, "at least 3"),
        ({"span": 0.0}, "above 0"),
        ({"between": ("only.pt",)}, "pair"),
        ({"between": ("none.pt", "none.pt")}, "no file"),
        ({"between": ({}, {})}, "lacks 2 of the model's 2"),
        ({"between": (nn.Linear(4, 3), nn.Linear(5, 3))}, r"shape \(3, 4\) in the first"),
        ({"batch_norm": "ignore"}, "recompute"),
        ({"loader": []}, "gives no batch"),
        ({"loss_fn": nn.CrossEntropyLoss(reduction="none")}, r"shape \(16,\)"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, object], said: str) -> None:
    given = {"model": nn.Linear(5, 3), "loader": LOADER, "loss_fn": nn.CrossEntropyLoss(), "progress": False} | options
    with pytest.raises(UsageError, match=said):
        landscape(**given)  # type: ignore[arg-type]


def test_dips_are_counted() -> None:
    assert count_dips(np.array([3.0, 2.0, 1.0, 2.0, 3.0])) == 1
    assert count_dips(np.array([3.0, 1.0, 2.0, 1.0, 3.0])) == 2
    assert count_dips(np.array([1.0, 1.001, 1.0, 1.001])) == 1
