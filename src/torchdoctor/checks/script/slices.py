"""Statements that belong together, taken out of the user's source, and run again in a copy of their names."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from torchdoctor.checks.script.source import FUNCTIONS, Names, Scope, Spot, calls_of

STATES = frozenset(
    ("state_dict", "get_rng_state", "get_rng_state_all", "get_state", "getstate", "state_dict_for_save_checkpoint")
)
"""Calls by which a state is asked for."""
CHANGING = frozenset(("update", "setdefault", "pop", "append"))
"""Methods that change what a dictionary or a list holds."""
NAMES_MADE_UP = 8


# -- what a statement reads and writes ------------------------------------------------------------


def read(node: ast.AST) -> set[str]:
    """Names and attributes (`self.state`) that are in it."""
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            found.add(inner.id)
        elif isinstance(inner, ast.Attribute) and (text := dotted(inner)) is not None:
            found.add(text)
    return found


def written(statement: ast.stmt) -> set[str]:
    """Names and attributes that it assigns to, or whose items it sets."""
    return {text for target in _targets(statement) if (text := dotted(_base(target))) is not None}


def assigned(statement: ast.stmt) -> set[str]:
    """Of these, what is wholly new after it."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {text for target in targets for part in _parts(target) if (text := dotted(part)) is not None}


def dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)) is not None:
        return f"{base}.{node.attr}"
    return None


def _targets(statement: ast.stmt) -> Iterator[ast.expr]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign):
            yield from (part for target in node.targets for part in _parts(target))
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
            yield from _parts(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from _parts(node.optional_vars)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            yield node.func.value


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _parts(part)
    else:
        yield target


def _base(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    return target


def asks_for_state(node: ast.AST) -> bool:
    return any(isinstance(c.func, ast.Attribute) and c.func.attr in STATES for c in calls_of(node))


# -- what belongs to a statement --------------------------------------------------------------------


def led_up_to(spot: Spot, names: Names) -> list[ast.stmt]:
    """The statements before it that put together the states it uses, and the statement itself."""
    before = [s for block, number in spot.blocks for s in block[:number]]
    kept: set[int] = set()
    waiting, seen = list(read(spot.statement)), set()
    while waiting:
        name = waiting.pop()
        if name in seen or hasattr(names.get(name), "state_dict"):  # a model is not built again
            continue
        seen.add(name)
        writers = _since_assigned(name, before)
        if writers and _is_built(name, before, names, set()):
            kept.update(writers)
            waiting += [n for number in writers for n in read(before[number])]
    return [*(before[number] for number in sorted(kept)), spot.statement]


def _since_assigned(name: str, before: list[ast.stmt]) -> list[int]:
    writers = [number for number, s in enumerate(before) if name in written(s)]
    whole = [number for number in writers if name in assigned(before[number])]
    return [number for number in writers if not whole or number >= whole[-1]]


def _is_built(name: str, before: list[ast.stmt], names: Names, seen: set[str]) -> bool:
    """A state was asked for to make it, or for something it is made of."""
    if name in seen or hasattr(names.get(name), "state_dict"):
        return False
    seen.add(name)
    return any(
        asks_for_state(before[number]) or any(_is_built(n, before, names, seen) for n in read(before[number]))
        for number in _since_assigned(name, before)
    )


def followed_from(spot: Spot, scope: Scope) -> list[ast.stmt]:
    """A statement that loads, what it needs, and all that is done with what it gave, up to the training loop."""
    block, number = spot.blocks[-1]
    made = written(spot.statement)
    needed = read(spot.statement) - scope.names.keys()
    found = [s for s in block[:number] if assigned(s) & needed]
    found.append(spot.statement)
    tests = spot.tests
    for block, number in reversed(spot.blocks):
        for statement in block[number + 1 :]:
            if scope.line is not None and statement.lineno <= scope.line <= (statement.end_lineno or 0):
                return found
            for one in _under(statement, tests):
                if made & read(one) and not _builds_model(one, scope.names):
                    found.append(one)
                    made |= {n for n in written(one) if not hasattr(scope.names.get(n), "state_dict")}
    return found


def _builds_model(statement: ast.stmt, names: Names) -> bool:
    """Another in the place of the one that is trained."""
    return any(isinstance(names.get(name), nn.Module) for name in assigned(statement)) and not any(
        isinstance(c.func, ast.Attribute) and c.func.attr == "load_state_dict" for c in calls_of(statement)
    )


def _under(statement: ast.stmt, tests: list[str]) -> list[ast.stmt]:
    """What is done where the same question was answered with yes before."""
    if isinstance(statement, ast.If) and ast.unparse(statement.test) in tests:
        return statement.body
    return [statement]


# -- again ----------------------------------------------------------------------------------------------


def run_again(
    statements: list[ast.stmt],
    names: Names,
    file: str,
    instead: Callable[[str], Any],
    matters: Callable[[ast.stmt], bool] = lambda _: True,
) -> None:
    """In these names, which are written to. `instead` gives the value of a name that there is not; what goes wrong in a
    statement that does not matter is passed over."""
    for statement in statements:
        with contextlib.nullcontext() if matters(statement) else contextlib.suppress(Exception):
            _run(compile(_enclosed(statement), file, "exec"), names, instead)


def _run(code: Any, names: Names, instead: Callable[[str], Any]) -> None:
    for _ in range(NAMES_MADE_UP):
        try:
            exec(code, names)
            return
        except NameError as error:
            if error.name is None or error.name in names:
                raise
            names[error.name] = instead(error.name)


def _enclosed(statement: ast.stmt) -> ast.Module:
    """A statement out of a function or a loop can stand alone in a loop of one round."""
    found = _Standing().visit(ast.parse(ast.unparse(statement)).body[0])
    alone = ast.parse("for _torchdoctor_once in (0,): pass")
    alone.body[0].body = found if isinstance(found, list) else [found]  # type: ignore[attr-defined]
    return ast.increment_lineno(ast.fix_missing_locations(alone), statement.lineno - 1)


class _Standing(ast.NodeTransformer):
    """What returns ends there."""

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        value = node.value or ast.Constant(None)
        return [ast.copy_location(ast.Expr(value), node), ast.copy_location(ast.Break(), node)]

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)) else super().visit(node)
