"""What is looked at stays as it was: weights, gradients, modes, batches, random numbers."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdoctor
from seen import CLASSES, LABELS, PICTURES, ByHand, InPlace, convolutions

USES: dict[str, Callable[[nn.Module, Any], Any]] = {
    "evaluation": lambda m, b: torchdoctor.evaluate(m, [b], nn.CrossEntropyLoss(), progress=False),
    "mistakes": lambda m, b: torchdoctor.worst_mistakes(m, [b], nn.CrossEntropyLoss(), progress=False),
    "saliency": lambda m, b: torchdoctor.saliency(m, b, sample=2, method="smooth"),
    "integrated": lambda m, b: torchdoctor.saliency(m, b, sample=2, method="integrated", steps=4),
    "called": lambda m, b: torchdoctor.saliency(m, b, sample=2, call=lambda model, batch: model(batch[0].mul_(2))),
    "attention": torchdoctor.attention_maps,
}


@pytest.mark.parametrize("name", USES)
def test_nothing_is_changed(name: str) -> None:
    attends = name == "attention"
    model = InPlace(ByHand(False)) if attends else InPlace(convolutions())
    batch = (torch.randn(8, 6, 8), LABELS) if attends else (PICTURES.clone(), CLASSES.clone())
    given = copy.deepcopy(batch)
    model.train()
    parameters = list(model.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])
    parameters[1].requires_grad_(False)
    state = copy.deepcopy(model.state_dict())
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    draws = torch.random.get_rng_state(), random.getstate()
    USES[name](model, batch)
    assert all(torch.equal(now, before) for now, before in zip(batch, given, strict=True))
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in state.items())
    assert all(m.training for m in model.modules())
    assert [p.grad is not None for p in parameters] == [True] + [False] * (len(parameters) - 1)
    assert torch.equal(parameters[0].grad, torch.ones_like(parameters[0])) and not parameters[1].requires_grad
    assert torch.equal(torch.random.get_rng_state(), draws[0]) and random.getstate() == draws[1]
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == hooks
