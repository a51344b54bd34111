"""Which operators of a graph are layers of the network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchdoctor.probes.layers import multiplied_by


def operators(loss: Tensor) -> list[Any]:
    seen: dict[Any, None] = {}
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting += [below for below, _ in node.next_functions]
    return list(seen)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_gradients_that_are_differentiated_do_not_pass_for_features(times: int, bias: bool) -> None:
    """A differential equation: the graph holds the layers of the network, and those of its backward passes."""
    network = nn.Sequential(nn.Linear(2, 8, bias=bias), nn.Tanh(), nn.Linear(8, 1, bias=bias))
    x = torch.rand(32, 2, requires_grad=True)
    value = network(x)
    for _ in range(times):
        value = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
    loss = (value.square().sum(1) + network(x)[:, 0]).square().mean()
    for node in operators(loss):
        weight = multiplied_by(node)
        if weight is not None:
            flowing = getattr(node, "_saved_mat1", None)
            flowing = getattr(node, "_saved_self", None) if flowing is None else flowing
            assert flowing is None or flowing.shape[1] == weight.shape[1]
    assert {id(w) for w in map(multiplied_by, operators(loss)) if w is not None} >= {id(network[0].weight)}
