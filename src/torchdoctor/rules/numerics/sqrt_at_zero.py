"""A square root or fractional power is taken at zero, where its gradient is infinite.

## What it means
sqrt(0) is a plain 0, so the loss looks fine; but the slope of the root at zero is infinite. In the backward pass it
meets a zero from the square before it, and 0 times infinity is NaN: the update makes every weight NaN although no
loss ever showed it.

## Why it happens
- Distances between all pairs, each sample's to itself included: `sqrt(((a - b) ** 2).sum(-1))`.
- The root of a squared error that is exactly zero, or of a variance over equal values.
- `torch.where(x > 0, x.sqrt(), 0)`: the branch that is not taken still has its gradient.
- The root of a negative number, which is NaN at once.

## How it is detected
When a loss or gradient is not finite, the step is run again in a copy of the process, and every operation is checked:
the cause is the first that made something infinite or NaN of finite numbers, forward or backward. Here it is the
gradient of a root, of a fractional power or of acos or asin at the border, or one of them beyond its range. Where that
cannot be done (several processes), a root that a look saw at exactly zero, with a finite loss and finite batches, and
NaN in gradients or weights from then on, is named, less surely.

## How to fix it
Add a little inside: `torch.sqrt(x + 1e-8)`; or bound it: `x.clamp_min(1e-12).sqrt()`; or work with squares;
`torch.linalg.vector_norm` and `torch.cdist` have a gradient of zero at zero.

## Known false alarms
A root at zero whose gradient is not used does no harm, and without NaN nothing is told.

## References
PyTorch documentation, "torch.linalg.vector_norm" and the notes on gradients at points that are not differentiable
("Autograd mechanics").
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.findings import Finding, Fix
from torchdoctor.rules.numerics.operands import argument_of, guarded
from torchdoctor.rules.numerics.operations import CONSEQUENCES, Birth, find_birth, tell
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

RULE = Rule(code="N003", name="sqrt-at-zero", family="numerics", needs=(LOSS_TRAIN,), explains=CONSEQUENCES)


def detect(run: Run) -> Iterator[Finding]:
    birth = find_birth(run, "sqrt")
    if birth is None:
        return
    what, edge, code = _words(birth)
    yield from tell(
        run,
        RULE,
        birth,
        what=what,
        edge=edge,
        fix=Fix("Keep what goes in away from the edge, before the operation and not after it.", code),
        unit="smallest root",
    )


def _words(birth: Birth) -> tuple[str, str, str]:
    """What happens, at which edge, and how to write it instead."""
    if birth.operator in ("acos", "asin"):
        edge = "are at the border, where the gradient is infinite" if birth.backward else "are beyond -1 to 1"
        return (
            f"{birth.operator} at the border of its range",
            edge,
            _guard(birth, "clamp(-1 + 1e-6, 1 - 1e-6)", f"torch.{birth.operator}({{}})"),
        )
    if birth.operator == "pow":
        what = "a fractional power at zero" if birth.backward else "a fractional power of a negative number"
        return what, "are exactly zero" if birth.backward else "are below zero", "value.clamp_min(1e-8).pow(p)"
    if birth.backward:
        return "a square root at zero", "are exactly zero", _guard(birth, "add(1e-8)", "torch.sqrt({})")
    code = _guard(birth, "clamp_min(0).add(1e-8)", "torch.sqrt({})")
    return "the square root of a negative number", "are below zero", code


def _guard(birth: Birth, guard: str, whole: str) -> str:
    quantity = argument_of(birth.source_line, "sqrt", "acos", "arccos", "asin", "arcsin")
    return guarded(quantity, guard, whole) if quantity is not None else whole.format(f"value.{guard}")
