"""The script's own call with the arguments that a fix changes, in place of a call that a rule made up."""

from __future__ import annotations

import ast
import copy

from torchdoctor.facts import OptimizerFact
from torchdoctor.findings import Place
from torchdoctor.run import Run

POSITIONS = {
    **dict.fromkeys(("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax"), ("params", "lr")),
    "DataLoader": ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers"),
    "clip_grad_norm_": ("parameters", "max_norm", "norm_type"),
    "clip_grad_value_": ("parameters", "clip_value"),
    "CosineAnnealingLR": ("optimizer", "T_max", "eta_min"),
    "StepLR": ("optimizer", "step_size", "gamma"),
    "OneCycleLR": ("optimizer", "max_lr", "total_steps"),
}
"""Names of arguments that scripts give by position."""
LONGEST = 300
"""Characters of a statement of the script that is shown with its change."""


def merge_call(code: str, tree: ast.Module, place: Place, run: Run | None) -> str | None:
    """Return the script's own statement with the literal arguments of the code's call set in it.

    None where the code is no single call, the script makes no such call, or it cannot be told which one is meant.
    """
    wanted = _only_call(code)
    if wanted is None:
        return None
    name = ast.unparse(wanted.func).rpartition(".")[2]
    statement, call = _find_call(tree, name, _lines(place, name, run))
    if statement is None or call is None:
        return None
    changed = _set_arguments(statement, call, wanted, name, _recorded(name, run))
    if changed is None or len(changed) > LONGEST:
        return None
    comment = code.partition("  #")[2] if "\n" not in code else ""
    return f"{changed}  #{comment}" if comment and "\n" not in changed else changed


def _optimizers(run: Run | None) -> list[OptimizerFact]:
    return list(run.optimizers.values()) if run is not None else []


def _only_call(code: str) -> ast.Call | None:
    """The call that the code consists of, or that it assigns."""
    statements = ast.parse(code).body
    value = getattr(statements[0], "value", None) if len(statements) == 1 else None
    return value if isinstance(value, ast.Call) else None


def _lines(place: Place, name: str, run: Run | None) -> set[int]:
    """Lines of the file at which a call of that name is meant."""
    made = {o.line for o in _optimizers(run) if o.type == name and o.file == place.file and o.line}
    return made or ({place.line} if place.line else set())


def _find_call(tree: ast.Module, name: str, lines: set[int]) -> tuple[ast.stmt | None, ast.Call | None]:
    pairs = []
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Assign | ast.Expr | ast.Return):
            for node in ast.walk(statement.value) if statement.value is not None else ():
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                    pairs.append((statement, node))
    pointed = [pair for pair in pairs if any(pair[1].lineno <= n <= (pair[1].end_lineno or 0) for n in lines)]
    chosen = pointed or pairs
    return chosen[0] if len(chosen) == 1 else (None, None)


def _recorded(name: str, run: Run | None) -> dict[str, object]:
    """Hyperparameters that the script's optimizer had, which the code may repeat."""
    made = [o for o in _optimizers(run) if o.type == name]
    return dict(made[0].groups[0]) if len(made) == 1 and len(made[0].groups) == 1 else {}


def _set_arguments(
    statement: ast.stmt, call: ast.Call, wanted: ast.Call, name: str, recorded: dict[str, object]
) -> str | None:
    if any(k.arg is None for k in call.keywords):
        return None  # **options may hold any of them
    changed = copy.deepcopy(call)
    position = {argument: i for i, argument in enumerate(POSITIONS.get(name, ()))}
    given = {k.arg: k for k in changed.keywords}
    for argument, value in _literals(wanted, name):
        literal = ast.literal_eval(value)
        if argument != "lr" and _same(recorded.get(argument), literal):
            continue  # the code repeats what the script has
        if argument in given:
            given[argument].value = value
        elif position.get(argument, len(changed.args)) < len(changed.args):
            changed.args[position[argument]] = value
        else:
            changed.keywords.append(ast.keyword(argument, value))
    if ast.dump(changed) == ast.dump(call):
        return None
    return ast.unparse(_Swap(call, changed).visit(copy.deepcopy(statement)))


def _literals(wanted: ast.Call, name: str) -> list[tuple[str, ast.expr]]:
    names = POSITIONS.get(name, ())
    by_position = [(names[i], value) for i, value in enumerate(wanted.args) if i < len(names)]
    pairs = [*by_position, *((k.arg, k.value) for k in wanted.keywords if k.arg)]
    return [(argument, value) for argument, value in pairs if _is_literal(value)]


def _is_literal(node: ast.expr) -> bool:
    try:
        return ast.literal_eval(node) is not Ellipsis
    except (ValueError, TypeError, SyntaxError):
        return False


def _same(recorded: object, literal: object) -> bool:
    if isinstance(recorded, int | float) and isinstance(literal, int | float):
        return abs(recorded - literal) <= 1e-6 * max(abs(recorded), abs(literal))
    if isinstance(recorded, list):
        recorded = tuple(recorded)
    return recorded == literal


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.Call, new: ast.Call) -> None:
        self._old, self._new = ast.dump(old, include_attributes=True), new

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.dump(node, include_attributes=True) == self._old:
            return self._new
        return self.generic_visit(node)
