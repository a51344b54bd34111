"""Causes of the third kind: a batch that nothing can memorise, or a model that is too small for it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.instruments.one_batch import first_samples, is_taken, tensors_in
from torchdoctor.instruments.overfitting.case import Case, Cause, steps_for
from torchdoctor.instruments.overfitting.loss_floor import least
from torchdoctor.instruments.overfitting.loss_reading import groups_of_equal_inputs
from torchdoctor.rules.curves import figure

LEAST_TO_DIVIDE = 4
"""Samples of a batch that a part can be taken of."""
STRAIGHT = 1e-4
"""Difference between the answer to a mean of two inputs and the mean of their answers, over the answers' size."""


def conflicts(case: Case) -> Cause | None:
    """Equal inputs with different targets."""
    groups, call = groups_of_equal_inputs(case.start), case.start.call
    if groups is None or call is None or call.target is None or len(torch.unique(groups)) == len(groups):
        return None
    if call.target.numel() % len(groups):
        return None
    targets = call.target.detach().cpu().reshape(len(groups), -1)
    at_odds = [g for g in torch.unique(groups) if not _equal(targets[groups == g])]
    if not at_odds:
        return None
    samples = sum(int((groups == g).sum()) for g in at_odds)
    one = [int(i) for i in torch.nonzero(groups == at_odds[0]).flatten()[:2]]
    bound = least(call, groups)
    text = (
        f"{samples} of {len(groups)} samples have the same inputs as another one but a different target (samples "
        f"{one[0]} and {one[1]}, for instance); nothing can memorise that"
    )
    if bound is not None:
        bound *= case.floor.factor
        text += f": the loss cannot fall below {figure(bound)}"
    fix = "Look for duplicates, labels that were shuffled apart, or inputs that lost what tells them apart."
    return Cause("inputs-and-labels-unrelated", text, fix, bound is not None and case.holds_at(bound))


def _equal(rows: Tensor) -> bool:
    return bool((rows == rows[:1]).all())


def more_steps(case: Case) -> Cause | None:
    if not case.best.falling:
        return None
    text = f"the loss still falls after {len(case.best.losses)} steps, at {figure(case.best.end)}"
    return Cause("learning-rate-too-low", text, f"Give it more steps: steps={4 * case.memoriser.steps}.")


def too_small(case: Case) -> Cause | None:
    model = case.subject.model
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    samples = _samples(case)
    if _is_linear(case):
        text = (
            f"the model is linear in its inputs ({count:,} trainable parameters for {samples} samples) and cannot "
            "separate them"
        )
        fix = "Add a hidden layer with a nonlinearity: nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, out)."
        layers = sum(p.dim() >= 2 for p in model.parameters())
        return Cause("missing-nonlinearity" if layers > 1 else "capacity-too-low", text, fix, True)
    two = first_samples(case.batch, 2) if samples >= LEAST_TO_DIVIDE else None
    if two is None or not is_taken(case.subject, two):
        samples = 0  # it cannot be divided
    fewer = next((found for size in (samples // 8, 2) if (found := _part(case, size, samples)) is not None), None)
    fix = "Widen the narrowest layer, or take a smaller batch for this test."
    if fewer is not None:
        part, steps = fewer
        text = (
            f"{part} of the samples are memorised in {steps} steps, all {samples} are not: the model is too small for "
            f"them ({count:,} trainable parameters{_narrowest(model)})"
        )
        return Cause("capacity-too-low", text, fix, True)
    wanted = _numbers_to_remember(case)
    if count < wanted:
        text = f"{count:,} trainable parameters have to hold {wanted:,} targets: the model is too small for this batch"
        return Cause("capacity-too-low", text, fix)
    if samples >= LEAST_TO_DIVIDE:
        case.ruled_out.append("the size of the batch: a few of its samples alone are not memorised either")
    return None


def _part(case: Case, part: int, samples: int) -> tuple[int, int] | None:
    """So many of the samples, and in how many steps they are memorised; None if they are not."""
    batch = first_samples(case.batch, part) if samples >= LEAST_TO_DIVIDE and part >= 2 else None
    steps = steps_for(case, batch) if batch is not None else None
    return None if steps is None else (part, steps)


def _narrowest(model: nn.Module) -> str:
    hidden = [(n, p.shape[0]) for n, p in model.named_parameters() if p.dim() == 2][:-1]
    if not hidden:
        return ""
    name, width = min(hidden, key=lambda pair: pair[1])
    return f"; {name} is {width} wide"


def _samples(case: Case) -> int:
    groups = groups_of_equal_inputs(case.start)
    return len(groups) if groups is not None else case.start.call.samples if case.start.call is not None else 0


def _numbers_to_remember(case: Case) -> int:
    call = case.start.call
    return call.target.numel() if call is not None and call.target is not None else _samples(case)


@torch.no_grad()
def _is_linear(case: Case) -> bool:
    """Whether the answer to the mean of two inputs is the mean of the answers, for all neighbouring samples."""
    args, kwargs = case.end.arguments
    floats = [t for t in case.end.inputs if t.is_floating_point()]
    if not floats or len(floats) != len(case.end.inputs) or len(floats[0]) < 3:
        return False
    case.weights.put_back()
    case.subject.model.eval()
    try:
        one = _answers(case, args, kwargs, lambda t: t)
        other = _answers(case, args, kwargs, lambda t: t.roll(1, 0))
        mean = _answers(case, args, kwargs, lambda t: (t + t.roll(1, 0)) / 2)
    except Exception:
        return False
    if one is None or other is None or mean is None:
        return False
    size = float((one - other).abs().max())
    bend = float((mean - (one + other) / 2).abs().max())
    return math.isfinite(size) and size > 0 and bend < STRAIGHT * max(size, float(one.abs().max()))


def _answers(case: Case, args: tuple[Any, ...], kwargs: dict[str, Any], change: Any) -> Tensor | None:
    changed = [change(a) if isinstance(a, Tensor) else a for a in args]
    named = {k: change(v) if isinstance(v, Tensor) else v for k, v in kwargs.items()}
    outputs = case.subject.model(*changed, **named)
    found = next((t for _, t in tensors_in(getattr(outputs, "logits", outputs)) if t.is_floating_point()), None)
    return None if found is None else found.float()


def unexplained(case: Case) -> Cause:
    hint = " The loss stays random without dropout, which may hold it up." if case.noisy else ""
    text = "none of the usual reasons holds: gradients arrive, rates were searched, outputs and loss fit" + hint
    fix = "Try a smaller batch or more steps; look at torchdoctor.validate_batch(batch) and gradient_summary(model)."
    return Cause("unexplained", text, fix)
