"""What a script calls its model, optimizer, loss, loader and batch, read from how it uses them."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

from torchdoctor.fixes.scopes import Scope, walk_own

MODEL, OPTIMIZER, SCHEDULER, SCALER = "model", "optimizer", "scheduler", "scaler"
LOSS, CRITERION, LOADER = "loss", "criterion", "loader"
INPUTS, TARGETS, PREDICTION = "inputs", "targets", "prediction"

UNWRAPPED = ("enumerate", "tqdm", "trange", "track", "islice", "iter")
"""Calls around a loader in the head of a loop."""
MODEL_METHODS = ("parameters", "named_parameters", "state_dict", "train", "eval")


def find_roles(scope: Scope, optimizers: frozenset[str], schedulers: frozenset[str]) -> dict[str, str]:
    """Return the expression that stands for each role in a scope. A role that two expressions play is left out.

    `optimizers` and `schedulers` are the class names that the run has recorded.
    """
    candidates: dict[str, Counter[str]] = defaultdict(Counter)
    for role, expression in (
        *_by_construction(scope, optimizers, schedulers),
        *_by_call(scope),
        *_by_loop(scope),
        *_by_methods(scope),
    ):
        candidates[role][expression] += 1
    called = {_text(n.func) for n in scope.nodes() if isinstance(n, ast.Call)}
    models = [name for name in candidates[MODEL] if name not in candidates[OPTIMIZER]]
    candidates[MODEL] = Counter([name for name in models if name in called] or models)
    roles = {role: next(iter(found)) for role, found in candidates.items() if len(found) == 1}
    return _by_data_flow(scope, roles) | roles


def find_data(tree: ast.Module) -> list[tuple[str, str]]:
    """Return the variables that hold the inputs and targets of a whole split as tensors, a pair for each split.

    They are known by their use: handed to a TensorDataset, or indexed on their way into the model and the loss.
    """
    pairs: dict[tuple[str, str], None] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) >= 2):
        inputs, targets = call.args[:2]
        if _text(call.func).rpartition(".")[2] != "TensorDataset":
            inputs = inputs.args[0] if isinstance(inputs, ast.Call) and inputs.args else inputs
            if not isinstance(inputs, ast.Subscript) or not isinstance(targets, ast.Subscript):
                continue
            inputs, targets = inputs.value, targets.value
        if _is_name(inputs) and _is_name(targets):
            pairs[_text(inputs), _text(targets)] = None
    return list(pairs)


def _by_construction(scope: Scope, optimizers: frozenset[str], schedulers: frozenset[str]) -> Iterator[tuple[str, str]]:
    modules = _module_classes(scope)
    for target, call in _assigned_calls(scope):
        made = _text(call.func).rpartition(".")[2]
        if made in modules:
            yield MODEL, target
        elif made in optimizers:
            yield OPTIMIZER, target
        elif made in schedulers:
            yield SCHEDULER, target
        elif made == "GradScaler":
            yield SCALER, target
        elif made.endswith("Loss"):
            yield CRITERION, target


def _module_classes(scope: Scope) -> set[str]:
    """Classes of the script that are modules of their own."""
    while scope.parent is not None:
        scope = scope.parent
    return {
        node.name
        for node in ast.walk(scope.node)
        if isinstance(node, ast.ClassDef) and any(_text(base).endswith("Module") for base in node.bases)
    }


def _by_call(scope: Scope) -> Iterator[tuple[str, str]]:
    for node in scope.nodes():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        receiver, name = node.func.value, node.func.attr
        if name == "backward":
            yield from _backward_roles(receiver, node.args)
        elif name == "step" and len(node.args) == 1 and _is_name(node.args[0]) and "scal" in _text(receiver).lower():
            yield SCALER, _text(receiver)
            yield OPTIMIZER, _text(node.args[0])
        elif name == "step" and not node.args and _is_name(receiver):
            yield (SCHEDULER if "sched" in _text(receiver).lower() else OPTIMIZER), _text(receiver)


def _backward_roles(receiver: ast.expr, arguments: list[ast.expr]) -> Iterator[tuple[str, str]]:
    if isinstance(receiver, ast.Call) and receiver.args and isinstance(receiver.func, ast.Attribute):
        if receiver.func.attr == "scale":
            yield SCALER, _text(receiver.func.value)
        receiver = receiver.args[0]
    if isinstance(receiver, ast.BinOp):
        receiver = receiver.left
    if arguments and _is_name(arguments[0]):  # accelerator.backward(loss), fabric.backward(loss)
        receiver = arguments[0]
    if _is_name(receiver):
        yield LOSS, _text(receiver)


def _by_loop(scope: Scope) -> Iterator[tuple[str, str]]:
    for node in scope.nodes():
        if not isinstance(node, ast.For) or not any(_is_training_call(n) for n in walk_own(node)):
            continue
        source, target = node.iter, node.target
        while isinstance(source, ast.Call) and _text(source.func).rpartition(".")[2] in UNWRAPPED and source.args:
            if _text(source.func) == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                target = target.elts[1]
            source = source.args[0]
        if not _is_name(source):
            continue
        yield LOADER, _text(source)
        if (
            isinstance(target, ast.Tuple)
            and len(target.elts) == 2
            and all(isinstance(e, ast.Name) for e in target.elts)
        ):
            yield INPUTS, _text(target.elts[0])
            yield TARGETS, _text(target.elts[1])


def _by_methods(scope: Scope) -> Iterator[tuple[str, str]]:
    for node in scope.nodes():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.args:
            continue
        if node.func.attr in MODEL_METHODS and _is_name(node.func.value):
            yield MODEL, _text(node.func.value)


def _by_data_flow(scope: Scope, roles: dict[str, str]) -> dict[str, str]:
    """The loss is computed from the prediction and the targets, the prediction from the inputs."""
    found: dict[str, str] = {}
    calls = list(_assigned_calls(scope))
    for target, call in calls:
        if target == roles.get(LOSS) and len(call.args) >= 2:
            if _is_name(call.func) and not _text(call.func).startswith(("F.", "torch.", "nn.")):
                found.setdefault(CRITERION, _text(call.func))
            if _is_name(call.args[0]):
                found.setdefault(PREDICTION, _text(call.args[0]))
            if _is_name(call.args[1]):
                found.setdefault(TARGETS, _text(call.args[1]))
    fed = {
        _text(node.args[0])
        for node in scope.nodes()
        if isinstance(node, ast.Call) and _text(node.func) == roles.get(MODEL) and node.args
    }
    if len(fed) == 1 and _is_name(ast.parse(next(iter(fed)), mode="eval").body):
        found.setdefault(INPUTS, fed.pop())
    for target, call in calls:
        if _text(call.func) == roles.get(MODEL):
            found.setdefault(PREDICTION, target)
    return found


def _assigned_calls(scope: Scope) -> Iterator[tuple[str, ast.Call]]:
    for node in scope.nodes():
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if len(node.targets) == 1 and _is_name(node.targets[0]):
            yield _text(node.targets[0]), node.value


def _is_training_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("backward", "step")
    )


def _is_name(node: ast.AST) -> bool:
    """A variable, or attributes of one: `loss`, `self.optimizer`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _text(node: ast.AST) -> str:
    return ast.unparse(node)
