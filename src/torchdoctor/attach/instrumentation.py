"""Functions that report their calls without a frame of their own.

A wrapper around a function of torch adds a frame to every call: tracebacks and stacks show it, deep recursion reaches
its limit earlier, warnings name its file, and pickle finds another object than it looks for. So the function stays the
object it is, and only its code is replaced, by code compiled from the same source with our calls around the body.
Names, file and line numbers are those of the original: a traceback through it is the one that python shows without us.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import linecache
import textwrap
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Protocol

import torch

from torchdoctor.attach.isolation import skip_compilation

IS_COMPILING = "__torchdoctor_is_compiling__"
LINES_AFTER_CODE = 40
"""Lines of a definition below the last one that has code: closing brackets, comments."""
FIRST_LINE = 2
"""where a definition begins in the text that is compiled"""
CALL, ENDED_CALL, RESULT = "__torchdoctor_call__", "__torchdoctor_ended_call__", "__torchdoctor_result__"
GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_TEMPLATE = f"""
if {IS_COMPILING}():
    "the body"
    return None
{CALL} = "begin"
{RESULT} = None
try:
    "the watched body"
except BaseException:
    if {CALL} is not None:
        {ENDED_CALL} = {CALL}
        {CALL} = None
        if {ENDED_CALL}.failed():
            return None
    raise
finally:
    if {CALL} is not None:
        {CALL}.ended({RESULT})
"""
"""While torch.compile traces, the function is the original alone. A bare `raise` adds no entry to a traceback."""


class Call(Protocol):
    """One call of an instrumented function, from its begin to its end."""

    def ended(self, result: Any) -> None: ...

    def failed(self) -> bool:
        """The exception is the one that is being handled; True passes it over, and the call returns None."""


Begin = Callable[[tuple[Any, ...], dict[str, Any]], Call | None]
"""Called with the arguments of a call, defaults filled in; None if the call is of no interest."""


class Instrumentation:
    """Code that reports the calls of one function, put in place of the function's own and taken out again."""

    def __init__(self, function: FunctionType, watched: CodeType, name: str) -> None:
        self._function = weakref.ref(function)
        self._scope, self.label = function.__globals__, f"{function.__module__}.{function.__qualname__}"
        self._original, self._watched, self._name = function.__code__, watched, name
        self._begins: list[Begin] = []

    @property
    def is_current(self) -> bool:
        """The function has its own code or ours, and nobody else's."""
        function = self._function()
        return function is not None and (function.__code__ is self._original or function.__code__ is self._watched)

    def add(self, begin: Begin) -> None:
        """Report calls to one more listener. The last one added is told first of a call's begin and last of its end."""
        self._begins.append(begin)
        self._put()

    def drop(self, begin: Begin) -> bool:
        """False if calls were not reported there."""
        if begin not in self._begins:
            return False
        self._begins.remove(begin)
        self._put()
        return True

    def _put(self) -> None:
        self._scope[IS_COMPILING] = torch.compiler.is_compiling
        # the name stays defined: a call that has just begun in another thread looks it up
        self._scope[self._name] = _begin_all(self._begins)
        wanted, function = self._watched if self._begins else self._original, self._function()
        if function is not None and self.is_current and function.__code__ is not wanted:
            function.__code__ = wanted


_NUMBERS = itertools.count()
_KNOWN: weakref.WeakKeyDictionary[FunctionType, Instrumentation | None] = weakref.WeakKeyDictionary()


def instrument(function: Any) -> Instrumentation | None:
    """Prepare to watch the calls of a function; None where its code cannot be derived from its source."""
    if not isinstance(function, FunctionType):
        return None
    known = _KNOWN.get(function)
    if known is None or not known.is_current:
        known = _KNOWN[function] = _instrument(function)
    return known


def _begin_all(begins: list[Begin]) -> Begin:
    if len(begins) == 1:
        return begins[0]
    order = tuple(reversed(begins))

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        calls = [call for one in order if (call := one(args, kwargs)) is not None]
        return _Calls(calls) if calls else None

    skip_compilation(begin.__code__, with_callees=True)
    return begin


