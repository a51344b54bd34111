"""A model may return its parts of the loss beside the loss: whichever backward goes through, the pass was training."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchdoctor


class Parts(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.kind = kind

    def forward(self, x: Tensor) -> object:
        error = (self.layer(x) - x).square()
        parts = OrderedDict(told=error.mean(), rows=error.mean(1), loss=error.sum(1).mean())
        return {"mapping": parts, "tuple": tuple(parts.values()), "nested": (error.mean(), {"all": [parts["loss"]]})}[
            self.kind
        ]


def loss_of(output: object) -> Tensor:
    while not isinstance(output, Tensor):
        output = list(output.values())[-1] if isinstance(output, dict) else output[-1]  # type: ignore[index]
    return output


@pytest.mark.parametrize("kind", ["mapping", "tuple", "nested"])
def test_a_pass_is_training_whichever_of_its_outputs_backward_goes_through(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    model = Parts(kind)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(torch.randn(64, 4), 8)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(3):
            for batch in loader:
                loss = loss_of(model(batch))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    run = doctor.run()
    assert run is not None
    assert run.phase is not None
    assert (run.phase.passes_unknown, run.phase.passes_validation) == (0, 0)
    assert run.phase.passes_train == 24
