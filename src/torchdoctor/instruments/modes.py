"""A model in training or evaluation mode for a while, and afterwards every submodule as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from torchdoctor.errors import UsageError


@contextlib.contextmanager
def training(*models: nn.Module, grad: bool = True) -> Iterator[nn.Module]:
    """In training mode inside the block or the decorated function, and with gradients, also where it is called out of
    an evaluation; `grad=False` does without them (dropout at test time, for instance).

        with torchdoctor.training(model):
            loss_fn(model(x), y).backward()
    """
    with _mode(models, True), torch.set_grad_enabled(grad):
        yield models[0]


@contextlib.contextmanager
def evaluating(*models: nn.Module, grad: bool = False, inference: bool = False) -> Iterator[nn.Module]:
    """In evaluation mode inside the block or the decorated function: dropout off, batch norm on its running statistics,
    no graph. `grad=True` records one all the same, as saliency maps and attacks need; `inference=True` takes
    torch.inference_mode, which is faster, but nothing computed under it can be used in training.

        with torchdoctor.evaluating(model):
            accuracy = (model(x).argmax(1) == y).float().mean()

    Afterwards each submodule is back in its own mode: what was frozen in eval() before stays so, which a plain
    `model.train()` would undo.
    """
    if grad and inference:
        raise UsageError("grad=True and inference=True exclude each other: inference_mode records no graph")
    with _mode(models, False), torch.inference_mode() if inference else torch.set_grad_enabled(grad):
        yield models[0]


@contextlib.contextmanager
def _mode(models: tuple[nn.Module, ...], training: bool) -> Iterator[None]:
    if not models:
        raise UsageError("hand over the model, or several: training(model), evaluating(generator, critic)")
    for model in models:
        if not isinstance(model, nn.Module):
            raise UsageError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    before = [(module, module.training) for model in models for module in model.modules()]
    try:
        for model in models:
            model.train(training)
        yield
    finally:
        for module, was in before:
            module.training = was
