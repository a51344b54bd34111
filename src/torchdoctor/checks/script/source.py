"""The user's own source as trees: what a frame or a function runs, statement by statement, with its names as they are.

Statements are taken out of it and run again by themselves, in a copy of their names: what they assign stays there.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from torchdoctor.attach.places import is_user_file

Names = dict[str, Any]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = ("body", "orelse", "finalbody")
DEPTH = 3
"""Calls of the user's own functions that are followed."""


@dataclass(frozen=True)
class Scope:
    """A function of the user's, or the body of a module. `line` is where the training loop stands in it, if it does."""

    file: str
    title: str
    body: list[ast.stmt] = field(repr=False)
    names: Names = field(repr=False)
    line: int | None = None

    def spots(self) -> list[Spot]:
        return list(_spots(self.body, ()))

    def at(self, line: int) -> Spot | None:
        """The innermost statement of that line."""
        found = [s for s in self.spots() if s.spans(line)]
        return found[-1] if found else None


@dataclass(frozen=True)
class Spot:
    """A statement, the block that it is in, and the blocks around that, from the outermost on."""

    statement: ast.stmt
    blocks: tuple[tuple[list[ast.stmt], int], ...]
    """each with the number of the statement in it that leads here"""

    @property
    def line(self) -> int:
        return self.statement.lineno

    def spans(self, line: int) -> bool:
        return self.statement.lineno <= line <= (self.statement.end_lineno or self.statement.lineno)

    @property
    def around(self) -> list[ast.stmt]:
        """Compound statements that it stands in, the outermost first."""
        return [block[number] for block, number in self.blocks[:-1]]

    @property
    def tests(self) -> list[str]:
        return [ast.unparse(s.test) for s in self.around if isinstance(s, ast.If)]


def _spots(block: list[ast.stmt], blocks: tuple[tuple[list[ast.stmt], int], ...]) -> Iterator[Spot]:
    for number, statement in enumerate(block):
        here = (*blocks, (block, number))
        yield Spot(statement, here)
        for inner in inner_blocks(statement):
            yield from _spots(inner, here)


def inner_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Of a compound statement; functions and classes that are defined inside are none."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return []
    found = [getattr(statement, name, []) for name in BLOCKS]
    found += [part.body for name in ("handlers", "cases") for part in getattr(statement, name, [])]
    return [block for block in found if block]


# -- what runs where --------------------------------------------------------------------------


def scopes_of(frames: list[FrameType]) -> list[Scope]:
    """Of the user's frames, the innermost first."""
    found = [scope_of(f.f_code, {**f.f_globals, **f.f_locals}, f.f_lineno) for f in frames if is_user_frame(f)]
    return [scope for scope in found if scope is not None]


def is_user_frame(frame: FrameType) -> bool:
    return is_user_file(frame.f_code.co_filename)


def scope_of(code: CodeType, names: Names, line: int | None = None) -> Scope | None:
    tree = read_tree(code.co_filename)
    if tree is None:
        return None
    if code.co_name == "<module>":
        return Scope(code.co_filename, code.co_name, tree.body, names, line)
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name == code.co_name and _first_line(node) == code.co_firstlineno:
            return Scope(code.co_filename, node.name, node.body, names, line)
    return None


def read_tree(file: str) -> ast.Module | None:
    return _parse("".join(linecache.getlines(file)))


@functools.cache
def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


# -- what is called ---------------------------------------------------------------------------


def resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a name or an attribute stands for; nothing is called, and no property is asked. None where not known."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    holder = resolve(node.value, names)
    if holder is None:
        return None
    if isinstance(holder, ModuleType):
        return vars(holder).get(node.attr)
    try:
        found = inspect.getattr_static(holder, node.attr)
    except AttributeError:
        return None
    if isinstance(found, FunctionType) and not isinstance(holder, type):
        return MethodType(found, holder)
    if isinstance(found, staticmethod | classmethod):
        return found.__get__(holder if not isinstance(holder, type) else None, type(holder))
    return found if not isinstance(found, property) else None


def function_of(value: Any) -> FunctionType | None:
    """The user's own function behind what is called, without its decorators."""
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    if isinstance(value, MethodType):
        value = inspect.unwrap(value.__func__)
    if isinstance(value, FunctionType) and is_user_file(value.__code__.co_filename):
        return value
    return None


def calls_of(node: ast.AST) -> Iterator[ast.Call]:
    """In the order of the source; those inside of functions that it only defines are none of it."""
    if isinstance(node, ast.Call):
        yield node
    if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(node):
        yield from calls_of(child)


def scope_of_call(call: ast.Call, names: Names) -> Scope | None:
    """The user's function that is called, with the arguments that are known by their names."""
    called = resolve(call.func, names)
    function = function_of(called)
    if function is None:
        return None
    own: Names = dict(function.__globals__)
    own |= inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    given = [resolve(a, names) if not isinstance(a, ast.Constant) else a.value for a in call.args]
    parameters = list(inspect.signature(function).parameters.values())
    if isinstance(called, MethodType):
        given.insert(0, called.__self__)
    own |= {p.name: p.default for p in parameters if p.default is not p.empty}
    own |= dict(zip((p.name for p in parameters), given, strict=False))
    own |= {k.arg: resolve(k.value, names) for k in call.keywords if k.arg is not None}
    return scope_of(function.__code__, own)


class Search:
    """For calls of what `wanted(call, names)` says, in statements and in the user's functions that they call."""

    def __init__(self, wanted: Callable[[ast.Call, Names], bool]) -> None:
        self._wanted = wanted
        self._known: dict[CodeType, bool] = {}

    def finds(self, node: ast.AST, names: Names) -> bool:
        return any(self._wanted(c, names) or self.finds_in_called(c, names) for c in calls_of(node))

    def finds_here(self, node: ast.AST, names: Names) -> bool:
        """In the statement itself."""
        return any(self._wanted(c, names) for c in calls_of(node))

    def finds_in_called(self, call: ast.Call, names: Names, depth: int = DEPTH) -> bool:
        function = function_of(resolve(call.func, names))
        if function is None or not depth:
            return False
        if function.__code__ not in self._known:
            self._known[function.__code__] = False  # of a function that calls itself
            scope = scope_of_call(call, names)
            calls = [c for s in scope.body for c in calls_of(s)] if scope is not None else []
            self._known[function.__code__] = scope is not None and any(
                self._wanted(c, scope.names) or self.finds_in_called(c, scope.names, depth - 1) for c in calls
            )
        return self._known[function.__code__]
