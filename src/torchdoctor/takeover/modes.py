"""What listens to torch in one thread alone, handed on to another: modes of its functions, and hooks on what autograd
saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch._C import _autograd
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

Hook = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Modes:
    functions: list[TorchFunctionMode] = field(default_factory=list)
    saved: tuple[Hook, Hook] | None = None
    """pack and unpack"""

    @classmethod
    def of_this_thread(cls) -> Modes:
        return cls(_get_current_function_mode_stack(), _autograd._top_saved_tensors_default_hooks(True))

    def put_on(self) -> None:
        for mode in self.functions:
            torch._C._push_on_torch_function_stack(mode)
        if self.saved is not None:
            _autograd._push_saved_tensors_default_hooks(*self.saved)

    def take_off(self) -> None:
        """Functions' modes that were put on since stay."""
        if self.saved is not None:
            _autograd._pop_saved_tensors_default_hooks()
        if self.functions:
            stack = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
            Modes([mode for mode in reversed(stack) if not any(mode is ours for ours in self.functions)]).put_on()
