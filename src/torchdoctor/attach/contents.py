"""What goes into a capture: nested structures as plain JSON that names their tensors, and one copy of those tensors.

Gathering copies nothing, so that what does not fit is known before any memory is taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdoctor import stats
from torchdoctor.stats.support import Quiet
from torchdoctor.store.captured import (
    ARRAY,
    DICT,
    FIELDS,
    FLOAT,
    LEFT_OUT,
    LIST,
    TENSOR,
    TENSOR_NAME,
    TUPLE,
    VALUE,
)

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Elements by their names in the file."""
_CODES = {dtype: code for code, dtype in DTYPES.items()}

MAX_DEPTH = 32
MAX_NODES = 100_000
"""Of all structures of a capture: a batch of 50,000 labels as a python list still goes in."""
MAX_TEXT = 2_000_000
"""Characters of all strings of a capture."""
MAX_INTEGER = 1 << 128
"""Seeds of numpy's generators go up to here; python refuses to read integers that are much longer."""
ALIGNMENT = 64
"""Bytes; every element type starts at such a place."""


class LeftOutError(Exception):
    """This tensor cannot be captured; the text says why."""


class Part:
    """One kind of tensors (the batch, the parameters ...), which goes into a capture as a whole or not at all."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.tensors: dict[str, Tensor] = {}
        self._known: dict[tuple[Any, ...], str] = {}

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors.values())

    def add(self, tensor: Tensor, wish: str) -> str:
        """The tensor's name in the capture: the wish if it is free and may be written, else a number."""
        why = _unfit(tensor)
        if why is not None:
            raise LeftOutError(why)
        plain = tensor.detach().as_subclass(Tensor)
        place = (
            plain.device,
            plain.data_ptr(),
            plain.dtype,
            plain.shape,
            plain.stride(),
            plain.is_conj(),
            plain.is_neg(),
        )
        if plain.numel() and place in self._known:
            return self._known[place]
        name = f"{self.prefix}/{wish}"
        if name in self.tensors or not TENSOR_NAME.fullmatch(name):
            name = f"{self.prefix}/#{len(self.tensors)}"
        self.tensors[name] = plain
        self._known[place] = name
        return name


def _unfit(tensor: Tensor) -> str | None:
    why = stats.unsupported(tensor)
    if why is not None:
        return why
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}"
    return None if tensor.dtype in _CODES else f"a tensor of {tensor.dtype}"


