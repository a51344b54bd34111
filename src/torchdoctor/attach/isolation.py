"""Keeps operations of ours out of what the script has put around its own: modes, subclasses, tracers, profilers.

Every site runs isolated (see guard.py). Where operations are being traced into a graph of the user's, no site runs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
import torch.fx._symbolic_trace as fx_tracing

_modes = torch._C._len_torch_dispatch_stack
_scripting = torch._C._is_tracing
_transform_level = torch._C._functorch.maybe_current_level
_profiling = torch.autograd._profiler_enabled
_record_functions = torch._C._autograd._enable_record_function
_no_torch_function = torch._C.DisableTorchFunction
_dispatch_modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack
_TRACING_MODES = tuple(
    getattr(torch._C._TorchDispatchModeKey, name)
    for name in ("PROXY", "FUNCTIONAL", "FAKE")
    if hasattr(torch._C._TorchDispatchModeKey, name)
)


def is_traced() -> bool:
    """What is computed now goes into a graph (torch.jit.trace, torch.fx, make_fx, export), or is a torch.func transform
    or a fake: nothing can be measured, and operations of ours would end up in the user's graph."""
    if _scripting() or _transform_level() is not None or fx_tracing._is_fx_tracing_flag:
        return True
    return _modes() > 0 and any(torch._C._get_dispatch_mode(key) is not None for key in _TRACING_MODES)


def run_isolated(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function so that no mode, no `__torch_function__` and no profiler of the script sees an operation of it.

    None where operations are being traced (see is_traced). Every site comes this way on every step, so the usual case,
    in which the script has put nothing around its operations, asks for no more than it must.

    Tensors with a `__torch_dispatch__` of their own cannot be isolated (without it many have no memory behind them, and
    reading them ends the process): `stats.unsupported` keeps us from touching them. An exception from outside may come
    after any call (see interruptions.py), so each `finally` makes the one call that puts a thing back.
    """
    if _scripting() or _transform_level() is not None or fx_tracing._is_fx_tracing_flag:
        return None
    if not (_modes() or _profiling()):
        with _no_torch_function():
            return function(*args, **kwargs)
    if is_traced():
        return None
    with _no_torch_function():
        modes = _dispatch_modes()
        try:
            _record_functions(not _profiling())
            _take_out(modes)
            return function(*args, **kwargs)
        finally:
            try:
                _put_back(modes)
            except BaseException:
                _put_back(modes)
                raise
            finally:
                _record_functions(True)


def _take_out(modes: list[Any]) -> None:
    for _ in modes:
        torch._C._pop_torch_dispatch_stack(None)


def _put_back(modes: list[Any]) -> None:
    while _modes() < len(modes):
        torch._C._push_on_torch_dispatch_stack(modes[_modes()])


def skip_compilation(code: CodeType, *, with_callees: bool = False) -> None:
    """Keep torch.compile, which compiles every frame that runs after a graph break, from compiling this one."""
    frames = torch._C._dynamo.eval_frame
    place = getattr(frames, "set_code_exec_strategy", None)
    if place is not None:
        action = frames._FrameAction
        place(code, frames._FrameExecStrategy(action.SKIP, action.SKIP if with_callees else action.DEFAULT))
    elif hasattr(frames, "skip_code"):  # torch 2.6
        frames.skip_code(code)
