"""Which names a place in a script can use: the scopes of one source file, read from its syntax tree."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NESTED = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
BUILTINS = frozenset(dir(builtins))


@dataclass(eq=False)
class Scope:
    """One function, or a module, with the names that are bound in it."""

    node: ast.Module | Function
    parent: Scope | None
    names: frozenset[str] = field(default_factory=frozenset)
    definitions: frozenset[str] = field(default_factory=frozenset)
    """of its names, those of imports, functions and classes"""

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<module>")

    def holds(self, line: int) -> bool:
        if isinstance(self.node, ast.Module):
            return True
        first = min([self.node.lineno, *(d.lineno for d in self.node.decorator_list)])
        return first <= line <= (self.node.end_lineno or self.node.lineno)

    def sees(self, name: str) -> bool:
        """Return whether code in this scope can use the name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.parent
        return name in BUILTINS

    def owns(self, name: str) -> bool:
        """Return whether the name holds wherever this scope runs: it is bound here, imported or defined."""
        scope: Scope | None = self
        while scope is not None:
            if name in (scope.names if scope is self else scope.definitions):
                return True
            scope = scope.parent
        return name in BUILTINS

    def nodes(self) -> Iterator[ast.AST]:
        """Walk the scope's own nodes, in order, without entering nested functions and classes."""
        return walk_own(self.node)


def walk_own(node: ast.AST) -> Iterator[ast.AST]:
    """Walk below a node, in source order, without entering nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, NESTED):
            yield from walk_own(child)


def find_scopes(tree: ast.Module) -> list[Scope]:
    """Return every scope of a file, outer scopes first. Functions in a class do not see the class's names."""
    scopes: list[Scope] = []

    def visit(node: ast.AST, parent: Scope | None) -> None:
        scope = parent
        if isinstance(node, (ast.Module, *FUNCTIONS)):
            scope = Scope(node, parent, bound_names(node), defined_names(node))
            scopes.append(scope)
        for child in ast.iter_child_nodes(node):
            visit(child, scope)

    visit(tree, None)
    return scopes


def innermost(scopes: list[Scope], line: int) -> Scope:
    """Return the innermost scope around a line; the module where no function holds it."""
    return next(scope for scope in reversed(scopes) if scope.holds(line))


def bound_names(node: ast.Module | Function) -> frozenset[str]:
    """Return the names that a function or module binds by assignment, import, definition or argument."""
    names: set[str] = set()
    if isinstance(node, FUNCTIONS):
        arguments = node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        names.update(argument.arg for argument in every if argument is not None)
    for child in walk_own(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        elif isinstance(child, ast.ExceptHandler) and child.name:
            names.add(child.name)
    return frozenset(names) | defined_names(node)


def defined_names(node: ast.Module | Function) -> frozenset[str]:
    """Return the names of a scope's imports, functions and classes."""
    names: set[str] = set()
    for child in walk_own(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            names.add(child.name)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name.partition(".")[0]) for alias in child.names)
    return frozenset(names)


def attributes_of_self(tree: ast.Module) -> frozenset[str]:
    """Return every attribute that some class of the file sets on itself or defines."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            names.update(child.name for child in node.body if isinstance(child, FUNCTIONS))
    return frozenset(names)


def statement_at(scope: Scope, line: int) -> ast.stmt | None:
    """Return the innermost simple statement that spans a line."""
    found: ast.stmt | None = None
    for node in scope.nodes():
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node
    return found if found is not None and not hasattr(found, "body") else None
