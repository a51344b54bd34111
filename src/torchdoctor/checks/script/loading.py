"""Where a script goes on from a checkpoint: a load before its loop from which the training is resumed.

A load for evaluation, of pretrained weights, or of the best model after the training is none.
"""

from __future__ import annotations

import ast
import copy
import inspect
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchdoctor.checks.script.options import PATH, RESUME, PathText, asked_to_resume
from torchdoctor.checks.script.redirection import Redirection
from torchdoctor.checks.script.saving import is_call_of, saves
from torchdoctor.checks.script.slices import dotted, followed_from, run_again
from torchdoctor.checks.script.source import (
    Names,
    Scope,
    Search,
    Spot,
    calls_of,
    function_of,
    inner_blocks,
    resolve,
    scope_of,
    scope_of_call,
)
from torchdoctor.findings import Place

EVALUATES = re.compile(r"(?<![a-z])(eval|test|infer|predict)", re.I)
OTHERWISE = re.compile(rf"pre_?train|fine_?tun|backbone|teacher|best|{EVALUATES.pattern}", re.I)
"""Words of loads from which a training begins, and does not go on."""
COUNT = re.compile(r"^(\w+_)?(epoch|iteration|iter|step)s?(_num)?$", re.I)
"""Under which a checkpoint says how far the training had come."""
LOADER = re.compile(r"load|resum|restor|checkpoint|ckpt|snapshot|recover", re.I)
"""Names of functions that load, and do not much else."""
OPTIMIZER = re.compile(r"optim|opt$|sched|scaler", re.I)
PATH_NAME = "_torchdoctor_path"

Way = Callable[[Redirection], None]


@dataclass(frozen=True)
class Load:
    """`ways` to do it, the likeliest first; `why` it is known that the training goes on from there."""

    place: Place
    ways: tuple[Way, ...]
    why: str | None
    certain: bool = True
    """the script itself would run it before its loop"""


def loads(node: ast.Call, names: Names) -> bool:
    return is_call_of(node, names, "torch", "load") or is_call_of(node, names, "safetensors.torch", "load_file")


def puts_state(node: ast.Call, _names: Names) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict"


def puts_progress(node: ast.Call, names: Names) -> bool:
    """Into an optimizer, a schedule or a scaler."""
    if not puts_state(node, names) or not isinstance(node.func, ast.Attribute):
        return False
    held = resolve(node.func.value, names)
    return isinstance(held, Optimizer | LRScheduler) or bool(OPTIMIZER.search(ast.unparse(node.func.value)))


def find_loads(scopes: list[Scope]) -> list[Load]:
    """From which the script would go on training."""
    finder = _Finder(scopes)
    return [load for scope in (*scopes, *_building(scopes)) for load in finder.in_scope(scope)]


class _Finder:
    def __init__(self, scopes: list[Scope]) -> None:
        self._loading, self._progress = Search(loads), Search(puts_progress)
        self._names = {name: value for scope in reversed(scopes) for name, value in scope.names.items()}
        """all that are known around the loop"""
        calls = [(c, s.names) for s in scopes for node in s.body for c in calls_of(node)]
        self._written = {ast.unparse(c.args[1]) for c, names in calls if saves(c, names) and len(c.args) > 1}
        """paths that the script saves to, as it writes them"""

    def in_scope(self, scope: Scope) -> Iterator[Load]:
        """All of one scope together: a script may load its model here and its optimizer there."""
        spots = [s for s in scope.spots() if not inner_blocks(s.statement) and is_before_loop(s, scope)]
        spots = _together([s for s in spots if self._loading.finds(s.statement, scope.names)])
        why = {id(s): reason for s in spots if (reason := self._why(s, scope)) is not None}
        spots = [s for s in spots if id(s) in why]
        if not spots:
            return
        calls, inside = [], []
        for spot in spots:
            called = [c for c in calls_of(spot.statement) if self._loading.finds_in_called(c, scope.names)]
            if not called:
                way = self._in_place(spot, scope)
                calls.append(way)
                inside.append(way)
                continue
            if any(LOADER.search(_name_of(c)) for c in called):
                calls.append(_calling(spot, called, scope))
            inside += [way for c in called for way in self._in_called(c, scope)]
        ways = tuple(_one_after_another(parts) for parts in (calls, inside) if parts)
        yield Load(Place(file=scope.file, line=spots[0].line), ways, next(iter(why.values())))

    def _why(self, spot: Spot, scope: Scope) -> str | None:
        """That a training goes on from it, in words."""
        statements = followed_from(spot, scope)
        inner = [scope_of_call(c, scope.names) for c in calls_of(spot.statement)]
        within = [s for i in inner if i is not None for s in i.body]
        if any(self._progress.finds(s, scope.names) for s in statements):
            return "more than a model is loaded"
        if any(EVALUATES.search(test) for test in spot.tests):
            return None
        told = " ".join([*spot.tests, ast.unparse(spot.statement)])
        if RESUME.search(told):
            return "it is called a resume"
        if OTHERWISE.search(told):
            return None
        if any(ast.unparse(c.args[0]) in self._written for c in calls_of(spot.statement) if c.args):
            return "the file is the one that the training saves to"
        counted = next((key for s in (*statements, *within) for key in _counts(s)), None)
        return f"its {counted!r} is read" if counted is not None else None

    def _in_place(self, spot: Spot, scope: Scope, names: Names | None = None) -> Way:
        statements = followed_from(spot, scope)
        known = names if names is not None else scope.names

        def matters(statement: ast.stmt) -> bool:
            return any(loads(c, known) or puts_state(c, known) for c in ast.walk(statement) if isinstance(c, ast.Call))

        def load(redirection: Redirection) -> None:
            path = PathText(redirection.path)
            names = asked_to_resume(redirection.names(known), path)
            run_again(statements, names, scope.file, lambda _: path, matters)

        return load

    def _in_called(self, call: ast.Call, scope: Scope) -> Iterator[Way]:
        """What the function that is called does with what it loads, without its questions before that."""
        inner = scope_of_call(call, scope.names)
        for spot in inner.spots() if inner is not None else ():
            if inner is None or inner_blocks(spot.statement):
                continue
            if self._loading.finds_here(spot.statement, inner.names):
                yield self._in_place(spot, inner, {**self._names, **inner.names})


