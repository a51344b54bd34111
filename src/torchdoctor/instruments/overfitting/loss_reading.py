"""One look at a loss: its value, the calls of torch's loss functions behind it, and what went into the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from torchdoctor.instruments.one_batch import tensors_in
from torchdoctor.instruments.overfitting.loss_floor import floor_of, guess_of
from torchdoctor.instruments.subject import TARGET_KEYS, Subject
from torchdoctor.probes.loss_calls import FUNCTIONS, LossCall, read_call

_LOSSES = {getattr(functional, name): name for name in FUNCTIONS if hasattr(functional, name)}
IGNORED = -100
"""What torch's losses leave out unless told otherwise."""
SAME = 1e-3
"""Relative difference up to which two losses are one, in half precision too."""


class Listening(TorchFunctionMode):
    """Notes the calls of torch's loss functions, wherever they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[LossCall] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = _LOSSES.get(func)
        if name is not None and isinstance(result, Tensor):
            call = read_call(name, func, args, kwargs or {}, result)
            if call is not None:
                self.calls.append(call)
        return result


@dataclass(frozen=True)
class Reading:
    loss: Tensor
    calls: list[LossCall]
    inputs: list[Tensor]
    """tensors that the model was called with, the target left out; those of its last call"""
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    outputs: Any

    @property
    def value(self) -> float:
        return float(self.loss.detach())

    @property
    def total(self) -> float:
        """Of all calls; a loss that was not reduced counts with its mean."""
        return sum(float(c.result.detach().float().mean()) for c in self.calls)

    @property
    def call(self) -> LossCall | None:
        """Where there is only one."""
        return self.calls[0] if len(self.calls) == 1 else None


def answers_right(reading: Reading) -> bool:
    """Whether every class is named right, by the one loss call there is."""
    call = reading.call
    if call is None or not call.indices or call.target is None or call.class_dim is None:
        return False
    ignored = call.options.get("ignore_index", IGNORED)
    counted = call.target != ignored
    named = call.input.detach().argmax(call.class_dim)
    return bool(counted.any()) and bool((named == call.target)[counted].all())


def read_loss(subject: Subject, batch: Any) -> Reading:
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    given: list[Any] = []
    hooks: list[RemovableHandle] = []
    # Scripted modules take no hooks; without them, what a loss is of is still heard.
    if not isinstance(subject.model, torch.jit.ScriptModule):
        model = subject.model
        hooks += [
            model.register_forward_pre_hook(lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True),
            model.register_forward_hook(lambda _, args, result: given.append(result)),
        ]
    try:
        with Listening() as listening:
            loss = subject.loss(batch)
    finally:
        for hook in hooks:
            hook.remove()
    arguments = seen[-1] if seen else ((), {})
    named = {k: v for k, v in arguments[1].items() if k not in TARGET_KEYS}
    inputs = [t for _, t in tensors_in([list(arguments[0]), named]) if t.dim() > 0]
    return Reading(loss, listening.calls, inputs, arguments, given[-1] if given else None)


@dataclass(frozen=True)
class Floor:
    """The least that the loss can be, as far as it is known."""

    value: float
    known: bool
    words: str
    guess: float | None
    """the loss of one answer for all samples"""
    factor: float = 1.0
    """of the loss over torch's own loss functions; negative where the sign is flipped"""


def floor_of_loss(first: Reading, later: Reading | None = None) -> Floor:
    """From the calls behind a loss, where the loss is their sum, or that times a number or plus one: two looks at
    different weights tell."""
    relation = _relation(first, later)
    floors, guesses = [floor_of(c) for c in first.calls], [guess_of(c) for c in first.calls]
    if not first.calls:
        return Floor(0.0, False, "assumed; the loss is not one of torch's own", None)
    names = " + ".join(dict.fromkeys(c.function for c in first.calls))
    if relation is None:
        return Floor(0.0, False, f"assumed; the loss is {names} and something else", None)
    factor, offset = relation
    if any(f is None for f in floors):
        return Floor(0.0, False, f"assumed; that of {names} is not known", None, factor)
    value = factor * sum(f for f in floors if f is not None) + offset
    guess = None if any(g is None for g in guesses) else factor * sum(g for g in guesses if g is not None) + offset
    return Floor(value, True, _words(first.calls, names, value), guess, factor)


def _words(calls: list[LossCall], names: str, value: float) -> str:
    smoothing = next((s for c in calls if (s := c.options.get("label_smoothing"))), None)
    if smoothing:
        return f"{names} with label_smoothing={smoothing:g}: the entropy of the smoothed target"
    if value > 0:
        return f"{names} on soft targets: their entropy"
    return names


def _relation(first: Reading, later: Reading | None) -> tuple[float, float] | None:
    """(factor, offset) with loss = factor * sum of calls + offset."""
    if not first.calls:
        return None
    one, sum_one = first.value, first.total
    if math.isclose(one, sum_one, rel_tol=SAME, abs_tol=1e-6):
        return 1.0, 0.0
    if later is None or len(later.calls) != len(first.calls):
        return None
    two, sum_two = later.value, later.total
    moved = abs(sum_two - sum_one)
    if moved <= SAME * SAME * abs(sum_one):
        return None
    factor = (two - one) / (sum_two - sum_one)
    if math.isclose(factor * sum_one, one, rel_tol=0.01, abs_tol=1e-6):
        return one / sum_one, 0.0
    return (1.0, one - sum_one) if abs(factor - 1) < 0.01 else None


@torch.no_grad()
def groups_of_equal_inputs(reading: Reading) -> Tensor | None:
    """A number for each sample, the same for samples with the same inputs; None where the inputs have no common
    length."""
    inputs = [t for t in reading.inputs if not t.is_sparse]
    lengths = {len(t) for t in inputs}
    if len(lengths) != 1 or not (count := lengths.pop()):
        return None
    rows = [t.detach().cpu().contiguous().reshape(count, -1) for t in inputs]
    rows = [r.float() if r.dtype in (torch.bfloat16, torch.float16) else r for r in rows]
    numbers: dict[bytes, int] = {}
    keys = (b"".join(r[i].numpy().tobytes() for r in rows) for i in range(count))
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys], device="cpu")


def tokens_in(reading: Reading) -> Tensor | None:
    return next((t for t in reading.inputs if not t.is_floating_point() and t.dim() == 2), None)


def groups_of_equal_beginnings(reading: Reading) -> Tensor | None:
    """(samples, places): the same number where all tokens up to that place are the same; None for other inputs."""
    tokens = tokens_in(reading)
    if tokens is None:
        return None
    numbers: dict[tuple[int, ...], int] = {}
    rows = tokens.cpu().tolist()
    return torch.tensor(
        [[numbers.setdefault(tuple(row[: i + 1]), len(numbers)) for i in range(len(row))] for row in rows],
        device="cpu",
    )
