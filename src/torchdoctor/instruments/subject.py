"""A model and the way from a batch to its loss, whatever the batch is made of."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.errors import UsageError

StepFn = Callable[[nn.Module, Any], Tensor]
TARGET_KEYS = ("labels", "label", "targets", "target", "y")
"""Under which a mapping or a dataclass holds what is to be predicted."""


class Subject:
    """`loss_fn(outputs, target)` for batches of inputs and a target, or `step_fn(model, batch)` for any others; with
    neither, the model itself gives its loss, as those of Hugging Face do. Batches are moved to the model's device."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., Any] | None = None,
        *,
        step_fn: StepFn | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UsageError(f"model is a {type(model).__name__}, not a torch.nn.Module")
        if loss_fn is not None and step_fn is not None:
            raise UsageError("give loss_fn(outputs, target) or step_fn(model, batch), not both")
        self.model = model
        self.loss_fn = loss_fn
        self.step_fn = step_fn
        self._autocast = autocast

    @property
    def called(self) -> nn.Module:
        """What is called with a batch's inputs: the model."""
        return self.model

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    def loss(self, batch: Any) -> Tensor:
        """Of this batch, as one number with its graph."""
        batch = to_device(batch, self.device)
        with self._precision():
            loss = self.step_fn(self.model, batch) if self.step_fn is not None else self._loss(batch)
        if isinstance(loss, Mapping) and isinstance(loss.get("loss"), Tensor):
            loss = loss["loss"]
        if not isinstance(loss, Tensor):
            raise UsageError(f"the loss is a {type(loss).__name__}, not a tensor; return the loss itself")
        if loss.numel() != 1:
            raise UsageError(
                f"the loss has shape {tuple(loss.shape)}; it has to be one number: reduction='mean' or loss.mean()"
            )
        if not loss.is_floating_point():
            raise UsageError(f"the loss is of type {loss.dtype}; it has to be a floating-point number")
        return loss.reshape(())

    def outputs(self, batch: Any) -> Any:
        """What the model gives for this batch; with a step_fn, what it gave in its last call there."""
        batch = to_device(batch, self.device)
        with self._precision():
            if self.step_fn is None:
                return self._outputs(batch)
            given: list[Any] = []
            handle = self.model.register_forward_hook(lambda _module, _args, result: given.append(result))
            try:
                self.step_fn(self.model, batch)
            finally:
                handle.remove()
        if not given:
            raise UsageError("step_fn does not call the model; what it gives cannot be seen")
        return given[-1]

    def target(self, batch: Any) -> Any:
        """What is to be predicted; None where that is not known."""
        return None if self.step_fn is not None else to_device(split(batch)[2], self.device)

    def _loss(self, batch: Any) -> Any:
        if self.loss_fn is None:
            result = self._outputs(batch, with_target=True)
            loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
            if loss is None:
                raise UsageError(
                    "the model gives no loss by itself; hand over loss_fn(outputs, target) or step_fn(model, batch)"
                )
            return loss
        target = split(batch)[2]
        return self.loss_fn(logits_of(self._outputs(batch)), target)

    def _outputs(self, batch: Any, with_target: bool = False) -> Any:
        args, kwargs, target = split(batch)
        if with_target and isinstance(batch, Mapping):
            kwargs = dict(batch)
        elif with_target and not any(arg is target for arg in args):
            args = (*args, target)
        elif kwargs and len(kwargs) == 1 and not _takes(self.model, *kwargs):
            args, kwargs = tuple(kwargs.values()), {}
        if with_target and not _accepts(self.model, args, kwargs):
            raise UsageError(
                "the model takes no target, so it gives no loss by itself; hand over loss_fn(outputs, target) or "
                "step_fn(model, batch)"
            )
        return self.model(*args, **kwargs)

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self._autocast)


def logits_of(outputs: Any) -> Any:
    """The tensor that a loss takes, of models that give more than one."""
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    return getattr(outputs, "logits", outputs)


def split(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Positional inputs, inputs by name, and the target. A batch of inputs alone is its own target."""
    if isinstance(batch, Tensor):
        return (batch,), {}, batch
    if isinstance(batch, Mapping) or dataclasses.is_dataclass(batch):
        named = dict(batch) if isinstance(batch, Mapping) else fields_of(batch)
        key = next((k for k in TARGET_KEYS if k in named), None)
        if key is None:
            raise UsageError(
                f"a batch holds {', '.join(map(str, named))}, and none of these is known to be the target "
                f"({', '.join(TARGET_KEYS)}); hand over step_fn(model, batch)"
            )
        return (), {k: v for k, v in named.items() if k != key}, named[key]
    if isinstance(batch, list | tuple) and len(batch) == 1:
        return (batch[0],), {}, batch[0]
    if isinstance(batch, list | tuple) and batch:
        return tuple(batch[:-1]), {}, batch[-1]
    raise UsageError(
        f"a batch is a {type(batch).__name__}; hand over step_fn(model, batch) for what is to be done with it"
    )


def to_device(value: Any, device: torch.device) -> Any:
    """The same with its tensors there; what they are in stays of its type."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        moved = {k: to_device(v, device) for k, v in value.items()}
        return moved if type(value) is dict else _like(value, moved)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(v, device) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(v, device) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{k: to_device(v, device) for k, v in fields_of(value).items()})
    return value


def fields_of(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def _like(value: Mapping[Any, Any], moved: dict[Any, Any]) -> Any:
    try:
        return type(value)(moved)  # type: ignore[call-arg]
    except TypeError:
        return moved


def _accepts(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:
        # There is no signature to be read.
        return True
    return True


def _takes(model: nn.Module, *names: str) -> bool:
    try:
        known = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return False
    return all(name in known for name in names) or any(p.kind is p.VAR_KEYWORD for p in known.values())
