"""Batches of outputs and targets on their way to a judgement: which are compared, with what loss, under which names."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.agreement import Told, agree, check_fit
from torchdoctor.instruments.evaluating.attributes import Attributes, Slices
from torchdoctor.instruments.evaluating.forms import (
    DECISIONS,
    IGNORED,
    MULTILABEL,
    REGRESSION,
    TOKENS,
    check_rows,
)
from torchdoctor.instruments.evaluating.judged import Choices, Judged
from torchdoctor.instruments.evaluating.judging_classes import judge_classes
from torchdoctor.instruments.evaluating.judging_labels import judge_labels
from torchdoctor.instruments.evaluating.judging_numbers import judge_values
from torchdoctor.instruments.evaluating.metrics import Estimate, mean_of
from torchdoctor.instruments.evaluating.predictions import Predictions
from torchdoctor.instruments.evaluating.shifting import Shift
from torchdoctor.instruments.subject import Subject, logits_of, to_device
from torchdoctor.report.text import count as counted

HELD_ROWS = 256
"""Decisions of which the form is found: that as many logits all lie between 0 and 1, or as many rows of labels all hold
a single 1, is then no chance."""
HELD_NUMBERS = 1 << 24
"""Numbers that are held back at most (64 MB): tokens and pixels are enough long before."""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for, checked."""

    task: str | None
    scores: str | None
    class_names: Sequence[str] | Mapping[int, str] | None
    slices: Slices | None
    slice_parts: int
    worst: int
    threshold: float
    ignore_index: int | None
    choices: Choices
    output_fn: Callable[[Any], Any] | None = None
    target_fn: Callable[[Any], Any] | None = None
    shift: bool | None = None
    batches: int | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise UsageError(f"threshold is {self.threshold}; it is a probability between 0 and 1")
        if self.slice_parts < 1 or self.worst < 0:
            raise UsageError(f"slice_parts is {self.slice_parts} and worst {self.worst}; at least 1 and 0 are needed")
        if self.batches is not None and self.batches < 1:
            raise UsageError(f"batches is {self.batches}; at least 1 is needed")


def compare(subject: Subject, batch: Any, wishes: Wishes) -> tuple[Tensor, Tensor]:
    outputs = subject.outputs(batch)
    target = wishes.target_fn(batch) if wishes.target_fn is not None else subject.target(batch)
    if target is None:
        raise UsageError("the target of a batch is not known; hand over target_fn=lambda batch: batch[...]")
    outputs = wishes.output_fn(outputs) if wishes.output_fn is not None else _first(logits_of(outputs))
    if not isinstance(outputs, Tensor):
        raise UsageError(
            f"the model gives a {type(outputs).__name__}; pick the predictions with output_fn=lambda o: ..."
        )
    target = to_device(target, outputs.device)
    if not isinstance(target, Tensor):
        target = as_tensor(target, "the target").to(outputs.device)
    check_rows(outputs, target)
    return outputs, target


def _first(outputs: Any) -> Any:
    if isinstance(outputs, list | tuple):
        return next((o for o in outputs if isinstance(o, Tensor)), outputs)
    return outputs


def as_tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{what}: a {type(values).__name__} cannot be read as an array of numbers ({error})"
        ) from error


