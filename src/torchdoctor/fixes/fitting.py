"""Fitting a rule's code to the script: its names, its own call with new arguments, the imports that it has.

A rule writes its code with usual names (`model`, `optimizer`, `loader`, `x`, `y`). Code whose names all mean something
at its place in the script is printed as code; what cannot be fitted stays an example, which the reader has to adapt.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchdoctor.facts import CallSiteFact, SchedulerFact
from torchdoctor.findings import Fix, Place
from torchdoctor.fixes import roles
from torchdoctor.fixes.calls import merge_call
from torchdoctor.fixes.names import Replacement, apply_replacements, assigned_names, unbound_names
from torchdoctor.fixes.scopes import Scope, attributes_of_self, find_scopes, innermost, statement_at
from torchdoctor.fixes.source import parse_source
from torchdoctor.run import Run

ROLE_OF_NAME = {
    "model": roles.MODEL,
    "optimizer": roles.OPTIMIZER,
    "scheduler": roles.SCHEDULER,
    "scaler": roles.SCALER,
    "loss": roles.LOSS,
    "criterion": roles.CRITERION,
    "loader": roles.LOADER,
    "train_loader": roles.LOADER,
    "x": roles.INPUTS,
    "y": roles.TARGETS,
    "target": roles.TARGETS,
    "targets": roles.TARGETS,
    "logits": roles.PREDICTION,
    "output": roles.PREDICTION,
    "out": roles.PREDICTION,
}
"""The names that rules write, and the role that each stands for."""

QUALIFIED = {
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    **{name: f"torch.utils.data.{name}" for name in ("DataLoader", "Subset", "TensorDataset", "random_split")},
    "CosineAnnealingLR": "torch.optim.lr_scheduler.CosineAnnealingLR",
}
"""What a script that imports torch can use all the same."""
COMMAND = "torchdoctor "
"""Begins code that is a command for the shell."""
IMPORTABLE = {"torch": "torch", "np": "numpy", "math": "math", "random": "random", "os": "os"} | {
    name: name for name in ("collections", "itertools", "copy")
}
OPTIMIZERS = frozenset(
    ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "LBFGS", "Muon", "Adafactor")
)


@dataclass(frozen=True)
class Fitted:
    """Code in the script's own names, and the scope in which those names hold."""

    code: str
    file: str
    scope: str


def fit_fix(fix: Fix, places: Iterable[Place], run: Run | None, folders: Iterable[str | Path]) -> Fix:
    """Return the fix with code that runs in the script, or with its code as an example.

    `places` are where the code may belong, the most likely one first; `run` knows more of them. Only files below
    `folders` are read.
    """
    if fix.code is None or fix.code.startswith(COMMAND):
        return fix
    fitted = fit_code(fix.code, places, run, tuple(folders))
    return Fix(fix.text, fitted.code) if fitted is not None else Fix(fix.text, None, fix.code)


def fit_code(code: str, places: Iterable[Place], run: Run | None, folders: tuple[str | Path, ...]) -> Fitted | None:
    """Return the code in the names of the first scope in which all of it means something; None if there is none."""
    sites = []
    named = [place for place in places if place.file and place.line]
    for place in (*named, *_recorded_places(run)):
        tree = parse_source(place.file or "", folders)
        if tree is not None:
            sites.append((place, tree, innermost(find_scopes(tree), place.line or 1)))
    for is_known in (Scope.owns, Scope.sees):  # a variable of an outer scope may not be set yet
        for place, tree, scope in sites:
            completed = _complete(code, scope, place.line if place in named else None)
            if completed is None:
                continue
            merged = merge_call(completed, tree, place, run) or completed
            if any(_is_idle(statement) for statement in ast.parse(merged).body):
                continue
            fitted = _rename(merged, scope, tree, run, is_known)
            if fitted is not None:
                return Fitted(fitted, place.file or "", scope.name)
    return None


def _recorded_places(run: Run | None) -> Iterator[Place]:
    """Places of the script's optimizers and of the calls that make up its loop."""
    if run is None:
        return
    for optimizer in run.optimizers.values():
        if optimizer.file:
            yield Place(file=optimizer.file, line=optimizer.line)
    for name in ("backward", "step", "zero_grad", "train", "eval"):
        for site in run.facts(CallSiteFact):
            if site.call == name:
                yield Place(file=site.file, line=site.line)


