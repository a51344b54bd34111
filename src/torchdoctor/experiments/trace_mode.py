"""The dispatch mode behind a trace: sees each operation below autograd, forward and backward alike."""

from __future__ import annotations

import os
import zlib
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchdoctor.attach.places import caller
from torchdoctor.experiments.tracing import BACKWARD, LIFTED, RANDOM, SOURCE, UNWRITTEN, Steps, Trace
from torchdoctor.stats.fingerprint import fingerprints

_MIX = 0x9E3779B97F4A7C15
_SIGN = 1 << 63


class TraceMode(TorchDispatchMode):
    def __init__(self, trace: Trace, steps: Steps) -> None:
        super().__init__()
        self._trace, self._steps = trace, steps

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        if os.getpid() != self._trace.pid or name in UNWRITTEN or (_is_view(func) and name != LIFTED):
            return func(*args, **kwargs)
        read, written = _split(func, args, kwargs)
        given = _digest(read)
        result = func(*args, **kwargs)
        if self._trace.full:
            return result
        made = [*written, *_results(result)]
        flags = RANDOM if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()) else 0
        flags |= BACKWARD if torch._C._current_graph_task_id() != -1 else 0
        flags |= SOURCE if name == LIFTED or not read else 0
        place = caller()
        at = f"{place.file}:{place.line}" if place is not None else ""
        device = next((t.device.type for t in made), "cpu")
        self._trace.rows.append(
            (
                self._steps.now,
                self._trace.number(f"{name} {device}"),
                self._trace.number(at),
                _numbers(args, kwargs),
                0 if name == LIFTED else given,
                _digest(made),
                flags,
            )
        )
        return result


def _split(func: Any, args: Any, kwargs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors that are read alone, and those that are written to: what was in these does not count."""
    read: list[Tensor] = []
    written: list[Tensor] = []
    schema = getattr(func, "_schema", None)
    if schema is None:  # an operator of higher order
        return [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)], []
    arguments = schema.arguments
    by_name = {a.name: a for a in arguments}
    pairs = [*zip(arguments, args, strict=False), *((by_name[k], v) for k, v in kwargs.items() if k in by_name)]
    for argument, value in pairs:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(t for t in tree_leaves(value) if isinstance(t, Tensor))
    return read, written


def _results(result: Any) -> list[Tensor]:
    """Without the buffers of bytes that some kernels keep for their backward: parts of them are never written."""
    tensors = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
    return tensors if len(tensors) < 2 else [t for t in tensors if t.dtype != torch.uint8]


def _digest(tensors: list[Tensor]) -> int:
    digest = 0
    for tensor in tensors:
        if tensor.device.type == "meta" or not tensor.numel():
            continue
        found = fingerprints(tensor.detach().reshape(1, -1))
        digest = (digest * _MIX + (int(found[0]) if len(found) else 0) + 1) % (1 << 64)
    return digest - (1 << 64) if digest >= _SIGN else digest


def _numbers(args: Any, kwargs: Any) -> int:
    """What the program itself hands over: sizes, scalars, flags."""
    plain = [v for v in tree_leaves((args, kwargs)) if isinstance(v, bool | int | float | str)]
    return zlib.crc32(repr(plain).encode())


def _name(func: Any) -> str:
    packet = getattr(func, "overloadpacket", func)
    return str(packet).removeprefix("aten.")


def _is_view(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    return schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
