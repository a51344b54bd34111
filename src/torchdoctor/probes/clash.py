"""The in-place error of autograd in plain words: what was kept, what changed it, what to write instead.

Pure: from the two operations and their lines to text. The error itself stays torch's.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

MARK = "has been modified by an inplace operation"
_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
_SIGNS = {"add_": "+=", "sub_": "-=", "mul_": "*=", "div_": "/=", "pow_": "**="}
LAYERS = {"addmm": "linear layer", "convolution": "convolution", "mm": "matrix product", "bmm": "matrix product"}
"""Operations that users know by another name."""
RESULTS = ("result", "result0", "result1", "output")
"""Names under which an operation keeps what it gave; under others it keeps what it was given."""


@dataclass(frozen=True)
class Kept:
    """The operation that needs the tensor as it was."""

    operation: str
    """autograd's name"""
    role: str
    """autograd's name for what was kept: result, self, mat2 ..."""
    file: str | None = None
    line: int | None = None
    code: str | None = None
    module: str | None = None

    @property
    def name(self) -> str:
        plain = _snake(self.operation.partition("Backward")[0])
        return LAYERS.get(plain, plain)


@dataclass(frozen=True)
class Changed:
    """The in-place operation."""

    operation: str
    """the dispatcher's name"""
    updating: bool = False
    """it is part of an optimizer's update"""
    file: str | None = None
    line: int | None = None
    code: str | None = None
    module: str | None = None


@dataclass
class Clash:
    """Both of them, as far as they are known."""

    kept: Kept | None = None
    changed: Changed | None = None
    parameter: str | None = None
    """the name of what was changed, where it is a weight"""
    reason: str | None = None
    """why the change is not known"""
    earlier: bool | None = None
    """the operation that kept it ran before the loop's body began anew; None where that is not known"""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Clash:
        kept, changed = data.get("kept"), data.get("changed")
        return cls(
            Kept(**kept) if kept else None,
            Changed(**changed) if changed else None,
            data.get("parameter"),
            data.get("reason"),
            data.get("earlier"),
        )


def is_clash(message: str) -> bool:
    return MARK in message


def versions(message: str) -> tuple[int | None, int | None]:
    """The version that the tensor has, and the one at which it was kept."""
    found = _VERSIONS.search(message)
    return (int(found[1]), int(found[2])) if found else (None, None)


def explain(clash: Clash) -> dict[str, Any]:
    """For run.json and the reports: the sentence, both places, and what to write instead."""
    advice, code = _instead(clash)
    told: dict[str, Any] = {"text": f"{_kept(clash)} {_changed(clash)}", "instead": advice}
    if code:
        told["code"] = code
    for key, part in (("kept", clash.kept), ("changed", clash.changed)):
        if part is not None:
            told[key] = {
                "operation": part.name if isinstance(part, Kept) else part.operation,
                **{name: getattr(part, name) for name in ("file", "line", "code", "module")},
            }
    if clash.parameter is not None:
        told["parameter"] = clash.parameter
    if clash.earlier is not None:
        told["earlier_step"] = clash.earlier
    if clash.changed is None and clash.reason and not _is_carried(clash):
        told["reason"] = clash.reason
    return told


def _kept(clash: Clash) -> str:
    kept = clash.kept
    if kept is None:
        return "An operation of the forward pass kept a tensor for its gradient."
    what = "its result" if kept.role in RESULTS else "what it was given"
    if clash.parameter is not None:
        what = f"the weight {clash.parameter}"
    elif kept.role == "tensors":
        what = "a tensor"
    return f"{kept.name}{_where(kept)} kept {what} for its gradient."


def _changed(clash: Clash) -> str:
    changed = clash.changed
    then = "so that the gradient cannot be computed any more."
    if _is_carried(clash):
        since = "its weights have been updated" if clash.parameter else "that tensor has been changed in place"
        return f"That was in an earlier step of the loop; {since} since then, {then}"
    if changed is None:
        return f"Something changed that tensor in place before backward, {then}"
    if changed.updating:
        return f"Then an optimizer's step{_where(changed, layer=False)} changed it in place, {then}"
    return f"Then {_operation(changed)}{_where(changed)} changed it in place, {then}"


def _operation(changed: Changed) -> str:
    if _is_indexed(changed):
        return "an assignment into part of it"
    sign = _SIGNS.get(changed.operation)
    return f"`{sign}`" if sign and changed.code and sign in changed.code else changed.operation


def _where(part: Kept | Changed, layer: bool = True) -> str:
    at = f" at {part.file.replace(chr(92), '/').rpartition('/')[2]}:{part.line}" if part.file and part.line else ""
    return at + (f" (in {part.module})" if layer and part.module else "")


def _instead(clash: Clash) -> tuple[str, str | None]:
    """Advice, and the line as it could be written."""
    changed = clash.changed
    if _is_carried(clash):
        return (
            "The loss reaches back into an earlier step: cut what is carried over from step to step off its graph.",
            "state = state.detach()",
        )
    if changed is None:
        return (
            "Look between that line and backward for an operation that ends in _, for +=, for an assignment x[...] = "
            "or for an optimizer's step; write it out of place, or change a clone.",
            None,
        )
    if changed.updating:
        return (
            "A graph is used up by an update of its weights: run every backward that goes through them before the "
            "step, or run the forward pass again after it. Where two networks are trained in turn, as in a GAN, "
            "detach() what one hands to the other, and compute the second loss after the first step.",
            None,
        )
    if _is_indexed(changed):
        return (
            "Collect the parts in a list and join them once with torch.stack or torch.cat; or assign into a clone.",
            None,
        )
    if changed.module and changed.file is not None and not _names_it(changed):
        return f"Switch off inplace=True in {changed.module}, or give it a clone of its input.", None
    return "Write it out of place: a new tensor instead of the same one changed.", _out_of_place(changed)


def _is_carried(clash: Clash) -> bool:
    """An earlier step's graph is used again after its update."""
    return bool(clash.earlier) and (clash.changed is None or clash.changed.updating)


def _is_indexed(changed: Changed) -> bool:
    statement = _statement(changed.code)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AugAssign) else targets
    return any(isinstance(t, ast.Subscript) for t in targets)


def _names_it(changed: Changed) -> bool:
    """The operation itself stands in that line, not the call of a layer that does it."""
    sign = _SIGNS.get(changed.operation)
    return bool(changed.code) and (changed.operation in str(changed.code) or bool(sign and sign in str(changed.code)))


def _out_of_place(changed: Changed) -> str | None:
    statement = _statement(changed.code)
    if isinstance(statement, ast.AugAssign):
        whole = ast.Assign([statement.target], ast.BinOp(_read(statement.target), statement.op, statement.value))
        return ast.unparse(ast.fix_missing_locations(whole))
    if not isinstance(statement, ast.Expr | ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    called = statement.value.func
    if not isinstance(called, ast.Attribute) or called.attr != changed.operation or not changed.operation.endswith("_"):
        return None
    owner, called.attr = ast.unparse(called.value), called.attr.removesuffix("_")
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement)
    of = ast.unparse(statement.value.args[0]) if owner in ("torch", "F") and statement.value.args else owner
    return f"{of} = {ast.unparse(statement.value)}"


def _statement(code: str | None) -> ast.stmt | None:
    try:
        parsed = ast.parse(code or "").body
    except SyntaxError:
        return None
    return parsed[0] if len(parsed) == 1 else None


def _read(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).strip("_")
