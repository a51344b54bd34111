"""A finding's `fix.code` put into the sick script, where that takes no thought; None where it does.

Three ways, tried in this order:

- `A  # instead of B`: every B in the script becomes A.
- a call that the script makes too: the literal arguments that the fix gives are set in it (lr, shuffle, a threshold).
  Of several such calls the one on a line that the finding points to is meant.
- statements that the healthy twin has and the sick script lacks: they go where the twin has them, and nothing else of
  the twin comes along. A statement that the sick script has elsewhere, and the twin has not, moves.
"""

from __future__ import annotations

import ast
import difflib
from pathlib import Path
from typing import Any

INSTEAD = "# instead of "


def apply(script: str, finding: dict[str, Any], twin: str | None) -> str | None:
    """The repaired text; None where the fix is not mechanical, or would change nothing."""
    code = (finding.get("fix") or {}).get("code")
    if not code:
        return None
    lines = {p["line"] for p in finding.get("where", ()) if p.get("line")}
    for repaired in (_replace(script, code), _set_arguments(script, code, lines), _insert(script, code, twin)):
        if repaired is not None and repaired != script:
            return repaired
    return None


def twin_of(path: str) -> str | None:
    """The healthy script of the same kind."""
    sick = Path(path)
    twin = sick.with_name(sick.name.replace("sick_", "healthy_", 1))
    return twin.read_text(encoding="utf-8") if twin.exists() else None


def _replace(script: str, code: str) -> str | None:
    new, mark, old = code.partition(INSTEAD)
    if not mark or "\n" in code or old.strip() not in script:
        return None
    return script.replace(old.strip(), new.strip())


def _set_arguments(script: str, code: str, lines: set[int]) -> str | None:
    wanted, made = _only_call(code), _calls(script)
    if wanted is None or not made:
        return None
    name = _callee(wanted)
    same = [call for call in made if _callee(call).rpartition(".")[2] == name.rpartition(".")[2]]
    pointed = [call for call in same if any(call.lineno <= line <= (call.end_lineno or 0) for line in lines)]
    chosen = pointed or same
    if len(chosen) != 1:
        return None
    edits = _edits(chosen[0], wanted)
    return _rewrite(script, edits) if edits else None


def _calls(code: str) -> list[ast.Call]:
    try:
        return [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return []


def _only_call(code: str) -> ast.Call | None:
    """The call that the fix consists of, or that it assigns; None where it is more or something else."""
    try:
        statements = ast.parse(code).body
    except SyntaxError:
        return None
    value = getattr(statements[0], "value", None) if len(statements) == 1 else None
    return value if isinstance(value, ast.Call) else None


def _callee(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False
    return True


def _edits(made: ast.Call, wanted: ast.Call) -> list[tuple[ast.expr, str]]:
    """(the expression in the script, its new text); an argument that is not there yet comes after the last one."""
    edits: list[tuple[ast.expr, str]] = []
    for i, argument in enumerate(wanted.args):
        if _is_literal(argument) and i < len(made.args):
            edits.append((made.args[i], ast.unparse(argument)))
    given = {k.arg: k.value for k in made.keywords}
    extra = []
    for keyword in wanted.keywords:
        if keyword.arg is None or not _is_literal(keyword.value):
            continue
        if keyword.arg in given:
            edits.append((given[keyword.arg], ast.unparse(keyword.value)))
        else:
            extra.append(f"{keyword.arg}={ast.unparse(keyword.value)}")
    if extra:
        last = made.keywords[-1].value if made.keywords else made.args[-1] if made.args else None
        if last is None:
            return []
        already = next((text for node, text in edits if node is last), ast.unparse(last))
        edits = [e for e in edits if e[0] is not last]
        edits.append((last, ", ".join([already, *extra])))
    return edits


def _rewrite(script: str, edits: list[tuple[ast.expr, str]]) -> str:
    lines = script.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = script.encode()
    for node, text in sorted(edits, key=lambda e: (e[0].lineno, e[0].col_offset), reverse=True):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        data = data[:begin] + text.encode() + data[end:]
    return data.decode()


def _insert(script: str, code: str, twin: str | None) -> str | None:
    if twin is None:
        return None
    wanted = {_plain(line) for line in code.splitlines() if _plain(line)}
    ours, theirs = script.splitlines(keepends=True), twin.splitlines(keepends=True)
    changes = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    brought = {}
    for tag, _, _, c, d in changes:
        added = {_plain(line) for line in theirs[c:d] if _plain(line)}
        if tag in ("insert", "replace") and added and added <= wanted:
            brought[c] = added
    moved = set().union(*brought.values())
    repaired: list[str] = []
    for tag, a, b, c, d in changes:
        if tag in ("insert", "replace") and c in brought:
            repaired += theirs[c:d]
        elif tag != "delete" or not {_plain(line) for line in ours[a:b]} <= moved:  # else it stands elsewhere now
            repaired += ours[a:b]
    return "".join(repaired) if brought else None


def _plain(line: str) -> str:
    """A line without its comment and layout; as it stands where it is no statement by itself."""
    text = line.strip()
    try:
        return ast.unparse(ast.parse(text))
    except SyntaxError:
        return text