class Encoder:
    """Turns nested values into nodes (see store/captured.py); what has none is written as left out, with its type."""

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}
        """what is missing, and why"""
        self._nodes = 0
        self._text = 0

    def encode(self, value: Any, part: Part, path: str, depth: int = 0) -> dict[str, Any]:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            return self._leave(value, part, path, "too many values, or too deeply nested")
        if isinstance(value, Tensor):
            return self._tensor(value, part, path)
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value, part, path)
        if value is None or type(value) in (bool, int, float, str):
            return self._scalar(value, part, path)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._fields(value, list(value._fields), list(value), part, path, depth)
        if isinstance(value, list | tuple):
            items = [self.encode(v, part, f"{path}/{i}", depth + 1) for i, v in enumerate(value)]
            return {"kind": LIST if isinstance(value, list) else TUPLE, "items": items}
        if isinstance(value, Mapping):
            return self._dict(value, part, path, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
            return self._fields(value, names, [getattr(value, n) for n in names], part, path, depth)
        return self._leave(value, part, path, "a type that captures do not hold")

    def _tensor(self, value: Tensor, part: Part, path: str) -> dict[str, Any]:
        try:
            node = {"kind": TENSOR, "name": part.add(value, path)}
        except LeftOutError as error:
            return self._leave(value, part, path, str(error))
        if value.device.type != "cpu":
            node["device"] = str(value.device)
        if value.requires_grad and value.is_leaf:
            node["requires_grad"] = True
        return node

    def _array(self, value: Any, part: Part, path: str) -> dict[str, Any]:
        try:
            array = np.asarray(value)
            native = array.astype(array.dtype.newbyteorder("="), copy=True)
            return {"kind": ARRAY, "name": part.add(torch.from_numpy(native), path)}
        except (TypeError, ValueError, LeftOutError):
            return self._leave(value, part, path, f"an array of {getattr(value, 'dtype', 'unknown type')}")

    def _scalar(self, value: Any, part: Part, path: str) -> dict[str, Any]:
        if type(value) is float and not math.isfinite(value):
            return {"kind": FLOAT, "value": str(value)}
        if type(value) is str:
            self._text += len(value)
            if self._text > MAX_TEXT:
                return self._leave(value, part, path, "too much text")
        if type(value) is int and abs(value) >= MAX_INTEGER:
            return self._leave(value, part, path, "too large an integer")
        return {"kind": VALUE, "value": value}

    def _dict(self, value: Mapping[Any, Any], part: Part, path: str, depth: int) -> dict[str, Any]:
        node: dict[str, Any] = {"kind": DICT, "keys": [], "items": []}
        if type(value) is not dict:
            node["type"] = type_name(value)
        for key, item in value.items():
            if type(key) not in (str, int, bool, type(None)):
                self._leave(key, part, path, "a key of a type that captures do not hold")
                continue
            node["keys"].append(key)
            node["items"].append(self.encode(item, part, f"{path}/{key}", depth + 1))
        return node

    def _fields(
        self, value: Any, names: list[str], values: list[Any], part: Part, path: str, depth: int
    ) -> dict[str, Any]:
        items = [self.encode(v, part, f"{path}/{n}", depth + 1) for n, v in zip(names, values, strict=True)]
        return {"kind": FIELDS, "type": type_name(value), "keys": names, "items": items}

    def _leave(self, value: Any, part: Part, path: str, why: str) -> dict[str, Any]:
        if len(self.left_out) < 256:
            self.left_out[f"{part.prefix}/{path}"[:256]] = f"{type_name(value)}: {why}"
        return {"kind": LEFT_OUT, "type": type_name(value), "why": why}


class UnknownError(Exception):
    """What a value holds cannot be said, or not in short."""


STORAGES_LIMIT = 256
"""Values in a batch that are looked through to know what it holds in memory."""


def storages_of(value: Any) -> tuple[tuple[Tensor, ...], int]:
    """The tensors in a batch, one for each place in memory, and the bytes that are kept alive with it. UnknownError
    where it holds something else than captures do, or too much to be looked through at every step."""
    found: dict[int, Tensor] = {}
    waiting, size, seen = [value], 0, 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen > STORAGES_LIMIT:
            raise UnknownError("they hold too many values")
        if isinstance(item, Tensor):
            if (why := _unfit(item)) is not None:
                raise UnknownError(why)
            found[item.untyped_storage().data_ptr()] = item
        elif isinstance(item, np.ndarray):
            size += item.nbytes if item.base is None else getattr(item.base, "nbytes", item.nbytes)
        elif isinstance(item, str | bytes):
            size += len(item)
        elif isinstance(item, list | tuple):
            waiting += item
        elif isinstance(item, Mapping):
            waiting += item.values()
        elif dataclasses.is_dataclass(item) and not isinstance(item, type):
            waiting += [getattr(item, f.name, None) for f in dataclasses.fields(item)]
        elif not isinstance(item, bool | int | float | np.generic | None):
            raise UnknownError(f"they hold a {type_name(item)}")
    return tuple(found.values()), size + sum(1 << (t.untyped_storage().nbytes()).bit_length() for t in found.values())


def type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


class Copies:
    """CPU copies of tensors. Those of a GPU are under way until `wait`, behind the work already queued there. What
    `is_ours` says that nobody else holds is taken as it is."""

    def __init__(self, tensors: Mapping[str, Tensor], is_ours: Callable[[Tensor], bool] = lambda _: False) -> None:
        self.tensors = {name: tensor for name, tensor in tensors.items() if is_ours(tensor)}
        self._events: list[Any] = []
        by_device: dict[torch.device, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name not in self.tensors:
                by_device.setdefault(tensor.device, {})[name] = tensor
        with Quiet():
            for device, group in by_device.items():
                if device.type == "cuda":
                    self._from_cuda(device, group)
                else:
                    self._plainly(group)

    def _plainly(self, group: Mapping[str, Tensor]) -> None:
        for name, tensor in group.items():
            copy = torch.empty(tensor.shape, dtype=tensor.dtype)
            self.tensors[name] = copy.copy_(tensor)

    def _from_cuda(self, device: torch.device, group: Mapping[str, Tensor]) -> None:
        """Into one pinned block, on a stream of our own; the training's stream goes on when the copies are made."""
        sizes = [-(-t.numel() * t.element_size() // ALIGNMENT) * ALIGNMENT for t in group.values()]
        block = torch.empty(max(sum(sizes), 1), dtype=torch.uint8, pin_memory=True)
        with torch.cuda.device(device):
            training, ours = torch.cuda.current_stream(), torch.cuda.Stream()
            ours.wait_stream(training)
            begin = 0
            with torch.cuda.stream(ours):
                for (name, tensor), size in zip(group.items(), sizes, strict=True):
                    used = tensor.numel() * tensor.element_size()
                    host = block[begin : begin + used].view(tensor.dtype).view(tensor.shape)
                    self.tensors[name] = host.copy_(tensor, non_blocking=True)
                    begin += size
                event = torch.cuda.Event()
                event.record()
            training.wait_stream(ours)
        self._events.append(event)

    def wait(self) -> None:
        for event in self._events:
            event.synchronize()
        self.tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
