"""How long the full run of a script will be: read off the frames that stand around its loop."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torchdoctor.attach.places import is_user_file

MOST = 10_000_000


@dataclass(frozen=True)
class RunLength:
    """In the unit in which the script counts; None where it does not, or that is not known."""

    epochs: int | None = None
    batches: int | None = None
    """a loop that counts its steps, whatever epochs they make up"""
    updates: int | None = None


def find_length(frames: Iterable[FrameType]) -> RunLength:
    """`frames`: from where a batch is fetched outwards."""
    frames = list(frames)
    known = (_from_trainer(frame.f_locals.get("self")) for frame in frames)
    return next((length for length in known if length is not None), None) or _from_loops(frames)


def _from_trainer(holder: Any) -> RunLength | None:
    owners = (holder, getattr(holder, "trainer", None), getattr(holder, "args", None))
    # An epoch's number has a default in every trainer: one of steps was asked for.
    for unit, names in (("updates", ("max_steps",)), ("epochs", ("max_epochs", "num_train_epochs"))):
        for owner in owners:
            for name in names:
                value = getattr(owner, name, None)
                if isinstance(value, int | float) and 0 < value < MOST:
                    return RunLength(**{unit: max(1, round(value))})
    return None


def _from_loops(frames: list[FrameType]) -> RunLength:
    """A `while`, or a `for` over anything but a range, is the walk through the data: what is counted outside of it are
    epochs. Without one the batches themselves are counted, by all the ranges around the place where one is fetched."""
    walks, batches, counted = False, 1, False
    for frame in frames:
        if not is_user_file(frame.f_code.co_filename):
            continue
        for loop in _loops_around(frame):
            count = _count(loop.iter, frame) if isinstance(loop, ast.For) else None
            bound = _bounded(loop.iter, frame) if isinstance(loop, ast.For) else None
            if count is not None and walks:
                return RunLength(epochs=count)
            if count is not None or bound is not None:
                walks, batches, counted = False, batches * (count or bound or 1), True
            else:
                walks = True
        if frame.f_code.co_flags & inspect.CO_GENERATOR and not counted:
            walks = False  # it hands out batches for ever, and who asks it counts them
    return RunLength(batches=batches) if counted and not walks and batches < MOST else RunLength()


def _loops_around(frame: FrameType) -> list[ast.For | ast.While]:
    """Of this frame's line, the innermost first; one whose own line it is asks for its next item."""
    text = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    first = frame.f_code.co_firstlineno if frame.f_code.co_name != "<module>" else 0
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While) and first <= node.lineno <= frame.f_lineno <= (node.end_lineno or 0)
    ]
    return sorted(around, key=lambda node: -node.lineno)


def _bounded(node: ast.expr, frame: FrameType) -> int | None:
    """Of `zip(range(n), loader)` and `islice(loader, n)`."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name == "zip":
        return next((count for argument in node.args if (count := _count(argument, frame)) is not None), None)
    if name == "islice" and len(node.args) == 2:
        value = _value(node.args[1], frame)
        return value if isinstance(value, int) and 0 < value < MOST else None
    if name in ("enumerate", "tqdm") and node.args:
        return _bounded(node.args[0], frame)
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
