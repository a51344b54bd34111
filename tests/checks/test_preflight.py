"""The whole list at once: quiet on sound trainings, and without a trace in what it was given."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from checks.programs import HEALTHY, Program
from torchdoctor import check
from torchdoctor.findings import Severity


def _bytes(value: Any) -> Any:
    """As plain, comparable data, to the bit."""
    if isinstance(value, Tensor):
        return (str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes())
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return {key: _bytes(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_bytes(part) for part in value]
    return value


def _state(program: Program, generator: torch.Generator, scheduler: Any) -> dict[str, Any]:
    model = program.model
    return {
        "weights and buffers": _bytes(dict(model.state_dict())),
        "identities": [id(p) for p in model.parameters()],
        "gradients": [_bytes(p.grad) for p in model.parameters()],
        "trainable": [p.requires_grad for p in model.parameters()],
        "modes": [m.training for m in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
        "optimizer": _bytes(program.optimizer.state_dict()),
        "scheduler": _bytes(scheduler.state_dict()),
        "torch": _bytes(torch.random.get_rng_state()),
        "numpy": _bytes(list(np.random.get_state())),
        "python": random.getstate(),
        "loader": _bytes(generator.get_state()),
        "settings": (torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()),
    }


def _worked(program: Program, generator: torch.Generator, scheduler: Any) -> None:
    """One update, so that there are gradients, moments and statistics to lose."""
    batch = next(iter(program.train))
    inputs, target = (batch[0], batch[-1])
    program.loss_fn(program.model(inputs), target).backward()
    program.optimizer.step()
    scheduler.step()
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    generator.manual_seed(6)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("kind", HEALTHY)
def test_a_sound_training_is_left_in_peace_and_as_it_was(kind: str, quick: bool) -> None:
    program = HEALTHY[kind]()
    generator = torch.Generator()
    program.train.generator = program.train.sampler.generator = generator
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(program.optimizer, 100)
    _worked(program, generator, scheduler)
    position = iter(program.train)
    next(position)
    before = _state(program, generator, scheduler)
    made = check(
        program.model,
        program.train,
        program.loss_fn,
        val_loader=program.val,
        optimizer=program.optimizer,
        scheduler=scheduler,
        quick=quick,
        progress=False,
    )
    after = _state(program, generator, scheduler)
    assert [name for name in before if before[name] != after[name]] == []
    assert len(list(position)) == len(program.train) - 1
    failed = [c for c in made.checked if c.outcome.passed is False and c.outcome.severity is not Severity.INFO]
    assert [(c.check.name, c.outcome.text) for c in failed] == []


def test_a_check_that_fails_leaves_no_trace_either() -> None:
    program = HEALTHY["mlp"]()
    scheduler, generator = torch.optim.lr_scheduler.ConstantLR(program.optimizer), torch.Generator()
    _worked(program, generator, scheduler)

    class Moody(nn.Module):
        """Raises from its third call on."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.calls = inner, [0]

        def forward(self, x: Tensor) -> Tensor:
            self.calls[0] += 1
            if self.calls[0] > 2:
                raise RuntimeError("no more")
            return self.inner(x)

    program.model = Moody(program.model)
    before = _state(program, generator, scheduler)
    made = check(program.model, program.train, program.loss_fn, optimizer=program.optimizer, progress=False)
    assert any("no more" in c.outcome.text for c in made.checked)
    assert before == _state(program, generator, scheduler)
