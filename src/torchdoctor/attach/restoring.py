"""Putting a process into the state that a capture holds: the values again, and models, optimizers and random states.

Nothing that the capture names is imported: a named tuple or a dataclass of the user's comes back as such only where the
process itself has one to show (`like`), else as a tuple or a plain namespace.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterable, Iterator, MutableMapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.attach.contents import DTYPES
from torchdoctor.attach.registry import Registry
from torchdoctor.errors import CaptureError
from torchdoctor.store.captured import ARRAY, DICT, FIELDS, FLOAT, LEFT_OUT, LIST, NONFINITE, TENSOR, TUPLE, Capture

NOT_HERE, OTHER_SHAPE = "is not in this process", "has another shape or type here"
SCALER_FIELDS = ("_scale", "_growth_tracker", "_init_scale", "_growth_factor", "_backoff_factor", "_growth_interval")
"""What a gradient scaler goes by; its `state_dict` would wait for the device."""
IMPLEMENTATION = ("params", "foreach", "fused", "capturable", "differentiable")
"""Of an optimizer's group: how its update is computed is the script's own matter."""
CUDA = re.compile(r"cuda:(\d{1,4})")
TWISTER = 624
"""Words of the Mersenne Twister; numpy reads beyond them if it is given a position beyond them."""
WITHOUT_NUMPY = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def read_tensor(capture: Capture, name: str) -> Tensor:
    raw = capture.read(name)
    if not raw.data.size:
        return torch.empty(raw.shape, dtype=DTYPES[raw.dtype])
    return torch.from_numpy(raw.data).view(DTYPES[raw.dtype]).reshape(raw.shape)


def rebuild(capture: Capture, node: dict[str, Any], like: Any = None, device: bool = False) -> Any:
    """The value that a node stands for; what was left out is None. `device` moves tensors to where they were."""
    kind = node["kind"]
    if kind == TENSOR:
        return _rebuild_tensor(capture, node, device)
    if kind == ARRAY:
        tensor = _read_once(capture, node["name"])
        return tensor if tensor.dtype in WITHOUT_NUMPY else tensor.numpy()
    if kind == FLOAT:
        return NONFINITE[node["value"]]
    if kind == LEFT_OUT:
        return None
    if kind not in (LIST, TUPLE, DICT, FIELDS):
        return node["value"]
    keys = node.get("keys") or list(range(len(node["items"])))
    items = [rebuild(capture, n, part, device) for n, part in zip(node["items"], _parts(like, kind, keys), strict=True)]
    if kind in (LIST, TUPLE):
        return items if kind == LIST else tuple(items)
    return _rebuild_dict(keys, items, like) if kind == DICT else _rebuild_fields(node["type"], keys, items, like)


def _read_once(capture: Capture, name: str) -> Tensor:
    if name not in capture.rebuilt:
        capture.rebuilt[name] = read_tensor(capture, name)
    return capture.rebuilt[name].detach()


def _rebuild_tensor(capture: Capture, node: dict[str, Any], device: bool) -> Tensor:
    tensor = _read_once(capture, node["name"])
    match = CUDA.fullmatch(str(node.get("device")))
    if device and match is not None and int(match[1]) < torch.cuda.device_count():
        tensor = tensor.to(match[0])
    trains = bool(node.get("requires_grad")) and (tensor.is_floating_point() or tensor.is_complex())
    return tensor.requires_grad_(trains)


def _parts(like: Any, kind: str, keys: list[Any]) -> Iterator[Any]:
    for key in keys:
        try:
            yield getattr(like, key) if kind == FIELDS else like[key]
        except (AttributeError, TypeError, LookupError):
            yield None


def _rebuild_dict(keys: list[Any], items: list[Any], like: Any) -> Any:
    values = dict(zip(keys, items, strict=True))
    if type(like) is dict or not isinstance(like, MutableMapping) or set(like) != set(keys):
        return values
    same = copy.copy(like)
    for key, value in values.items():
        same[key] = value
    return same


def _rebuild_fields(name: str, keys: list[str], items: list[Any], like: Any) -> Any:
    known = like is not None and type(like).__qualname__ == name.rpartition(".")[2]
    if known and isinstance(like, tuple):
        return type(like)(*items)
    if known:
        same = copy.copy(like)
        for key, item in zip(keys, items, strict=True):
            object.__setattr__(same, key, item)
        return same
    return SimpleNamespace(**dict(zip(keys, items, strict=True)))


def restore(capture: Capture, registry: Registry, scalers: Iterable[Any] = (), other_types: bool = False) -> list[str]:
    """Parameters, buffers, optimizers, scalers and random states as captured; gives what could not be restored.
    `other_types`: numbers of another type than here are converted. Optimizers are left as they are where the models are
    others than those of the capture."""
    problems = list(_restore_models(capture, registry, other_types))
    if not is_another(problems):
        problems += _restore_optimizers(capture, registry, other_types)
    problems += _restore_scalers(capture, list(scalers))
    restore_random(capture)
    return problems


def is_another(problems: list[str]) -> bool:
    """The capture is of other models than those in this process."""
    return any(NOT_HERE in problem or OTHER_SHAPE in problem for problem in problems)


def named_buffers(registry: Registry) -> Iterator[tuple[str, Tensor]]:
    for label, model in registry.live_models():
        for name, buffer in model.named_buffers():
            yield f"{label}.{name}", buffer


def _restore_models(capture: Capture, registry: Registry, other_types: bool) -> Iterator[str]:
    with torch.no_grad():
        for key, here in (("parameters", dict(registry.parameters())), ("buffers", dict(named_buffers(registry)))):
            captured = capture.document[key]
            for name in here.keys() - captured.keys() if captured else ():
                yield f"{name} is not in the capture"
            for name, stored in captured.items():
                entry, target = capture.tensors[stored], here.get(name)
                if target is None:
                    yield f"{name} {NOT_HERE}"
                elif tuple(target.shape) != entry.shape or not (other_types or target.dtype == DTYPES[entry.dtype]):
                    yield f"{name} {OTHER_SHAPE}"
                else:
                    plain = target.data if isinstance(target, nn.Parameter) else target
                    plain.copy_(read_tensor(capture, stored))


def _restore_optimizers(capture: Capture, registry: Registry, other_types: bool) -> Iterator[str]:
    here = dict(registry.live_optimizers())
    for record in capture.document["optimizers"]:
        optimizer = here.get(str(record.get("key")))
        if optimizer is None or type(optimizer).__name__ != record["type"]:
            yield f"optimizer {record.get('key')} ({record['type']}) {NOT_HERE}"
        elif not _fits(optimizer, record):
            yield f"optimizer {record.get('key')} holds other parameters here"
        else:
            _restore_optimizer(capture, optimizer, record, other_types)


def _fits(optimizer: Optimizer, record: dict[str, Any]) -> bool:
    groups = record.get("groups", {}).get("items", [])
    return len(groups) == len(optimizer.param_groups) and all(
        int(index) < sum(len(g["params"]) for g in optimizer.param_groups) for index in record.get("state", {})
    )


def _restore_optimizer(capture: Capture, optimizer: Optimizer, record: dict[str, Any], other_types: bool) -> None:
    set_groups(capture, optimizer, record["groups"])
    if record.get("state_left_out"):
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    own = {p: dict(state) for p, state in optimizer.state.items() if isinstance(state, dict)}
    optimizer.state.clear()
    for index, node in record.get("state", {}).items():
        if node["kind"] != DICT:
            raise CaptureError(f"{capture.path}: an optimizer's state in it is damaged; copy the whole capture again")
        parameter = parameters[int(index)]
        here, state = own.get(parameter, {}), rebuild(capture, node)
        for key, value in state.items():
            like = here[key] if isinstance(here.get(key), Tensor) else parameter
            if isinstance(value, Tensor) and not _may_be(value, like, known=key in here, optimizer=optimizer):
                raise CaptureError(f"{capture.path}: an optimizer's state in it is of another shape than the script's")
        optimizer.state[parameter] = {
            key: _as_here(value, here.get(key), parameter, other_types) for key, value in state.items()
        }


def _may_be(value: Tensor, like: Tensor, known: bool, optimizer: Optimizer) -> bool:
    """The kernels of optimizers trust the shapes they are given. Where the script's own has none yet, and there is no
    such kernel (LBFGS), any shape may be right."""
    fused = any("fused" in group for group in optimizer.param_groups)
    return value.shape == like.shape or (not known and (not value.dim() or not fused))


def _as_here(value: Any, own: Any, parameter: Tensor, other_types: bool) -> Any:
    """A part of an optimizer's state, on the device that it has in this process."""
    if not isinstance(value, Tensor):
        return value
    like = own if isinstance(own, Tensor) else parameter if value.dim() else value
    convert = other_types and value.is_floating_point() and like.is_floating_point()
    return value.to(like.device, like.dtype if convert else value.dtype)


