"""Which module made an operation: by what runs now, or afterwards by its number in the forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as hooks

from torchdoctor.probes.context import Names


class ModuleSpans:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._stack: list[str] = []
        self._spans: list[tuple[int, int, str]] = []
        """sequence numbers of the operations that each module made"""

    @property
    def current(self) -> str | None:
        """The innermost module that runs."""
        return self._stack[-1] if self._stack else None

    def watch(self) -> None:
        """From now on, for good: only a forked child asks for it."""
        hooks.register_module_forward_pre_hook(self._enter)
        hooks.register_module_forward_hook(self._leave, always_call=True)

    def forget(self) -> None:
        """A step begins anew."""
        self._stack.clear()
        self._spans.clear()

    def around(self, number: int) -> str | None:
        """The innermost module that made the operation of that number."""
        inside = [(last - first, name) for first, last, name in self._spans if first <= number < last]
        return min(inside)[1] if inside else None

    def _enter(self, module: Any, _args: Any) -> None:
        self._stack.append(self._names.module_names.get(id(module)) or type(module).__name__)
        self._spans.append((torch.autograd._get_sequence_nr(), -1, self._stack[-1]))

    def _leave(self, _module: Any, _args: Any, _output: Any) -> None:
        name = self._stack.pop() if self._stack else ""
        for i in range(len(self._spans) - 1, -1, -1):
            first, last, of = self._spans[i]
            if last < 0 and of == name:
                self._spans[i] = (first, torch.autograd._get_sequence_nr(), of)
                return
