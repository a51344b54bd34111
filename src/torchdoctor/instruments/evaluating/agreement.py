"""One form for all batches: of the first ones what fits each of them, and whether later ones fit it, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.forms import (
    BINARY,
    DECISIONS,
    LOGITS,
    MULTICLASS,
    MULTILABEL,
    REGRESSION,
    TOKENS,
    Form,
    few,
    recognise,
)

WIDENING = (BINARY, MULTICLASS, MULTILABEL, TOKENS, REGRESSION)
"""A batch may look like one of the former where the task is one of the latter: a few rows of labels hold a single 1
each, the longest text of a batch is one token long, a few numbers are all 0 or 1."""


@dataclass(frozen=True)
class Told:
    """What is known before any batch is."""

    task: str | None
    scores: str | None
    loss_fn: Callable[..., Any] | None
    ignored: int

    def recognise(self, outputs: Tensor, target: Tensor, task: str | None = None) -> Form:
        return recognise(outputs, target, task or self.task, self.scores, self.loss_fn, self.ignored)


def agree(batches: Sequence[tuple[Tensor, Tensor]], told: Told) -> Form:
    """The narrowest form that fits every one of these batches of outputs and targets."""
    forms = [told.recognise(*batch) for batch in batches]
    task = max((f.task for f in forms), key=WIDENING.index)
    if any(f.task != task for f in forms):
        forms = [told.recognise(*batch, task=task) for batch in batches]
    fitting = [f for f in forms if all(_fits_shape(f, *batch) for batch in batches)]
    if not fitting or any(f.task != task for f in forms):
        raise UsageError(
            f"batches do not look alike: {_range_of(batches)} fit no single task; say task=..., or pick what is "
            "compared with output_fn=... and target_fn=..."
        )
    kinds = {f.scores for f in forms} - {""}
    # scores that are no probabilities anywhere are none: logits may lie between 0 and 1 for a while
    scores = kinds.pop() if len(kinds) == 1 else LOGITS
    return replace(fitting[0], scores="" if task == REGRESSION else scores)


def check_fit(form: Form, number: int, outputs: Tensor, target: Tensor, told: Told) -> None:
    """Of a batch after those that `form` was found from; what has been judged since cannot be judged anew."""
    if form.scores == LOGITS:
        told = replace(told, scores=LOGITS)
    try:
        found = told.recognise(outputs, target)
        if WIDENING.index(found.task) < WIDENING.index(form.task):
            found = told.recognise(outputs, target, task=form.task)
    except UsageError as error:
        raise UsageError(f"{_unlike(form, number)}: {error}") from error
    if found.task != form.task:
        raise UsageError(
            f"{_unlike(form, number)}: with targets such as {few(target)} it looks like {found.task}; say task=... for "
            f"all batches, such as task={found.task!r}"
        )
    if not _fits_shape(form, outputs, target):
        raise UsageError(
            f"{_unlike(form, number)}: outputs of shape {tuple(outputs.shape)} and targets of {tuple(target.shape)} "
            f"are not {form.width} a sample as before"
        )
    if found.scores not in ("", form.scores):
        raise UsageError(
            f"{_unlike(form, number)}: its outputs look like {found.scores}; say scores=... for all batches, such as "
            f"scores={found.scores!r}"
        )


def _unlike(form: Form, number: int) -> str:
    read = f"{form.task} with {form.scores}" if form.scores else form.task
    return f"batch {number} (counted from 1) does not look like those before it, which were read as {read}"


def _fits_shape(form: Form, outputs: Tensor, target: Tensor) -> bool:
    """Lengths of texts and sizes of pictures may differ, the number of classes may not."""
    if form.scores == DECISIONS:
        return outputs.numel() == target.numel()
    if form.soft or (form.class_dim is None and form.task in (MULTILABEL, REGRESSION)):
        each = form.width * target.shape[0]
        return outputs.numel() == each and target.numel() == each
    if form.class_dim is None:
        return outputs.numel() == target.numel()
    if outputs.dim() <= form.class_dim or outputs.shape[form.class_dim] != form.width:
        return False
    return outputs.numel() == target.numel() * form.width


def _range_of(batches: Sequence[tuple[Tensor, Tensor]]) -> str:
    shapes = dict.fromkeys(f"{tuple(o.shape)} against {tuple(t.shape)}" for o, t in batches)
    return f"outputs against targets of shapes {', '.join(list(shapes)[:4])}"
