"""What the target of a batch holds, and what may be wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchdoctor.findings import Severity
from torchdoctor.instruments.one_look.problems import Problem, Seen, nonfinite_problem
from torchdoctor.probes.loss_calls import ROW_SUM_TOLERANCE
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data.unnormalized_inputs import LARGE_TARGET

IGNORED = -100
"""What torch's cross_entropy leaves out unless told otherwise."""
MOST_CLASSES = 1000
"""Of more different whole numbers no counts are kept."""
LARGEST_SHARE, ENOUGH = 0.8, 16
"""Of one class in a batch of at least so many samples."""
LEAK_SAMPLES, LEAK = 32, 0.99999
"""A feature that follows the target so closely by chance is out of the question from so many samples on."""


@dataclass(frozen=True)
class Labels:
    kind: str
    """"classes", "one-hot", "probabilities", "labels" (several at once), "tokens" or "numbers\""""
    words: str
    counts: dict[str, int] = field(default_factory=dict)


def read_labels(seen: Seen, tensor: Tensor, ignore_index: int = IGNORED) -> Labels:
    values = tensor.detach()
    if not values.numel():
        return Labels("numbers", "nothing")
    if not seen.is_float and values.dtype != torch.bool:
        return _whole(seen, values, ignore_index)
    if values.dtype == torch.bool or _are_flags(values):
        return _flags(values)
    rows = values.float()
    if rows.dim() == 2 and rows.shape[1] > 1 and seen.low >= 0 and _sum_to_one(rows):
        return Labels("probabilities", f"probabilities over {rows.shape[1]} classes")
    if seen.low >= 0 and seen.high <= 1:
        return Labels("labels", "soft labels between 0 and 1")
    return Labels("numbers", f"numbers from {figure(seen.low)} to {figure(seen.high)}, std {figure(seen.std)}")


def _whole(seen: Seen, values: Tensor, ignore_index: int) -> Labels:
    kept = values[values != ignore_index].flatten()
    left_out = values.numel() - len(kept)
    ignored = f", {left_out} of {values.numel()} left out ({ignore_index})" if left_out else ""
    if values.dim() >= 2 and values.shape[1:].numel() > 1:
        if values.dim() == 2 and len(kept) and kept.min() == 0 and kept.max() == 1:
            return _flags(values)
        return Labels("tokens", f"a class for each of {values.shape[1:].numel()} places{ignored}")
    numbers, counts = torch.unique(kept, return_counts=True)
    if len(numbers) > MOST_CLASSES:
        return Labels("numbers", f"{len(numbers)} different whole numbers{ignored}")
    table = {str(n): c for n, c in zip(numbers.tolist(), counts.tolist(), strict=True)}
    return Labels("classes", f"{len(numbers)} class{'es' * (len(numbers) != 1)} in it{ignored}", table)


def _are_flags(values: Tensor) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def _sum_to_one(rows: Tensor) -> bool:
    return bool(((rows.sum(1) - 1).abs() < ROW_SUM_TOLERANCE).all())


def _flags(values: Tensor) -> Labels:
    rows = values.float()
    if rows.dim() == 2 and rows.shape[1] > 1:
        counts = {str(i): int(n) for i, n in enumerate(rows.sum(0).tolist())} if rows.shape[1] <= MOST_CLASSES else {}
        if _sum_to_one(rows):
            return Labels("one-hot", f"one-hot rows over {rows.shape[1]} classes", counts)
        return Labels("labels", f"{rows.shape[1]} labels of 0 and 1, {float(rows.sum(1).mean()):.2g} a sample", counts)
    ones = int(rows.sum())
    return Labels("classes", "0 and 1", {"0": rows.numel() - ones, "1": ones})


def target_problems(
    seen: Seen,
    tensor: Tensor,
    inputs: list[tuple[Seen, Tensor]],
    classes: int | None = None,
    ignore_index: int = IGNORED,
) -> list[Problem]:
    if not tensor.numel():
        return []
    found = [nonfinite_problem(seen, tensor)] if seen.nonfinite else []
    labels = read_labels(seen, tensor, ignore_index)
    if labels.kind in ("classes", "tokens") and not seen.is_float and tensor.dtype != torch.bool:
        found += _indices(seen, tensor, classes, ignore_index)
    if labels.kind == "numbers" and seen.is_float:
        found += _numbers(seen, tensor)
    found += [*_types(seen, tensor, labels), *_balance(seen, labels), *_width(seen, labels, classes)]
    if not seen.nonfinite:
        found += _leak(seen, tensor, inputs)
    return found


