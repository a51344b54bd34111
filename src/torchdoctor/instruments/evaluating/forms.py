"""What outputs and targets are: which task they belong to, and what the scores mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchdoctor.errors import UsageError

MULTICLASS, BINARY, MULTILABEL, REGRESSION, TOKENS = "multiclass", "binary", "multilabel", "regression", "tokens"
TASKS = (MULTICLASS, BINARY, MULTILABEL, REGRESSION, TOKENS)
NAMES = {
    **{name: name for name in TASKS},
    **dict.fromkeys(("multi-class", "classification", "classes"), MULTICLASS),
    **dict.fromkeys(("multi-label", "labels"), MULTILABEL),
    **dict.fromkeys(("token", "token-classification", "segmentation", "language-model", "pixels"), TOKENS),
}
"""What a user may call them."""
LOGITS, PROBABILITIES, LOG_PROBABILITIES, DECISIONS = "logits", "probabilities", "log-probabilities", "decisions"
SCORES = (LOGITS, PROBABILITIES, LOG_PROBABILITIES, DECISIONS)
IGNORED = -100
"""What torch's losses leave out unless told otherwise."""
SUM_TOLERANCE = 1e-3
"""By which probabilities of a row may miss one: half precision rounds each to three digits."""

_HINTS: dict[str, tuple[str | None, str | None]] = {
    "crossentropyloss": (MULTICLASS, LOGITS),
    "cross_entropy": (MULTICLASS, LOGITS),
    "nllloss": (MULTICLASS, LOG_PROBABILITIES),
    "nll_loss": (MULTICLASS, LOG_PROBABILITIES),
    "bcewithlogitsloss": (MULTILABEL, LOGITS),
    "binary_cross_entropy_with_logits": (MULTILABEL, LOGITS),
    "bceloss": (MULTILABEL, PROBABILITIES),
    "binary_cross_entropy": (MULTILABEL, PROBABILITIES),
    "multilabelsoftmarginloss": (MULTILABEL, LOGITS),
    **dict.fromkeys(
        ("mseloss", "mse_loss", "l1loss", "l1_loss", "smoothl1loss", "smooth_l1_loss", "huberloss", "huber_loss"),
        (REGRESSION, None),
    ),
}
"""What torch's losses take; MULTILABEL stands for one logit a decision."""

ONE_OF_MANY = "each row of the targets holds a single 1: read as one class of many; task='multilabel' says otherwise"


@dataclass(frozen=True)
class Form:
    """How outputs and targets of a batch are read."""

    task: str
    scores: str
    """what the outputs hold; empty for numbers, and where outputs that are all NaN do not tell"""
    width: int
    """classes, labels or numbers a sample"""
    class_dim: int | None = None
    """of the outputs; None where there is one score, or one decision, for each target"""
    soft: bool = False
    """targets come as one-hot rows or probabilities"""
    notes: tuple[str, ...] = ()

    @property
    def names_classes(self) -> bool:
        return self.task in (MULTICLASS, BINARY, TOKENS)


def recognise(
    outputs: Tensor,
    target: Tensor,
    task: str | None,
    scores: str | None,
    loss_fn: Callable[..., Any] | None,
    ignored: int = IGNORED,
) -> Form:
    """From one batch; what the user tells goes before what the loss function takes, and that before the values.
    Targets that are `ignored` tell nothing."""
    told = _check(task, scores)
    hint, hinted_scores = _HINTS.get(_name_of(loss_fn), (None, None))
    scores = scores or hinted_scores
    check_rows(outputs, target)
    if told == REGRESSION or (told is None and hint == REGRESSION):
        return _numbers(outputs, target)
    if not outputs.is_floating_point() and outputs.shape == target.shape and not target.is_floating_point():
        return _decisions(outputs, target, told)
    outputs_shape = outputs.shape[:-1] if outputs.shape[-1] == 1 and outputs.dim() > 1 else outputs.shape
    target_shape = target.shape[:-1] if target.shape[-1] == 1 and target.dim() > 1 else target.shape
    if outputs_shape == target_shape or outputs.shape == target.shape:
        return _alike(outputs, target, told, hint, scores, ignored)
    if target.dim() in (outputs.dim() - 1, outputs.dim()) and told in (None, MULTICLASS, TOKENS, BINARY):
        return _one_of_many(outputs, target, told, hint, scores)
    raise UsageError(
        f"{_seen(outputs, target)}, which fits no task{'' if told is None else f' (told: {told})'}; {_WAY}"
    )


def check_rows(outputs: Tensor, target: Tensor) -> None:
    if outputs.dim() == 0 or target.dim() == 0 or outputs.shape[0] != target.shape[0]:
        raise UsageError(f"{_seen(outputs, target)}: the first dimension of both has to count the samples")


_WAY = "say how they are read with task=..., output_fn=lambda outputs: ... or target_fn=lambda batch: ..."


def _check(task: str | None, scores: str | None) -> str | None:
    if task is not None and task.lower() not in NAMES:
        raise UsageError(f"task is {task!r}; known are {', '.join(TASKS)}")
    if scores is not None and scores not in SCORES:
        raise UsageError(f"scores is {scores!r}; known are {', '.join(SCORES)}")
    return None if task is None else NAMES[task.lower()]


def _name_of(loss_fn: Callable[..., Any] | None) -> str:
    inner = getattr(loss_fn, "func", loss_fn)
    return "" if inner is None else getattr(inner, "__name__", type(inner).__name__).lower()


