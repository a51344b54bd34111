"""What is switched off does not count as asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchdoctor.probes.layers import is_instance_norm
from torchdoctor.probes.regularizers import dropout_share


@pytest.mark.parametrize(
    ("module", "share"),
    [
        (nn.Dropout(0.3), 0.3),
        (nn.Dropout2d(0.0), 0.0),
        (nn.LSTM(4, 4, num_layers=2, dropout=0.2), 0.2),
        (nn.LSTM(4, 4, num_layers=2), 0.0),
        (nn.MultiheadAttention(4, 2, dropout=0.1), 0.1),
        (nn.MultiheadAttention(4, 2), 0.0),
        (nn.Linear(4, 4), 0.0),
    ],
)
def test_the_share_that_is_dropped(module: nn.Module, share: float) -> None:
    assert dropout_share(module) == share


@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
def test_a_recurrent_net_of_one_layer_drops_nothing() -> None:
    assert dropout_share(nn.GRU(4, 4, num_layers=1, dropout=0.5)) == 0.0


@pytest.mark.parametrize(
    ("norm", "batch", "expected"),
    [
        (nn.InstanceNorm2d(8), 5, True),
        (nn.InstanceNorm2d(8, affine=True), 5, True),
        (nn.InstanceNorm2d(8, affine=True, track_running_stats=True), 5, True),
        (nn.InstanceNorm2d(8, affine=True), 1, True),
        (nn.BatchNorm2d(8), 5, False),
        (nn.BatchNorm2d(8), 1, False),
        (nn.BatchNorm2d(8, affine=False), 1, False),
        (nn.BatchNorm2d(8, track_running_stats=False), 1, False),
    ],
)
def test_instance_norm_is_told_from_batch_norm(norm: nn.Module, batch: int, expected: bool) -> None:
    output = norm(nn.Conv2d(3, 8, 3)(torch.randn(batch, 3, 8, 8)))
    waiting, found = [output.grad_fn], []
    while waiting:
        node = waiting.pop()
        if "BatchNorm" in node.name():
            found.append(is_instance_norm(node))
        waiting += [child for child, _ in node.next_functions if child is not None]
    assert found == [expected]
