"""No single input is the target itself, or a multiple of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.loss_wiring import wiring_of
from torchdoctor.findings import Fix, Severity

CHECK = Check(
    name="target-leak",
    asks="no input is the target itself",
    part=DATA,
    order=25,
    diagnoses=("label-leakage",),
)
LEAST = 24
"""Samples with their targets."""
IMPROBABLE = 20.0
"""Bits: a column in a random order would match the target once in a million times, all columns together."""
SAME = 1e-5
"""Of the spread: what is left of the target beside a multiple of the column, in single precision."""
MOST_COLUMNS = 100_000


def perform(bench: Bench) -> Outcome:
    found = _pairs(bench)
    if found is None:
        return skipped("no inputs of numbers with one target a sample were seen")
    columns, target = found
    if len(target) < LEAST or float(target.std()) == 0:
        return skipped(f"{len(target)} samples with their targets are too few to tell")
    if _bits(target) < math.log2(columns.shape[1]) + IMPROBABLE:
        return skipped("its values are so few or so rare that some column would agree with the target by chance")
    left = _left(columns, target)
    at = int(left.argmin())
    if float(left[at]) > SAME:
        return passed(f"none of {columns.shape[1]} columns is one, over {len(target)} samples")
    same = bool(torch.allclose(columns[:, at], target, rtol=1e-5, atol=1e-6))
    return failed(
        f"column {at} of the inputs is the target{'' if same else ' but for its scale'}, in all {len(target)} samples "
        "that were looked at: the model reads the answer off it",
        "label-leakage",
        Fix(
            "Take that column out of the inputs: it will not be known when the model is used.",
            f"x = torch.cat([x[:, :{at}], x[:, {at + 1}:]], dim=1)",
        ),
        severity=Severity.ERROR,
        column=at,
    )


def _pairs(bench: Bench) -> tuple[Tensor, Tensor] | None:
    """Samples as rows of floating-point columns, and one number to predict for each."""
    rows, targets = [], []
    for look in wiring_of(bench).looks:
        call = look.calls[0] if len(look.calls) == 1 else None
        inputs = [t for t in look.inputs if t.is_floating_point() and t.dim() > 1]
        if call is None or call.target is None or len(inputs) != 1:
            return None
        target = call.target.detach().reshape(len(call.target), -1).double().cpu() if call.target.dim() else None
        columns = inputs[0].detach().flatten(1).double().cpu()
        if target is None or target.shape[1] != 1 or len(target) != len(columns) or columns.shape[1] < 2:
            return None
        if columns.shape[1] > MOST_COLUMNS:
            return None
        rows.append(columns)
        targets.append(target[:, 0])
    if not rows or len({r.shape[1] for r in rows}) != 1:
        return None
    return torch.cat(rows), torch.cat(targets)


def _bits(target: Tensor) -> float:
    """Of the number of orders that these values can stand in: one rare label among zeros can stand in few."""
    counts = torch.unique(target, return_counts=True)[1].double()
    orders = math.lgamma(len(target) + 1) - float(torch.lgamma(counts + 1).sum())
    return orders / math.log(2)


def _left(columns: Tensor, target: Tensor) -> Tensor:
    """For each column, the share of the target's spread that a line through it leaves; one where it never changes."""
    x, y = columns - columns.mean(0), target - target.mean()
    power = x.square().sum(0)
    slope = (x * y[:, None]).sum(0) / power.clamp(min=1e-300)
    rest = (y[:, None] - slope * x).square().mean(0).sqrt() / y.square().mean().sqrt()
    return torch.where(power > 0, rest, torch.ones_like(rest)).nan_to_num(math.inf)
