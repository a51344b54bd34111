"""The names that a piece of code needs from its surroundings, and replacing them in its text."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Replacement:
    """A name in the code and the expression that takes its place."""

    name: str
    expression: str


def unbound_names(code: str) -> list[str]:
    """Return the names that the code reads before it binds them, in order."""
    found: dict[str, None] = {}
    _collect(ast.parse(code).body, set(), found)
    return list(found)


def assigned_names(code: str) -> list[str]:
    """Return the names that the code assigns and does not read again, so that the script has to."""
    nodes = list(ast.walk(ast.parse(code)))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    return [target.id for target in targets if isinstance(target, ast.Name) and target.id not in read]


def _collect(statements: list[ast.stmt], bound: set[str], found: dict[str, None]) -> None:
    for statement in statements:
        if isinstance(statement, ast.FunctionDef):
            bound.add(statement.name)
            inner = {argument.arg for argument in statement.args.args} | bound
            _collect(statement.body, inner, found)
            continue
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        head = [node for node in ast.iter_child_nodes(statement) if not any(node in block for block in blocks)]
        stored = {
            n.id for part in head for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        local = _comprehension_names(head)
        for part in head:
            for node in ast.walk(part):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound | local:
                    found[node.id] = None
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound.update((alias.asname or alias.name.partition(".")[0]) for alias in statement.names)
        target = statement.target if isinstance(statement, ast.AugAssign) else None
        if isinstance(target, ast.Name) and target.id not in bound:
            found[target.id] = None
        bound |= stored
        for block in blocks:
            _collect(block, bound, found)


def _comprehension_names(parts: list[ast.AST]) -> set[str]:
    """Names that comprehensions and lambdas bind for themselves."""
    names: set[str] = set()
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.comprehension):
                names |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.Lambda):
                names |= {argument.arg for argument in node.args.args}
    return names


def apply_replacements(code: str, replacements: list[Replacement]) -> str:
    """Return the code with every use of these names replaced; comments and layout stay."""
    table = {r.name: r.expression for r in replacements}
    lines = code.splitlines(keepends=True)
    spots = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name) and n.id in table]
    for node in sorted(spots, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        line = lines[node.lineno - 1].encode()
        end = node.end_col_offset or node.col_offset
        lines[node.lineno - 1] = (line[: node.col_offset] + table[node.id].encode() + line[end:]).decode()
    return "".join(lines)
