"""How long the full run of a script will be: read off the frames that stand around its loop."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from types import FrameType
from typing import Any

from torchdoctor.attach.places import is_user_file

MOST = 10_000_000


def find_epochs(frames: Iterable[FrameType]) -> int | None:
    """Of the innermost loop that counts them and stands around the loop over batches; None where that is not known."""
    frames = list(frames)
    known = (_from_trainer(frame.f_locals.get("self")) for frame in frames)
    read = (_from_source(frame) for frame in frames if is_user_file(frame.f_code.co_filename))
    return next((count for count in (*known, *read) if count is not None), None)


def _from_trainer(holder: Any) -> int | None:
    for owner in (holder, getattr(holder, "trainer", None), getattr(holder, "args", None)):
        for name in ("max_epochs", "num_train_epochs"):
            value = getattr(owner, name, None)
            if isinstance(value, int | float) and 0 < value < MOST:
                return max(1, round(value))
    return None


def _from_source(frame: FrameType) -> int | None:
    text = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.lineno < frame.f_lineno <= (node.end_lineno or 0)
    ]
    for node in sorted(around, key=lambda n: -n.lineno):
        count = _count(node.iter, frame)
        if count is not None:
            return count
    return None


def _count(node: ast.expr, frame: FrameType) -> int | None:
    """Of `range(n)` and `range(a, b)`, bare or inside a call that shows progress (`tqdm(range(n))`)."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in ("range", "trange"):
        ends = [_value(argument, frame) for argument in node.args[:2]]
        if not all(isinstance(end, int) for end in ends):
            return None
        count = ends[0] if len(ends) == 1 else ends[1] - ends[0]
        return count if 0 < count < MOST else None
    return _count(node.args[0], frame)


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Of a number, a name, or an attribute of one; nothing is called."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        holder = _value(node.value, frame)
        return vars(holder).get(node.attr) if hasattr(holder, "__dict__") else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _value(node.left, frame), _value(node.right, frame)
        return left + right if isinstance(left, int) and isinstance(right, int) else None
    return None
