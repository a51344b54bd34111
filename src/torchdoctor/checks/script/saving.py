"""Where a script saves its training: seen while it rehearsed, or found in the source that stands around its loop."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import Any

from torchdoctor.checks.script.options import PATH, PathText
from torchdoctor.checks.script.redirection import Redirection
from torchdoctor.checks.script.save_watch import SaveWatch, Standing
from torchdoctor.checks.script.slices import STATES, led_up_to, run_again
from torchdoctor.checks.script.source import Names, Scope, Search, Spot, inner_blocks, resolve, scope_of
from torchdoctor.findings import Place


@dataclass(frozen=True)
class Save:
    """Statements of the script's that save."""

    scope: Scope
    statements: list[ast.stmt]

    @property
    def place(self) -> Place:
        return Place(file=self.scope.file, line=self.statements[-1].lineno)

    @property
    def text(self) -> str:
        return "\n".join(map(ast.unparse, self.statements))

    def perform(self, redirection: Redirection) -> None:
        """What goes wrong after the file is written, such as a copy of it, is no matter."""

        def instead(name: str) -> Any:
            return PathText(redirection.path) if PATH.search(name) else 0

        try:
            run_again(self.statements, redirection.names(self.scope.names), self.scope.file, instead)
        except Exception:
            if not redirection.files:
                raise


def is_call_of(node: ast.Call, names: Names, module: str, name: str, *aliases: str) -> bool:
    """Of a function of torch, by whatever name it was imported."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == name:
        return getattr(resolve(function.value, names), "__name__", "") == module
    held = sys.modules.get(module)
    known = [getattr(held, n, None) for n in (name, *aliases)]
    return isinstance(function, ast.Name) and any(names.get(function.id) is f for f in known if f is not None)


def saves(node: ast.Call, names: Names) -> bool:
    return is_call_of(node, names, "torch", "save") or is_call_of(node, names, "safetensors.torch", "save_file")


def asks(node: ast.Call, names: Names) -> bool:
    """For a state, or saves a whole model."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in STATES:
        return True
    return saves(node, names) and bool(node.args) and hasattr(resolve(node.args[0], names), "state_dict")


def find_saves(scopes: list[Scope], watch: SaveWatch | None = None) -> list[Save]:
    """`scopes`: what stands around the loop, the innermost first."""
    asking = Search(asks)
    found = [_of_stack(stack, scopes, asking) for stack in (watch.seen.values() if watch is not None else ())]
    found += _in_source(scopes, Search(saves), asking)
    together: dict[str, Save] = {}
    for save in found:
        if save is not None:
            together.setdefault(f"{save.scope.file} {save.scope.title} {save.text}", save)
    return list(together.values())


def _of_stack(stack: list[Standing], scopes: list[Scope], asking: Search) -> Save | None:
    """Of the frames that led there, the innermost that puts the states together or has them put together."""
    for standing in stack:
        scope = scope_of(standing.code, standing.names)
        spot = scope.at(standing.line) if scope is not None else None
        if scope is None or spot is None:
            continue
        if any(s.file == scope.file and s.title == scope.title and spot.spans(s.line or -1) for s in scopes):
            return None  # the loop itself
        statements = led_up_to(spot, scope.names)
        if any(asking.finds(s, scope.names) for s in statements):
            return Save(scope, statements)
    return None


def _in_source(scopes: list[Scope], saving: Search, asking: Search) -> list[Save]:
    found = []
    for scope in scopes:
        blocks: dict[int, list[Spot]] = {}
        for spot in scope.spots():
            passes = inner_blocks(spot.statement) or spot.spans(scope.line or -1)
            if not passes and saving.finds(spot.statement, scope.names):
                blocks.setdefault(id(spot.blocks[-1][0]), []).append(spot)
        for spots in blocks.values():
            led = [statement for spot in spots for statement in led_up_to(spot, scope.names)]
            statements = list({id(s): s for s in led}.values())
            if any(asking.finds(s, scope.names) for s in statements):
                found.append(Save(scope, sorted(statements, key=lambda s: s.lineno)))
    return found
