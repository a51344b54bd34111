"""Statistics inside compiled graphs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from stats.oddities import build
from torchdoctor import stats

BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_graph_break_and_the_same_numbers(backend: str) -> None:
    def step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        c = a @ b
        return c.relu(), stats.summarize([a, b, c]), stats.activation(torch.sigmoid(c), "sigmoid")

    a, b = build((8, 6), torch.float32, 0, 1.0, 0.0, 0.1), build((6, 5), torch.float32, 1, 1.0, 0.0, 0.0)
    plain = step(a, b)
    compiled = torch.compile(step, backend=backend, fullgraph=True)(a, b)
    for want, got in zip(plain, compiled, strict=True):
        assert torch.allclose(want, got, equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_flow_past_a_measured_activation(backend: str) -> None:
    class Measured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.layer(x))
            self.seen.copy_(stats.activation(y, "tanh"))
            return y.sum()

    torch.manual_seed(0)
    model = Measured()
    x = build((3, 6), torch.float32, 2, 1.0, 0.0, 0.0)
    model(x).backward()
    seen, gradient = model.seen.clone(), model.layer.weight.grad.clone()  # type: ignore[union-attr]
    model.layer.weight.grad = None
    model.seen.zero_()
    torch.compile(model, backend=backend, fullgraph=True)(x).backward()
    assert torch.allclose(model.seen, seen) and torch.allclose(model.layer.weight.grad, gradient)  # type: ignore[arg-type]


def test_operators_obey_torchs_rules_for_operators() -> None:
    tensors = [build((3, 4), torch.float32, 0, 1.0, 0.0, 0.0), build((2,), torch.bfloat16, 1, 1.0, 0.0, 0.0)]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.torchdoctor.summarize.default, (tensors,), test_utils=checks)
    torch.library.opcheck(torch.ops.torchdoctor.activation.default, (tensors[0], "tanh", -1), test_utils=checks)


def test_nothing_to_measure() -> None:
    assert torch.ops.torchdoctor.summarize([]).shape == (0, 8)