def _seen(outputs: Tensor, target: Tensor) -> str:
    return (
        f"outputs have shape {tuple(outputs.shape)} ({_kind(outputs)}) and targets {tuple(target.shape)} "
        f"({_kind(target)})"
    )


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _numbers(outputs: Tensor, target: Tensor) -> Form:
    if outputs.numel() != target.numel():
        raise UsageError(f"{_seen(outputs, target)}: regression needs a prediction for each target; {_WAY}")
    return Form(REGRESSION, "", max(1, target.numel() // target.shape[0]))


def _decisions(outputs: Tensor, target: Tensor, told: str | None) -> Form:
    """Labels against labels: no scores, so nothing that needs them."""
    classes = int(max(outputs.max(), target.max())) + 1
    task = told or (MULTICLASS if target.dim() == 1 or target.shape[1:].numel() == 1 else TOKENS)
    if task == BINARY:
        classes = 2
    return Form(task, DECISIONS, max(2, classes))


def _alike(
    outputs: Tensor, target: Tensor, told: str | None, hint: str | None, scores: str | None, ignored: int
) -> Form:
    """One score for each target: decisions yes or no, numbers, or rows of a one-hot target."""
    width, one_each = target.numel() // target.shape[0], outputs.dim() > 2 or told == TOKENS
    # of several labels a sample, none can be left out alone
    yes_or_no = is_yes_or_no(target[target != ignored] if width == 1 or one_each else target)
    single = yes_or_no and width > 1 and outputs.dim() == 2 and bool((target.sum(1) == 1).all())
    if told in (MULTICLASS, TOKENS) or (told is None and hint == MULTICLASS):
        if told != TOKENS and width > 1 and outputs.dim() == 2 and (single or target.is_floating_point()):
            return Form(MULTICLASS, scores or find_scores(outputs), width, 1, soft=True)
        if not yes_or_no:
            raise UsageError(f"{_seen(outputs, target)}: {told or hint} needs scores for each class; {_WAY}")
    if not yes_or_no:
        if told in (BINARY, MULTILABEL):
            raise UsageError(f"{_seen(outputs, target)}: targets of a {told} task are 0 or 1, here are {few(target)}")
        return _numbers(outputs, target)
    if told == BINARY or (width == 1 and told != TOKENS):
        return Form(BINARY, scores or find_score(outputs), 2)
    if one_each:
        return Form(TOKENS, scores or find_score(outputs), 2)
    if told is None and hint is None and single:
        return Form(MULTICLASS, scores or find_scores(outputs), width, 1, soft=True, notes=(ONE_OF_MANY,))
    return Form(MULTILABEL, scores or find_score(outputs), width)


def _one_of_many(outputs: Tensor, target: Tensor, told: str | None, hint: str | None, scores: str | None) -> Form:
    if target.dim() == outputs.dim():
        target = target.squeeze(1) if target.shape[1] == 1 else target.squeeze(-1)
    last, second = outputs.shape[:-1] == target.shape, outputs.shape[:1] + outputs.shape[2:] == target.shape
    if not (last or second):
        raise UsageError(f"{_seen(outputs, target)}: no dimension of the outputs is left for the classes; {_WAY}")
    if target.is_floating_point() and not bool((target == target.round()).all()):
        raise UsageError(f"{_seen(outputs, target)}: targets such as {few(target)} name no classes; {_WAY}")
    # torch's own losses want the classes second; models of Hugging Face give them last
    class_dim = 1 if second and (hint == MULTICLASS or not last) else outputs.dim() - 1
    task = TOKENS if target.dim() > 1 and target.shape[1:].numel() > 1 else MULTICLASS
    width = outputs.shape[class_dim]
    if width == 1:
        return Form(BINARY if task == MULTICLASS else TOKENS, scores or find_score(outputs), 2)
    if told == BINARY and width != 2:
        raise UsageError(f"{_seen(outputs, target)}: a binary task has one score or two, not {width}")
    return Form(told or task, scores or find_scores(outputs.movedim(class_dim, -1)), width, class_dim)


def is_yes_or_no(target: Tensor) -> bool:
    return target.dtype == torch.bool or bool(((target == 0) | (target == 1)).all())


def few(target: Tensor) -> str:
    """Some of its values, in words."""
    values = target.flatten()[:1000].unique()[:4].tolist()
    return ", ".join(f"{v:.3g}" for v in values)


def find_scores(outputs: Tensor) -> str:
    """Of rows with a score for each class, the classes last."""
    rows = outputs.detach().float().flatten(0, -2)
    broken = rows.isnan().any(-1)
    if bool(broken.any()):
        rows = rows[~broken]
    if not len(rows):
        return ""
    if bool((rows >= 0).all()) and bool(((rows.sum(-1) - 1).abs() < SUM_TOLERANCE).all()):
        return PROBABILITIES
    if bool((rows <= 0).all()) and bool((rows.logsumexp(-1).abs() < SUM_TOLERANCE).all()):
        return LOG_PROBABILITIES
    return LOGITS


def find_score(outputs: Tensor) -> str:
    """Of single scores for yes against no."""
    if not outputs.is_floating_point():
        return DECISIONS
    if bool(((outputs < 0) | (outputs > 1)).any()):
        return LOGITS
    return "" if bool(outputs.isnan().all()) else PROBABILITIES
