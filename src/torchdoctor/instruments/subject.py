"""A model and the way from a batch to its loss, whatever the batch is made of."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
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
        _check_parameters(model)
        self.model = model
        self.loss_fn = loss_fn
        self.step_fn = step_fn
        self._autocast = autocast

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        """All modules that a loss runs through: the model, and those that a loss or a step is, belongs to or works with
        (a teacher beside the model). They can have parameters, buffers and counters of their own, and are put back with
        the model."""
        found = [self.model, *_behind(self.loss_fn), *_behind(self.step_fn)]
        return tuple({id(m): m for m in found if isinstance(m, nn.Module)}.values())

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
                return self._outputs(batch) if self.loss_fn is not None else self._outputs_beside_loss(batch)
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
        if self.step_fn is not None or (self.loss_fn is None and not _has_target(batch)):
            return None
        return to_device(split(batch)[2], self.device)

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
        if with_target:
            args, kwargs = _whole(batch)
            self._check_taken(args, kwargs)
        else:
            args, kwargs, _ = split(batch)
            if len(kwargs) == 1 and not _takes(self.model, *kwargs):
                args, kwargs = tuple(kwargs.values()), {}
        return self.model(*args, **kwargs)

    def _outputs_beside_loss(self, batch: Any) -> Any:
        """Of a model that gives its loss: without the target where it can do without. What an encoder and decoder
        predicts is made of it."""
        try:
            return self._outputs(batch)
        except (TypeError, ValueError):
            result = self._outputs(batch, with_target=True)
        return {k: v for k, v in result.items() if k != "loss"} if isinstance(result, Mapping) else result

    def _check_taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _accepts(self.model, args, kwargs):
            return
        unknown = [name for name in kwargs if name not in TARGET_KEYS and not _takes(self.model, name)]
        why = f"does not take {', '.join(unknown)} of the batch" if unknown else "takes no target"
        raise UsageError(
            f"the model {why}, so it gives no loss by itself; hand over loss_fn(outputs, target) or "
            "step_fn(model, batch)"
        )

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self._autocast)


def _check_parameters(model: nn.Module) -> None:
    parameters = list(model.parameters())
    if any(nn.parameter.is_lazy(p) for p in parameters):
        raise UsageError("the model has parameters without a shape yet; run one batch through it first")
    # Accelerate keeps weights that it brings in by a hook, layer by layer, on that device.
    offloaded = any(hasattr(m, "_hf_hook") for m in model.modules())
    if any(p.is_meta for p in parameters) and not offloaded:
        raise UsageError(
            "the model holds no numbers yet (device meta): call model.to_empty(device=...) and load weights first"
        )


def logits_of(outputs: Any) -> Any:
    """The tensor that a loss takes, of models that give more than one."""
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    return getattr(outputs, "logits", outputs)


def split(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Positional inputs, inputs by name, and the target. A batch of inputs alone is its own target."""
    if isinstance(batch, Tensor):
        return (batch,), {}, batch
    named = _named(batch)
    if named is not None:
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


def _whole(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All that is in it as arguments, for a model that compares by itself; inputs alone are not given twice."""
    named = _named(batch)
    if named is not None:
        return (), named
    args, _, target = split(batch)
    return (args, {}) if isinstance(batch, Tensor) or len(batch) == 1 else ((*args, target), {})


def _named(batch: Any) -> dict[str, Any] | None:
    """What a mapping or a dataclass holds, by name."""
    if isinstance(batch, Mapping):
        return dict(batch)
    return fields_of(batch) if dataclasses.is_dataclass(batch) and not isinstance(batch, type) else None


def _has_target(batch: Any) -> bool:
    named = _named(batch)
    return named is None or any(key in named for key in TARGET_KEYS)


def to_device(value: Any, device: torch.device) -> Any:
    return with_tensors(value, lambda tensor: tensor.to(device))


def copied(value: Any) -> Any:
    """For a model that works in place; a tensor that is there twice still is."""
    made: dict[int, Tensor] = {}
    return with_tensors(value, lambda tensor: made.setdefault(id(tensor), tensor.clone()))


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with other tensors; what they are in stays of its type."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        changed = {k: with_tensors(v, change) for k, v in value.items()}
        return changed if type(value) is dict else _like(value, changed)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(with_tensors(v, change) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(with_tensors(v, change) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _with_fields(value, change)
    return value


def _with_fields(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy without a call of __init__, which fields with init=False have no place in; frozen ones are set, too."""
    changed = copy.copy(value)
    for name, part in fields_of(value).items():
        object.__setattr__(changed, name, with_tensors(part, change))
    return changed


def fields_of(value: Any) -> dict[str, Any]:
    """Those that are set; one with init=False may not be."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}


def _like(value: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    try:
        return type(value)(changed)  # type: ignore[call-arg]
    except TypeError:
        return changed


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


def _behind(way: Any) -> list[Any]:
    """What a callable is, is bound to, was given beforehand, or refers to by name."""
    if isinstance(way, functools.partial):
        return [part for given in (way.func, *way.args, *way.keywords.values()) for part in (given, *_behind(given))]
    found = [way, getattr(way, "__self__", None)]
    function = getattr(way, "__func__", way)
    if isinstance(function, FunctionType):
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # a name that has no value yet
                found.append(cell.cell_contents)
        found += [function.__globals__.get(name) for name in function.__code__.co_names]
    return found
