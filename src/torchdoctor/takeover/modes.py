"""Modes of torch's functions, which hold in one thread alone, put on and taken off its stack."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.overrides import TorchFunctionMode


def put_on(modes: Iterable[TorchFunctionMode]) -> None:
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def take_off(modes: list[TorchFunctionMode]) -> None:
    """Others that were put on since stay."""
    stack = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    put_on(mode for mode in reversed(stack) if not any(mode is ours for ours in modes))