def set_groups(capture: Capture, optimizer: Optimizer, groups: dict[str, Any]) -> None:
    """Learning rates and the like, where the script's own groups have them and they are of the same kind."""
    for group, node in zip(optimizer.param_groups, groups.get("items", []), strict=False):
        for key, item in zip(node["keys"], node["items"], strict=True) if node["kind"] == DICT else ():
            if key in IMPLEMENTATION or key not in group or item["kind"] == LEFT_OUT:
                continue
            own, value = group[key], rebuild(capture, item)
            if isinstance(own, Tensor) and isinstance(value, Tensor) and own.shape == value.shape:
                group[key] = value.to(own.device)
            elif type(own) is type(value) or {type(own), type(value)} == {int, float}:
                group[key] = value


def _restore_scalers(capture: Capture, scalers: list[Any]) -> Iterator[str]:
    captured = capture.document["scalers"]
    if len(captured) != len(scalers):
        yield f"the capture holds {len(captured)} gradient scalers, and this process {len(scalers)}"
        return
    for scaler, record in zip(scalers, captured, strict=True):
        values = rebuild(capture, record["values"], device=True) if "values" in record else {}
        if not isinstance(values, dict):
            raise CaptureError(f"{capture.path}: a scaler's state in it is damaged; copy the whole capture again")
        for name in SCALER_FIELDS:
            if name in values:
                setattr(scaler, name, values[name])


