"""Sends a running loop back to the beginning of its body: the same batch, in the same variables, once more.

Only for a process that is spent on it. The line that runs next in a frame can be set from a trace function; the loop
that was left by a call into torch is found in the source. Loops inside a framework are let go on instead.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from torchdoctor.attach import places

_TORCH = os.path.dirname(torch.__file__)  # noqa: PTH120 - frames hold strings
MOVING = ("to", "cuda", "cpu", "float", "double", "long", "int", "contiguous", "requires_grad_")
"""Methods that, called twice, give what they gave once."""
PASSED_THROUGH = ("accelerate",)
"""Libraries whose `backward` is a plain call on the way to torch's."""


def to_loop_start(then: Callable[[], None], failed: Callable[[], None] = lambda: None) -> bool:
    """From the next line on that runs in the user's loop, its body is run from the beginning; `then` is called first,
    and `failed` where an exception comes up in it. False where no loop of the user's stands directly around the call,
    or where running its body twice is not running it once (it makes another thing of what the loop gave it)."""
    found = find_loop(sys._getframe(1))
    if found is None:
        return False
    frame, line = found

    def on_failure(_current: FrameType, event: str, _argument: Any) -> Any:
        if event == "exception":
            failed()
        return on_failure

    def on_line(current: FrameType, event: str, _argument: Any) -> Any:
        if event != "line":
            return on_line
        try:
            current.f_lineno = line
        except ValueError:
            sys.settrace(None)
            return None
        then()
        return on_failure

    frame.f_trace = on_line
    sys.settrace(lambda *_: None)
    return True


def find_loop(frame: FrameType | None) -> tuple[FrameType, int] | None:
    """The frame of the innermost loop of the user's around what runs now, and the first line of the loop's body."""
    while frame is not None:
        if places.is_user_file(frame.f_code.co_filename):
            loop = loop_around(frame.f_code.co_filename, frame.f_lineno)
            if loop is not None and frame.f_code.co_firstlineno <= loop.body[0].lineno:
                return (frame, loop.body[0].lineno) if is_repeatable(loop) else None
        elif not _is_passed_through(frame):
            return None
        frame = frame.f_back
    return None


def _is_passed_through(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith(_TORCH) or places.is_own(file) or "site-packages" not in file:
        return True
    return any(f"{os.sep}{name}{os.sep}" in file for name in PASSED_THROUGH)


def loop_around(file: str, line: int) -> ast.For | ast.While | None:
    """The innermost loop in whose body a line is. A function that is written inside a loop is none of its body."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    found: ast.For | ast.While | None = None
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", line), getattr(child, "end_lineno", line) or line
            if not first <= line <= last:
                continue
            if isinstance(child, ast.For | ast.While) and child.body[0].lineno <= line <= _end(child.body[-1]):
                found = child
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found = None
            waiting.append(child)
    return found


def is_repeatable(loop: ast.For | ast.While) -> bool:
    """Nothing that the loop gives its body is made into something else by it, but for moving it to a device."""
    given = _names(loop.target) if isinstance(loop, ast.For) else set()
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and _names(node.target) & given:
            return False
        if isinstance(node, ast.Assign) and not _is_moving(node.value):
            stored = {name for target in node.targets for name in _names(target)}
            if stored & given & _names(node.value):
                return False
    return True


def _is_moving(value: ast.expr) -> bool:
    """x.to(device), x.float(), or several of them."""
    if isinstance(value, ast.Tuple):
        return all(_is_moving(part) for part in value.elts)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in MOVING


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