class _Calls:
    """One call that several listeners follow."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls

    def ended(self, result: Any) -> None:
        for call in reversed(self._calls):
            call.ended(result)

    def failed(self) -> bool:
        passed_over = [call.failed() for call in reversed(self._calls)]
        return any(passed_over)


for _report in (_Calls.ended, _Calls.failed):
    skip_compilation(_report.__code__, with_callees=True)


def _instrument(function: FunctionType) -> Instrumentation | None:
    if function.__code__.co_flags & GENERATOR_FLAGS:
        return None
    code = function.__code__
    name = f"__torchdoctor_{code.co_name}_{next(_NUMBERS)}__"  # functions that a decorator made share their lines
    try:
        text, plain = _read_source(code)
        if not _is_same(_compile(plain, function), code):
            return None  # the file on the disk is another than the one that was imported
        watched = _compile(_watch_body(plain, _parse(text), code, name), function)
    except (OSError, SyntaxError, TypeError, ValueError, RecursionError):
        return None
    if watched.co_freevars != code.co_freevars:
        return None
    return Instrumentation(function, watched, name)


def _read_source(code: CodeType) -> tuple[str, ast.FunctionDef]:
    """The lines of the definition, under a line that takes their indentation, and what they say."""
    first = code.co_firstlineno
    last = max(line for _, _, line in (*code.co_lines(), (0, 0, first)) if line is not None)
    lines = linecache.getlines(code.co_filename)
    for end in range(last, min(last + LINES_AFTER_CODE, len(lines)) + 1):
        text = "".join(lines[first - 1 : end])
        text = ("if True:\n" if text[:1].isspace() else "\n") + text
        with contextlib.suppress(SyntaxError):  # a bracket that is closed further down
            return text, _parse(text)
    raise OSError(f"no function is found in {code.co_filename} at line {first}")


def _parse(text: str) -> ast.FunctionDef:
    block = ast.parse(text).body[0]
    definition = block.body[0] if isinstance(block, ast.If) else block
    if not isinstance(definition, ast.FunctionDef):
        raise ValueError("the code is not that of a function")
    return definition


def _compile(definition: ast.FunctionDef, function: FunctionType) -> CodeType:
    """Compile a definition as code for the function, which keeps its defaults and what it has closed over."""
    code = function.__code__
    free = ", ".join(name for name in code.co_freevars if name != "__class__")
    name = getattr(code, "co_qualname", function.__qualname__ if code.co_name == function.__name__ else "")
    owner = name.rpartition(".")[0].rpartition(".")[2]  # private names are spelled with that of their class
    owner = owner if owner.isidentifier() else "_"
    scope = ast.parse(f"def outer({free}):\n class {owner}:\n  pass")
    scope.body[0].body[0].body = [definition]  # type: ignore[attr-defined]
    made = compile(scope, code.co_filename, "exec", flags=code.co_flags & _FUTURE_FLAGS, dont_inherit=True)
    for inner in ("outer", owner, definition.name):
        made = next(c for c in made.co_consts if isinstance(c, CodeType) and c.co_name == inner)
    names = {"co_qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}
    return _shift_lines(made, code.co_firstlineno - FIRST_LINE).replace(**names)


def _shift_lines(code: CodeType, lines: int) -> CodeType:
    """Line tables are relative to the first line of their code."""
    inner = (_shift_lines(c, lines) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_firstlineno=code.co_firstlineno + lines, co_consts=tuple(inner))


_FUTURE_FLAGS = 0x01000000 | 0x00800000
"""annotations, generator_stop"""


def _is_same(made: CodeType, code: CodeType) -> bool:
    """Names, constants and lines agree. The bytecode itself depends on what the rest of the file imports."""

    def parts(of: CodeType) -> tuple[Any, ...]:
        plain = {(type(c), c) for c in of.co_consts if not isinstance(c, CodeType)}
        lines = {line for _, _, line in of.co_lines()}
        return of.co_names, of.co_varnames, of.co_freevars, of.co_cellvars, plain, lines

    return parts(made) == parts(code)


def _watch_body(plain: ast.FunctionDef, definition: ast.FunctionDef, code: CodeType, name: str) -> ast.FunctionDef:
    """Put our calls around the body of a definition; `plain` is the same definition again."""
    line = ast.copy_location(ast.Pass(), definition.body[0])
    watched = [_KeepResult().visit(statement) for statement in definition.body]
    frame = ast.parse(f"def f():\n{textwrap.indent(_TEMPLATE, ' ')}").body[0]
    assert isinstance(frame, ast.FunctionDef)
    for node in ast.walk(frame):
        ast.copy_location(node, line)
    branch, begin, _, guarded = frame.body
    assert isinstance(branch, ast.If) and isinstance(begin, ast.Assign) and isinstance(guarded, ast.Try)
    branch.body[:1] = plain.body
    begin.value = _begin_call(code, name, line)
    guarded.body = [part for found in watched for part in (found if isinstance(found, list) else [found])]
    definition.body = frame.body
    return definition


def _begin_call(code: CodeType, name: str, line: ast.stmt) -> ast.expr:
    """The expression `name((first, second, *rest), {"keyword": keyword, **others})` for the function's parameters."""
    names = list(code.co_varnames)
    positional, keywords = names[: code.co_argcount], names[code.co_argcount :][: code.co_kwonlyargcount]
    rest = names[code.co_argcount + code.co_kwonlyargcount :]
    inside = list(positional)
    if code.co_flags & inspect.CO_VARARGS:
        inside.append(f"*{rest.pop(0)}")
    entries = [f"{keyword!r}: {keyword}" for keyword in keywords]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        entries.append(f"**{rest.pop(0)}")
    arguments = "".join(f"{argument}, " for argument in inside)
    call = ast.parse(f"{name}(({arguments}), {{{', '.join(entries)}}})", mode="eval").body
    for node in ast.walk(call):
        ast.copy_location(node, line)
    return call


class _KeepResult(ast.NodeTransformer):
    """Turn `return value` into `result = value; return result`, in the function itself and none inside it."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            return node
        if isinstance(node, (ast.Global, ast.Nonlocal)):  # the first copy of the body has declared these names
            return ast.copy_location(ast.Pass(), node)
        return self._keep(node) if isinstance(node, ast.Return) else self.generic_visit(node)

    def _keep(self, node: ast.Return) -> list[ast.stmt]:
        value = node.value or ast.copy_location(ast.Constant(value=None), node)
        target = ast.copy_location(ast.Name(id=RESULT, ctx=ast.Store()), node)
        result = ast.copy_location(ast.Name(id=RESULT, ctx=ast.Load()), node)
        keep = ast.copy_location(ast.Assign(targets=[target], value=value), node)
        return [keep, ast.copy_location(ast.Return(value=result), node)]