def _indices(seen: Seen, tensor: Tensor, classes: int | None, ignore_index: int) -> Iterator[Problem]:
    kept = tensor[tensor != ignore_index]
    if not len(kept):
        text = f"every label is {ignore_index}, which the loss leaves out"
        yield Problem(Severity.ERROR, seen.name, text, "The mean over nothing is NaN. Leave such batches out.")
        return
    low, high = int(kept.min()), int(kept.max())
    if low < 0:
        fix = f"Class numbers run from 0; if {low} means 'none', use ignore_index={low}."
        yield Problem(Severity.ERROR, seen.name, f"the lowest label is {low}", fix)
    if classes is not None and high >= classes:
        begin = low == 1 and high == classes
        fix = (
            "They begin at 1: subtract 1." if begin else f"The model needs {high + 1} outputs, or the labels an order."
        )
        text = f"labels go up to {high}, with {classes} classes they end at {classes - 1}"
        yield Problem(Severity.ERROR, seen.name, text, fix)
    elif classes is None and low == 1 and len(kept) >= 4 * (high + 1):
        text, fix = f"no label is 0: they run from 1 to {high}", "If they count from 1, subtract 1."
        yield Problem(Severity.WARNING, seen.name, text, fix)


def _numbers(seen: Seen, tensor: Tensor) -> Iterator[Problem]:
    if seen.std == 0 and len(tensor) > 1:
        text = f"every target is {figure(seen.mean)}"
        yield Problem(Severity.WARNING, seen.name, text, "There is nothing to learn from this batch.")
    elif seen.size >= LARGE_TARGET:
        text = f"numbers of size {figure(seen.size)}, where an output layer starts near 0"
        fix = "Standardise the targets, and undo it on the predictions; take logarithms first if they span decades."
        yield Problem(Severity.WARNING, seen.name, text, fix)


def _types(seen: Seen, tensor: Tensor, labels: Labels) -> Iterator[Problem]:
    whole = seen.is_float and bool((tensor == tensor.round()).all()) and seen.low >= 0
    if not seen.is_float and seen.dtype not in ("int64", "uint8", "bool") and labels.kind in ("classes", "tokens"):
        text = f"class numbers of type {seen.dtype}"
        yield Problem(Severity.ERROR, seen.name, text, "cross_entropy wants int64: y.long().")
    if labels.kind == "numbers" and whole and 2 <= seen.high < 100 and tensor.numel() == len(tensor):
        text = f"whole numbers from {figure(seen.low)} to {figure(seen.high)} as {seen.dtype}"
        yield Problem(Severity.INFO, seen.name, text, "If these are classes, cross_entropy wants them as y.long().")
    if labels.kind == "classes" and tensor.dim() == 2 and not seen.is_float:
        text = f"class numbers of shape {tuple(tensor.shape)}"
        yield Problem(Severity.WARNING, seen.name, text, "cross_entropy wants one dimension: y.squeeze(1).")
    if labels.kind in ("labels", "classes") and (
        tensor.dtype == torch.bool or (tensor.dim() == 2 and not seen.is_float)
    ):
        text = f"flags of type {seen.dtype}"
        yield Problem(Severity.INFO, seen.name, text, "binary_cross_entropy_with_logits wants y.float().")


def _balance(seen: Seen, labels: Labels) -> Iterator[Problem]:
    total = sum(labels.counts.values())
    if labels.kind not in ("classes", "one-hot") or total < 2:
        return
    label, most = max(labels.counts.items(), key=lambda item: item[1])
    if most == total:
        text = f"all {total} samples are of class {label}"
        yield Problem(Severity.WARNING, seen.name, text, "Is the data sorted by class? DataLoader(..., shuffle=True).")
    elif total >= ENOUGH and most / total > LARGEST_SHARE:
        text = f"class {label} makes up {most / total:.0%} of the batch"
        fix = "Always naming it scores as much; judge by balanced accuracy, weight the loss or the sampler."
        yield Problem(Severity.INFO, seen.name, text, fix)


def _width(seen: Seen, labels: Labels, classes: int | None) -> Iterator[Problem]:
    if classes is not None and labels.kind in ("one-hot", "probabilities") and seen.shape[1] != classes:
        text = f"rows have {seen.shape[1]} classes, the model {classes}"
        yield Problem(Severity.ERROR, seen.name, text, "Both have to be the same.")


def _leak(seen: Seen, target: Tensor, inputs: list[tuple[Seen, Tensor]]) -> Iterator[Problem]:
    """A column of a table that is the target itself, up to scale."""
    if target.numel() != len(target) or len(target) < LEAK_SAMPLES:
        return
    y = target.detach().double().flatten().cpu()
    y = y - y.mean()
    for other, tensor in inputs:
        if tensor.dim() != 2 or len(tensor) != len(y) or not other.is_float or other.nonfinite or not y.any():
            continue
        x = tensor.detach().double().cpu()
        x = x - x.mean(0)
        agree = (y @ x).abs() / (y.norm() * x.norm(dim=0)).clamp_min(1e-300)
        if float(agree.max()) > LEAK:
            at = int(agree.argmax())
            text = f"feature {at} of {other.name} is the target itself, up to scale"
            yield Problem(Severity.WARNING, seen.name, text, "Take it out of the inputs, unless it is known at use.")
