"""Sequences whose next steps are the targets, and outputs by position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdoctor.checks.model.influence import Change
from torchdoctor.probes.token_targets import LEAST_LENGTH
from torchdoctor.rules.procedure.missing_target_shift import FOLLOWING, SAME


@dataclass(frozen=True)
class Sequence:
    """An input whose next steps are what is to be predicted."""

    number: int
    """of the input"""
    time: int
    """its dimension"""
    length: int
    rows: int
    counted: Tensor
    """(rows, length): the loss asks for what follows here"""


def sequences_in(inputs: list[Tensor], targets: list[Tensor]) -> Iterator[Sequence]:
    for number, given in enumerate(inputs):
        for target in targets:
            for time in (1, 0, 2):
                found = sequence_of(number, given, target, time)
                if found is not None:
                    yield found
                    break


def sequence_of(number: int, given: Tensor, target: Tensor, time: int, ahead: int = 1) -> Sequence | None:
    """The target is this input so many steps ahead, along this dimension."""
    if given.dim() < 2 or given.dtype == torch.bool or (time == 2 and given.dim() != 3):  # channels first
        return None
    if given.shape[time] < LEAST_LENGTH:
        return None
    if given.is_floating_point() != target.is_floating_point() or (not given.is_floating_point() and given.dim() > 2):
        return None
    steps = given.movedim(time, 1)
    rows, length = steps.shape[:2]
    rest = steps.shape[2:]
    lengths = (length, length - 1) if ahead else (length,)
    wanted_length = next((n for n in lengths if target.numel() == rows * n * max(1, rest.numel())), None)
    if wanted_length is None:
        return None
    laid = [*given.shape[:time], wanted_length, *given.shape[time + 1 :]]
    wanted = target.detach().to(given.device).reshape(laid).movedim(time, 1)[:, : length - 1]
    now, later = steps[:, :-1], steps[:, 1:]
    asked = wanted >= 0 if not given.is_floating_point() else torch.ones_like(wanted, dtype=torch.bool)
    telling = (now != later) & asked
    count = int(telling.sum())
    told = ((later if ahead else now) == wanted) & telling
    if count < LEAST_LENGTH or float(told.sum()) / count < (FOLLOWING if ahead else SAME):
        return None
    counted = torch.ones(rows, length, dtype=torch.bool, device=given.device)
    counted[:, : length - 1] = asked.reshape(rows, length - 1, -1).any(-1)
    return Sequence(number, time, length, rows, counted)


def by_position(tensor: Tensor, sequence: Sequence) -> Tensor | None:
    """(rows, length, rest) of an output; None where it has no time."""
    rows, lengths = sequence.rows, (sequence.length, sequence.length - 1)
    shape = list(tensor.shape)
    if not shape:
        return None
    first = [rows, shape[1]] if sequence.time == 1 and len(shape) > 1 else [shape[0], rows]
    if sequence.time != 2 and len(shape) >= 2 and shape[:2] == first and shape[sequence.time] in lengths:
        return tensor.movedim(sequence.time, 1).reshape(rows, shape[sequence.time], -1)
    if len(shape) == 3 and shape[0] == rows and shape[2] in lengths:
        return tensor.movedim(2, 1)
    for length in lengths:
        if len(shape) == 2 and shape[0] == rows * length:
            laid = (length, rows, -1) if sequence.time == 0 else (rows, length, -1)
            return tensor.reshape(laid).movedim(0 if sequence.time == 0 else 1, 1)
    return None


def exchange_step(sequence: Sequence, position: int) -> Change:
    """One step of the input as it is in other samples; by noise where it is alike in all."""

    def change(number: int, given: Tensor) -> Tensor:
        if number != sequence.number:
            return given
        changed = given.clone()
        here = changed.select(sequence.time, position)
        other = here.roll(1, 0)
        if bool((other == here).all()):
            other = given.select(sequence.time, 0)
        if given.is_floating_point() and bool((other == here).all()):
            generator = torch.Generator().manual_seed(position)
            noise = torch.randn(here.shape, generator=generator).to(given.device) * given.float().std()
            other = other + noise.to(given.dtype)
        here.copy_(other.clone())
        return changed

    return change


def moved_by_position(before: Tensor, after: Tensor, sequence: Sequence) -> Tensor:
    """By position: the largest change of an output that the loss looks at."""
    if before.shape != after.shape:
        return torch.zeros(1)
    difference = torch.nan_to_num((after - before).abs().float()).amax(-1)
    return (difference * sequence.counted[:, : difference.shape[1]].to(difference.device)).amax(0)


def positions_first(made: Tensor, sequence: Sequence) -> Tensor | None:
    laid = by_position(made, sequence)
    if laid is None or laid.shape[1] != sequence.length:
        return None
    return laid.movedim(1, 0).reshape(sequence.length, -1)
