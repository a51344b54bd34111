"""The whole state of a training as fingerprints by name, to see what a checkpoint brings back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.repeats.module_trace import mark_of

WEIGHTS, BUFFERS, OPTIMIZER, SCHEDULE, SCALER, RANDOM = (
    "weights",
    "buffers",
    "optimizer state",
    "schedule",
    "gradient scaler",
    "random state",
)
State = dict[str, dict[str, Any]]
NOT_STATE = ("_step_count", "_get_lr_called_within_step", "_is_initial")
"""Of a scheduler: by which it warns, and no more."""


def marks_of_state(bench: Bench) -> State:
    model = bench.model
    state: State = {
        WEIGHTS: {clean(n): mark_of(p) for n, p in model.named_parameters()},
        BUFFERS: {clean(n): mark_of(b) for n, b in model.named_buffers()},
        OPTIMIZER: {},
        SCHEDULE: {},
        SCALER: {},
        RANDOM: _random(),
    }
    names = {id(p): clean(n) for n, p in model.named_parameters()}
    for number, optimizer in enumerate(bench.optimizers):
        prefix = f"{number}." if len(bench.optimizers) > 1 else ""
        for parameter, entries in optimizer.state.items():
            name = names.get(id(parameter), "a parameter outside of the model")
            state[OPTIMIZER] |= {f"{prefix}{k} of {name}": _mark(v) for k, v in entries.items()}
        for group, settings in enumerate(optimizer.param_groups):
            state[OPTIMIZER] |= {
                f"{prefix}{k} of group {group}": _mark(v) for k, v in settings.items() if k != "params"
            }
    for number, scheduler in enumerate(bench.schedulers):
        prefix = f"{number}." if len(bench.schedulers) > 1 else ""
        state[SCHEDULE] |= {f"{prefix}{k}": v for k, v in _flat(scheduler.state_dict())}
    for number, scaler in enumerate(bench.scalers):
        state[SCALER] |= {f"{number}.{k}": v for k, v in _flat(scaler.state_dict())}
    return state


def differing(one: State, other: State) -> dict[str, list[str]]:
    """Names by kind; what one of them lacks differs."""
    found = {
        kind: [n for n in {**marks, **other[kind]} if marks.get(n, _NONE) != other[kind].get(n, _NONE)]
        for kind, marks in one.items()
    }
    return {kind: names for kind, names in found.items() if names}


_NONE = object()


def tensor_attributes(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that modules keep and state_dict does not: plain attributes, and buffers that are not to be saved."""
    for prefix, module in model.named_modules():
        name = clean(prefix)
        for key, value in vars(module).items():
            if isinstance(value, Tensor):
                yield f"{name}.{key}".lstrip("."), value
        for key in module._non_persistent_buffers_set:
            value = module._buffers.get(key)
            if value is not None:
                yield f"{name}.{key}".lstrip("."), value


def _random() -> dict[str, Any]:
    return {
        "torch": mark_of(torch.random.get_rng_state()),
        "python": hash(random.getstate()),
        "numpy": hash(np.random.get_state()[1].tobytes()),  # type: ignore[index,union-attr]
    }


def _flat(state: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in state.items():
        if key in NOT_STATE:
            continue
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            for number, inner in enumerate(value):
                yield from _flat(inner, f"{prefix}{key}.{number}.")
        else:
            yield f"{prefix}{key}", _mark(value)


def _mark(value: Any) -> Any:
    """A step count may be a number or a tensor of it, and on any device."""
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 else mark_of(value)
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(map(_mark, value))
    return value if isinstance(value, str | None) else repr(type(value))
