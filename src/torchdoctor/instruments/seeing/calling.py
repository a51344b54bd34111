"""A model is called with a batch, and what it is called with is seen: tensors by name, as they come in."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from torchdoctor.errors import UsageError
from torchdoctor.instruments.one_batch import tensors_in
from torchdoctor.instruments.subject import Subject, copied, to_device

Call = Callable[[nn.Module, Any], Any]
"""From a model and a batch to what the model gives."""


class _Called(Subject):
    """Called as the user says."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__(model)
        self._call = call

    def outputs(self, batch: Any) -> Any:
        return self._call(self.model, copied(to_device(batch, self.device)))


def make_subject(model: nn.Module, call: Call | None) -> Subject:
    return Subject(model) if call is None else _Called(model, call)


@contextlib.contextmanager
def given_to(subject: Subject, given: dict[str, Tensor], begin: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Inside, `given` holds the tensors of the model's last call, by the names of its parameters, and the model gets
    copies: it may work in place. `begin` is called before each: one without the target may fail and be made again with
    it."""

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        begin()
        given.clear()
        given.update(name_arguments(module, args, kwargs))
        return copied((args, kwargs))

    handle = subject.called.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def name_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
    try:
        named = dict(inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        named = {**{f"[{i}]": value for i, value in enumerate(args)}, **kwargs}
    for name, value in list(named.items()):
        if name in ("args", "kwargs") and isinstance(value, dict | tuple):
            del named[name]
            named |= value if isinstance(value, dict) else {f"[{i}]": v for i, v in enumerate(value)}
    return dict(tensors_in(named))


def check_time_first(outputs: Tensor, name: str, tensor: Tensor) -> None:
    """Of an input with time in its first axis, a row is no sample."""
    if len(tensor) > 1 and outputs.dim() and len(outputs) != len(tensor) and len(outputs) in tensor.shape[1:]:
        raise UsageError(
            f"{name or 'the input'} has shape {tuple(tensor.shape)} and the outputs {tuple(outputs.shape)}: the first "
            f"axis of the input is not the {len(outputs)} samples. Wrap the model in one that takes samples first: "
            f"def forward(self, x): return self.model(x.transpose(0, {tensor.shape.index(len(outputs))}))"
        )


def check_sample(sample: int, samples: int) -> None:
    if not samples:
        raise UsageError("the batch holds no sample; hand over one that does")
    if not 0 <= sample < samples:
        raise UsageError(f"sample is {sample}; the batch holds {samples} (0 to {samples - 1})")