class Reading:
    """Collects batches, and judges them when there are no more. The first ones are held back until they show what they
    are: a single one may look like another task, or its logits like probabilities."""

    def __init__(self, wishes: Wishes, loss_fn: Callable[..., Any] | None, subject: Subject | None = None) -> None:
        """`subject`: where outputs come from; None where they were given as arrays."""
        self.wishes = wishes
        self.loss_fn = loss_fn
        ignored = wishes.ignore_index
        if ignored is None:
            ignored = getattr(loss_fn, "ignore_index", IGNORED)
        self._told = Told(wishes.task, wishes.scores, loss_fn, int(ignored))
        self.shift = Shift(wishes.shift, subject, int(ignored))
        self._attributes = Attributes(wishes.slices)
        self._held: list[tuple[Tensor, Tensor, NDArray[np.int64]]] = []
        self._held_rows = self._held_numbers = 0
        self._predictions: Predictions | None = None
        self._by_batch: list[tuple[float, int]] = []
        self.read = self._batches = 0

    @property
    def predictions(self) -> Predictions:
        if self._predictions is None:
            raise UsageError("the loader gives no batch; is its dataset empty, or drop_last=True with too few samples?")
        return self._predictions

    @property
    def notes(self) -> list[str]:
        return [self.shift.note] if self.shift.note is not None else []

    def take(self, batch: Any, outputs: Tensor, target: Tensor, indices: list[int] | None) -> None:
        """`indices` of the samples in the dataset; None counts them in their order."""
        count = target.shape[0]
        self._batches += 1
        if not count:
            return
        places = np.arange(self.read, self.read + count) if indices is None else np.asarray(indices, np.int64)
        self._attributes.add(batch, indices, self.read, count)
        self.read += count
        if self._predictions is None:
            self._hold(batch, outputs, target, places)
            return
        self.shift.check(batch, self._batches, outputs, target)
        outputs, target = self.shift.apply(outputs, target)
        check_fit(self._predictions.form, self._batches, outputs, target, self._told)
        self._add(outputs, target, places)

    def _hold(self, batch: Any, outputs: Tensor, target: Tensor, places: NDArray[np.int64]) -> None:
        self.shift.look(batch, outputs, target)
        by_element = outputs.dim() > 2
        self._held_rows += int((target != self._told.ignored).sum()) if by_element else target.shape[0]
        self._held_numbers += outputs.numel() + target.numel()
        enough = self._held_rows >= HELD_ROWS or self._held_numbers >= HELD_NUMBERS
        # a loader may fill the same memory again, and so may a model that was captured as a CUDA graph
        self._held.append((outputs, target, places) if enough else (outputs.clone(), target.clone(), places))
        if enough:
            self.finish()

    def finish(self) -> None:
        """There are no more batches, or enough to tell what they are."""
        if self._predictions is not None or not self._held:
            return
        self.shift.decide()
        held = [(*self.shift.apply(outputs, target), places) for outputs, target, places in self._held]
        form = agree([(outputs, target) for outputs, target, _ in held], self._told)
        self._predictions = Predictions(form, self.wishes.threshold, self._told.ignored, self.wishes.worst)
        self._held = []
        for outputs, target, places in held:
            self._add(outputs, target, places)

    def _add(self, outputs: Tensor, target: Tensor, places: NDArray[np.int64]) -> None:
        self.predictions.add(outputs, target, self._losses(outputs, target), places)

    def _losses(self, outputs: Tensor, target: Tensor) -> Tensor | None:
        """By sample, where the loss function gives them; else its mean over the batch is kept."""
        if self.loss_fn is None:
            return None
        found = _unreduced(self.loss_fn)(outputs, target)
        if not isinstance(found, Tensor):
            raise UsageError(f"the loss is a {type(found).__name__}, not a tensor; return the loss itself")
        count = target.shape[0]
        if found.numel() == 1 and (count != 1 or self._by_batch):
            self._by_batch.append((float(found), count))
            return None
        if found.numel() == 1:
            return found.reshape(1)
        if found.shape[0] != count:
            raise UsageError(
                f"the loss of a batch of {counted(count, 'sample')} has shape {tuple(found.shape)}; it has to be one "
                "number, or one for each sample"
            )
        if self.predictions.form.task == TOKENS and found.shape == target.shape:
            known = target != self.predictions.ignore_index
            summed = torch.where(known, found, 0).reshape(count, -1).sum(1)
            return summed / known.reshape(count, -1).sum(1).clamp(min=1)
        return found.reshape(count, -1).float().mean(1)

    def attributes(self, known_N: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """What the samples are sliced by, of those that are judged."""
        return {by: values[known_N] for by, values in self._attributes.finish(self.read).items()}

    def judge(self) -> Judged:
        predictions, wishes = self.predictions, self.wishes
        form = predictions.form
        if not (predictions.samples["count"] > 0).any():
            raise UsageError(_nothing_left(predictions))
        if form.names_classes:
            table = predictions.elements
            highest = int(max(table["label"].max(), table["predicted"].max())) + 1
            return judge_classes(predictions, _names(wishes.class_names, max(form.width, highest)), wishes.choices)
        judge = judge_labels if form.task == MULTILABEL else judge_values
        return judge(predictions, _names(wishes.class_names, form.width), wishes.choices)

    def loss(self) -> tuple[str, Estimate | None]:
        """What the loss by sample is called, and the mean of the user's own."""
        predictions = self.predictions
        form, samples = predictions.form, predictions.samples
        own = {REGRESSION: "squared error", MULTILABEL: "binary cross-entropy"}.get(form.task, "cross-entropy")
        own = "share wrong" if form.scores == DECISIONS else own
        if self.loss_fn is None:
            return own, None
        if not self._by_batch:
            name = getattr(self.loss_fn, "__name__", type(self.loss_fn).__name__)
            return name, mean_of(samples["loss"], samples["count"], self.wishes.choices.level)
        total = sum(count for _, count in self._by_batch)
        return own, Estimate.bare(sum(loss * count for loss, count in self._by_batch) / total)


def _unreduced(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same loss function without its mean, where it can be had."""
    if isinstance(loss_fn, nn.Module) and getattr(loss_fn, "reduction", None) in ("mean", "sum"):
        quiet = copy.copy(loss_fn)
        quiet.reduction = "none"
        return quiet
    try:
        takes = "reduction" in inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):
        takes = False
    return (lambda outputs, target: loss_fn(outputs, target, reduction="none")) if takes else loss_fn


def _names(given: Sequence[str] | Mapping[int, str] | None, count: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        return tuple(str(given.get(c, c)) for c in range(count))
    if len(given) != count:
        raise UsageError(f"class_names holds {counted(len(given), 'name')}, and there are {count} classes")
    return tuple(map(str, given))


def _nothing_left(predictions: Predictions) -> str:
    if predictions.nonfinite:
        return "every output is NaN: there is nothing to judge; find where it comes from with torchdoctor run"
    return f"every target is {predictions.ignore_index}, which is left out; ignore_index=... says which one is"


def left_out(predictions: Predictions, loss_fn: Callable[..., Any] | None) -> list[str]:
    """What the figures do not hold, in words."""
    notes = []
    if isinstance(getattr(loss_fn, "weight", None), Tensor):
        notes.append("loss_fn weighs classes: its mean here is over samples, not over their weights")
    if predictions.nonfinite:
        what = "outputs or targets" if predictions.form.task == REGRESSION else "outputs"
        are = "prediction is left out: its" if predictions.nonfinite == 1 else "predictions are left out: their"
        notes.append(f"{predictions.nonfinite} {are} {what} are not finite")
    if predictions.ignored:
        are = "target is" if predictions.ignored == 1 else "targets are"
        notes.append(f"{predictions.ignored} {are} {predictions.ignore_index} and left out")
    if predictions.elements.stride > 1:
        notes.append(f"of so many decisions one in {predictions.elements.stride} is in the figures by class")
    if predictions.scores.stride > 1:
        where = "ranking and calibration, and precision at k is left out: it needs all of them"
        where = "the figures" if predictions.form.task == REGRESSION else where
        notes.append(f"of so many rows of scores one in {predictions.scores.stride} is in {where}")
    return notes