def _counts(statement: ast.stmt) -> Iterator[str]:
    """Keys like "epoch" of what is assigned or returned: a load that is not to be gone on from at most prints them."""
    for node in ast.walk(statement):
        value = node.value if isinstance(node, ast.Assign | ast.AugAssign | ast.Return) else None
        for inner in ast.walk(value) if value is not None else ():
            keys = [inner.slice] if isinstance(inner, ast.Subscript) else []
            is_get = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "get"
            keys += inner.args[:1] if is_get else []  # type: ignore[attr-defined]
            yield from (k.value for k in keys if isinstance(k, ast.Constant) and COUNT.search(str(k.value)))


def is_before_loop(spot: Spot, scope: Scope) -> bool:
    """It has been passed, or would have been, on the way to the loop, and only once."""
    line = scope.line
    if line is None:
        return True
    if (spot.statement.end_lineno or spot.line) >= line:
        return False
    for number, statement in enumerate(spot.around):
        if statement.lineno <= line <= (statement.end_lineno or 0):
            block = spot.blocks[number + 1][0]
            if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
                return False
            if not any(s.lineno <= line <= (s.end_lineno or 0) for s in block):
                return False
    return True


def _together(spots: list[Spot]) -> list[Spot]:
    """Loads in the branches of one question (`if args.gpu is None:`) are one, and the question is asked."""
    found: dict[int, Spot] = {}
    for spot in spots:
        others = [o for o in spots if o is not spot]
        for depth, question in enumerate(spot.around):
            block = spot.blocks[depth + 1][0]
            apart = [o for o in others if question in o.around and o.blocks[depth + 1][0] is not block]
            if isinstance(question, ast.If) and apart:
                spot = Spot(question, spot.blocks[: depth + 1])
                break
        found.setdefault(id(spot.statement), spot)
    return list(found.values())


def _building(scopes: list[Scope]) -> Iterator[Scope]:
    """What made the objects that the loop is a method of."""
    for scope in scopes:
        holder = scope.names.get("self")
        function = function_of(getattr(type(holder), "__init__", None))
        if function is None:
            continue
        given = {n: v for n in inspect.signature(function).parameters if (v := scope.names.get(n)) is not None}
        given |= {n: vars(holder)[n] for n in inspect.signature(function).parameters if n in vars(holder)}
        made = scope_of(function.__code__, {**function.__globals__, **given, "self": holder})
        if made is not None:
            yield made


def _calling(spot: Spot, called: list[ast.Call], scope: Scope) -> Way:
    """The statement itself, with our file where it hands over a path."""
    texts = {ast.unparse(c) for c in called}
    statement = _Handing(texts, scope.names).visit(copy.deepcopy(spot.statement))

    def load(redirection: Redirection) -> None:
        path = PathText(redirection.path)
        names = {**asked_to_resume(redirection.names(scope.names), path), PATH_NAME: path}
        run_again([statement], names, scope.file, lambda _: path)

    return load


class _Handing(ast.NodeTransformer):
    def __init__(self, calls: set[str], names: Names) -> None:
        self._calls, self._names = calls, names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node) not in self._calls:
            return self.generic_visit(node)
        function = function_of(resolve(node.func, self._names))
        parameters = list(inspect.signature(function).parameters) if function is not None else []
        parameters = parameters[1:] if parameters[:1] in (["self"], ["cls"]) else parameters
        node.args = [self._handed(a, parameters[i] if i < len(parameters) else "") for i, a in enumerate(node.args)]
        for keyword in node.keywords:
            keyword.value = self._handed(keyword.value, keyword.arg or "")
        return node

    def _handed(self, argument: ast.expr, parameter: str) -> ast.expr:
        held = argument.value if isinstance(argument, ast.Constant) else resolve(argument, self._names)
        simple = held is None or isinstance(held, str | os.PathLike)
        if simple and (PATH.search(parameter) or PATH.search(dotted(argument) or "")):
            return ast.copy_location(ast.Name(PATH_NAME, ast.Load()), argument)
        return argument


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _one_after_another(parts: list[Way]) -> Way:
    def load(redirection: Redirection) -> None:
        for part in parts:
            part(redirection)

    return load
