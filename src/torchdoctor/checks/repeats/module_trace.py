"""What every module was given and gave in one pass, as fingerprints, to find where two passes part."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor import stats
from torchdoctor.attach.registry import clean
from torchdoctor.probes.batches import batch_tensors

Marks = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """Of one module; inner calls come before the one they are made in."""

    module: str
    kind: str
    given: Marks
    gave: Marks


@contextlib.contextmanager
def traced(model: nn.Module) -> Iterator[list[Call]]:
    """The calls that are made inside, as they end."""
    calls: list[Call] = []
    waiting: list[tuple[nn.Module, Marks]] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        waiting.append((module, marks_of([*args, *kwargs.values()])))

    def after(module: nn.Module, _args: Any, output: Any) -> None:
        while waiting:
            entered, given = waiting.pop()
            if entered is module:
                calls.append(Call(names[id(module)], type(module).__name__, given, marks_of(output)))
                return

    modules = [(n, m) for n, m in model.named_modules() if not isinstance(m, torch.jit.ScriptModule)]
    names = {id(module): clean(name) for name, module in modules}
    handles = [m.register_forward_pre_hook(before, with_kwargs=True) for _, m in modules]
    handles += [m.register_forward_hook(after) for _, m in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def marks_of(value: Any) -> Marks:
    """One for each tensor in it; equal for equal bits."""
    return tuple(mark_of(tensor) for tensor in batch_tensors(value if not isinstance(value, tuple) else list(value)))


def mark_of(tensor: Tensor) -> int:
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if not tensor.numel():
        return 0
    marks = stats.fingerprints(tensor.reshape(1, -1))
    return int(marks[0]) if len(marks) else hash(tensor.cpu().flatten().tolist().__repr__())


def first_difference(one: list[Call], other: list[Call]) -> Call | None:
    """The first module that made something else of the same; the first whose output differs where there is none."""
    pairs = list(zip(one, other, strict=False))
    apart = [a for a, b in pairs if a.module == b.module and a.given == b.given and a.gave != b.gave]
    return next(iter([*apart, *(a for a, b in pairs if (a.module, a.gave) != (b.module, b.gave))]), None)
