from __future__ import annotations

import torch
from torch import nn

from torchdoctor.probes.graph import walk
from torchdoctor.probes.work import Work, work_of


def work(model: nn.Module, x: torch.Tensor) -> Work:
    graph = walk(model(x).square().mean())
    assert graph is not None
    counted = Work()
    work_of(graph, counted)
    return counted


def test_matrix_products() -> None:
    counted = work(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.randn(32, 8))
    assert counted.flops == 3 * 2 * 32 * (8 * 16 + 16 * 4)
    assert sorted(counted.outputs) == [32 * 4, 32 * 16]
    assert counted.operations == 5 and len(counted.parameters) == 4
    assert counted.pointwise_bytes == 5 * 4 * (32 * 16 + 32 * 4)
    assert counted.dtype is torch.float32 and not counted.opaque


def test_convolutions() -> None:
    counted = work(nn.Conv2d(3, 16, 3), torch.randn(2, 3, 8, 8))
    assert counted.flops == 3 * 2 * (2 * 16 * 6 * 6) * (3 * 3 * 3)


def test_attention() -> None:
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    x = torch.randn(2, 4, 10, 8, requires_grad=True)
    assert work(Attention(), x).flops == 3 * 4 * (2 * 4 * 10 * 8) * 10


def test_a_loop_has_many_operations_for_few_parameters() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(50):
                x = torch.tanh(self.cell(x))
            return x

    counted = work(Loop(), torch.randn(3, 4))
    assert counted.operations >= 100 and len(counted.parameters) == 2