def read_states(capture: Capture, states: dict[str, Any]) -> tuple[Tensor | None, dict[int, Tensor]]:
    """torch's random states: the CPU's, and CUDA's by device. The one device of one of several processes is here the
    current one."""
    cpu = read_tensor(capture, states["torch"]) if states.get("torch") else None
    cuda = {int(index): read_tensor(capture, name) for index, name in (states.get("cuda") or {}).items()}
    if capture.document.get("processes") and len(cuda) == 1 and torch.cuda.is_available():
        cuda = {torch.cuda.current_device(): state for state in cuda.values()}
    return cpu, cuda


def set_states(cpu: Tensor | None, cuda: dict[int, Tensor]) -> None:
    """Those of devices that are not here are passed over."""
    if cpu is not None:
        torch.default_generator.set_state(cpu)
    for device, state in cuda.items():
        if device < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, device)


def restore_random(capture: Capture) -> None:
    """The generators of torch, CUDA, python and numpy."""
    states = capture.document["random"]
    try:
        set_states(*read_states(capture, states))
        python, legacy = states.get("python"), states.get("numpy")
        if python:
            random.setstate((python["version"], tuple(read_tensor(capture, python["words"]).tolist()), python["gauss"]))
        if legacy:
            words, position = read_tensor(capture, legacy["words"]).numpy(), legacy["position"]
            if type(position) is not int or not 0 <= position <= TWISTER or words.shape != (TWISTER,):
                raise ValueError("numpy's generator has no such state")
            np.random.set_state(("MT19937", words.astype(np.uint32), position, legacy["has_gauss"], legacy["gauss"]))
    except (RuntimeError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise CaptureError(f"{capture.path}: a random state in it is damaged ({error}); copy it again") from error