def _complete(code: str, scope: Scope, line: int | None) -> str | None:
    """Give a lone `with ...:` the script's own statement at a line as its body; None where the code stays torn."""
    statement = statement_at(scope, line) if line is not None else None
    if code.startswith("with ") and "\n" not in code and not _parses(code) and statement is not None:
        code = f"{code}\n    {ast.unparse(statement)}"
    return code if _parses(code) and _has_effect(code, scope) else None


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return not any(isinstance(n, ast.Constant) and n.value is Ellipsis for n in ast.walk(ast.parse(code)))


def _has_effect(code: str, scope: Scope) -> bool:
    """Return whether every name that the code sets is read later, by the code itself or by the script."""
    tree = ast.parse(code)
    stored = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return all(n.id in loaded or n.id in ROLE_OF_NAME or scope.sees(n.id) for n in stored)


def _is_idle(statement: ast.stmt) -> bool:
    """A value that nothing takes: a part of an expression, or a module that is only built (`nn.LeakyReLU(0.01)`)."""
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    return not isinstance(value, ast.Call) or ast.unparse(value.func).rpartition(".")[2][:1].isupper()


def _rename(
    code: str, scope: Scope, tree: ast.Module, run: Run | None, is_known: Callable[[Scope, str], bool]
) -> str | None:
    """Return the code with the script's names and the imports that it lacks; None if a name means nothing here."""
    optimizers = OPTIMIZERS | {fact.type for fact in (run.optimizers.values() if run else ())}
    schedulers = frozenset(fact.type for fact in (run.facts(SchedulerFact) if run else ()))
    known = roles.find_roles(scope, optimizers, schedulers)
    needed = unbound_names(code)
    data = _data_names(needed, tree)
    if data is None:
        return None
    replacements: list[Replacement] = []
    imports: dict[str, None] = {}
    for name in needed:
        expression = known.get(ROLE_OF_NAME.get(name, ""))
        if name in data:
            if not is_known(scope, data[name]):
                return None
            replacements.append(Replacement(name, data[name]))
        elif expression is not None:
            replacements.append(Replacement(name, expression))
        elif is_known(scope, name):
            continue
        elif name in QUALIFIED:
            replacements.append(Replacement(name, QUALIFIED[name]))
            if not is_known(scope, "torch"):
                imports["import torch"] = None
        elif name in IMPORTABLE:
            module = IMPORTABLE[name]
            imports[f"import {module}" + (f" as {name}" if name != module else "")] = None
        else:
            return None
    results = [n for n in assigned_names(code) if n not in data and ROLE_OF_NAME.get(n) in known]
    replacements += [Replacement(name, known[ROLE_OF_NAME[name]]) for name in results]
    if not _attributes_exist(code, tree):
        return None
    body = apply_replacements(code, replacements)
    return "\n".join([*imports, body]) if _parses(body) else None


def _data_names(needed: list[str], tree: ast.Module) -> dict[str, str] | None:
    """Return the script's variables for the names of whole splits (X and y, or X_train, X_val ...); empty where the
    code uses none, None where a variable of the script is not known to be such a tensor."""
    if not any(name.partition("_")[0] == "X" for name in needed):
        return {}
    pairs = roles.find_data(tree)
    if "X" in needed:
        if len(pairs) != 1:
            pairs = [pair for pair in pairs if pair[0] == "X"]
        return dict(zip(("X", "y"), pairs[0], strict=True)) if len(pairs) == 1 else None
    tensors = {name for pair in pairs for name in pair}
    wanted = [name for name in needed if name.startswith(("X_", "y_"))]
    return {name: name for name in wanted} if tensors.issuperset(wanted) else None


def _attributes_exist(code: str, tree: ast.Module) -> bool:
    """Return whether every attribute of `self` that the code reads is set somewhere in the file."""
    read = {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        if isinstance(node.ctx, ast.Load)
    }
    return not read or read <= attributes_of_self(tree)
