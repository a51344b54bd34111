"""What the user's own line puts into an operation, so that a fix can guard that very quantity."""

from __future__ import annotations

import ast


def argument_of(code: str | None, *functions: str) -> str | None:
    """Return what a line of source passes to a function of one of these names, as `torch.log(s)` or `s.log()`.

    None where the line is missing, is only a part of a statement, or has no such call or several different ones.
    """
    found = set()
    for node in _nodes(code):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        if name.rstrip("_") not in functions:
            continue
        is_method = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in MODULES
        if is_method:
            found.add(ast.unparse(node.func.value))
        elif node.args:
            found.add(ast.unparse(node.args[0]))
    return found.pop() if len(found) == 1 else None


def divisor_of(code: str | None) -> str | None:
    """Return what a line of source divides by; None where it divides by nothing, by a number, or several times."""
    found = {
        ast.unparse(node.right if isinstance(node, ast.BinOp) else node.value)
        for node in _nodes(code)
        if (isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div))
        if not isinstance(node.right if isinstance(node, ast.BinOp) else node.value, ast.Constant)
    }
    return found.pop() if len(found) == 1 else None


def guarded(quantity: str, guard: str, whole: str) -> str:
    """Return the code that guards a quantity: the quantity itself where it has a name, so that every use of it is
    guarded, else the operation with the guarded expression in it.

    `guard` is a method call such as `clamp_min(1e-8)`; `whole` is the operation, with {} for its argument.
    """
    if quantity.replace(".", "").replace("_", "").isalnum():
        return f"{quantity} = {quantity}.{guard}  # before this line, so that every use is guarded"
    return whole.format(f"({quantity}).{guard}")


MODULES = ("torch", "F", "math", "np", "numpy", "nn.functional", "torch.nn.functional", "torch.special")


def _nodes(code: str | None) -> list[ast.AST]:
    if not code:
        return []
    for text in (code, code.rstrip(":") + ":\n    pass", f"({code})"):
        try:
            return list(ast.walk(ast.parse(text.strip())))
        except SyntaxError:
            continue
    return []
