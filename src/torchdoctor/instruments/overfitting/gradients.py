"""Causes of the first kind: gradients that do not arrive, and rates or optimizers that do not use them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.instruments.one_batch import tensors_in
from torchdoctor.instruments.one_look.gradients import GradientSummary
from torchdoctor.instruments.one_look.nonfinite import find_nonfinite
from torchdoctor.instruments.overfitting.case import Case, Cause, steps_for
from torchdoctor.instruments.overfitting.loss_reading import Reading
from torchdoctor.instruments.overfitting.memorising import FACTORS, OTHER_RATES, Attempt, Recipe, own_recipe
from torchdoctor.instruments.tables import listed
from torchdoctor.rules.curves import figure

MOST = 0.5
"""Share of the trainable elements without a gradient from which on that is taken for the cause."""
MOST_TO_THAW = 50_000_000
"""Elements: an optimizer takes twice their memory, which large frozen models were frozen to save."""


def not_finite(model: nn.Module, reading: Reading, batch: Any) -> Cause:
    """The first loss is NaN or Inf already."""
    bad = find_nonfinite(model)
    if bad.first is not None:
        text = f"the first loss is {figure(reading.value)}: {bad.first.kind} {bad.first.name} holds NaN or Inf"
        return Cause("nonfinite-parameters", text, "Initialise it again, or load a sound checkpoint.", True)
    for name, tensor in tensors_in(batch):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            text = f"the first loss is {figure(reading.value)}: {name or 'the batch'} of the batch holds NaN or Inf"
            fix = "torchdoctor.validate_batch(batch) says where; drop these samples or fill the gaps."
            return Cause("nan-in-inputs", text, fix, True)
    text = f"the first loss is {figure(reading.value)}, though weights and batch are finite"
    fix = "Run it under torch.autograd.set_detect_anomaly(True), or `torchdoctor replay`, to find the operation."
    return Cause("nonfinite-parameters", text, fix)


def no_graph(model: nn.Module, reading: Reading) -> Cause:
    """The loss needs no gradient at all."""
    trainable = [n for n, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        count = sum(1 for _ in model.parameters())
        text = f"all {count} parameters are frozen (requires_grad=False)" if count else "the model has no parameters"
        return Cause("frozen-parameters", text, "model.requires_grad_(True), or only for the layers to train.", True)
    if _graph(reading.outputs):
        text = "the model's outputs carry a graph, the loss does not: it is cut between them"
        fix = "Take detach(), .item(), .numpy(), argmax(), round() or no_grad() out of the way to the loss."
    else:
        text = "the model's outputs carry no graph: it is cut inside forward()"
        fix = "Take detach(), .data, .numpy(), argmax(), no_grad() or inference_mode() out of forward()."
    return Cause("disconnected-parameters", text, fix, True)


def _graph(outputs: Any) -> bool:
    return any(tensor.requires_grad for _, tensor in tensors_in(outputs)) or bool(
        isinstance(getattr(outputs, "logits", None), Tensor) and outputs.logits.requires_grad
    )


def all_zero(summary: GradientSummary) -> Cause:
    count = len(summary.parameters) - len(summary.frozen)
    text = f"the gradient of all {count} trainable parameters is zero or missing"
    fix = "Look for dead units (ReLU outputs that are all zero), a loss times zero, or a mask that hides everything."
    return Cause("disconnected-parameters", text, fix, True)


def blocked(case: Case) -> Cause | None:
    """Parts of the model get no gradient."""
    summary, trainable = case.gradients, [p for p in case.gradients.parameters if p.state != "frozen"]
    dead = [p for p in trainable if p.state in ("none", "zero")]
    share = sum(p.size for p in dead) / max(1, sum(p.size for p in trainable))
    if dead and share >= MOST:
        text = f"{len(dead)} of {len(trainable)} trainable parameters ({share:.0%} of their elements) get no gradient: "
        fix = "Find where the graph is cut: detach(), no_grad(), a layer that forward() does not use, dead units."
        return Cause("disconnected-parameters", text + listed([p.name for p in dead]), fix)
    if summary.profile == "vanishing":
        text = f"the gradient fades to 1/{figure(summary.fall)} on its way to the first layers"
        return Cause("vanishing-gradients", text, "Use ReLU or GELU, normalisation or skip connections.")
    frozen = thawed(case)
    if frozen is not None:
        return frozen
    if dead:
        case.ruled_out.append(f"the gradient reaches all but {len(dead)} parameters ({listed([p.name for p in dead])})")
    else:
        case.ruled_out.append(f"the gradient reaches all {len(trainable)} trainable parameters")
    return None


def thawed(case: Case) -> Cause | None:
    """Whether it works with all parameters trained."""
    frozen = [p for p in case.gradients.parameters if p.state == "frozen"]
    floats = {n for n, p in case.subject.model.named_parameters() if p.is_floating_point()}
    frozen = [p for p in frozen if p.name in floats]
    if not frozen or sum(p.size for p in frozen) > MOST_TO_THAW:
        return None
    parameters = dict(case.subject.model.named_parameters())
    recipe = own_recipe(case.subject.model)

    def make(rate: float | None) -> Optimizer:
        for p in frozen:
            parameters[p.name].requires_grad_(True)
        return recipe.make(rate)

    steps = steps_for(case, case.batch, Recipe(recipe.name, make))
    if steps is None:
        case.ruled_out.append(f"unfreezing the {len(frozen)} frozen parameters does not help")
        return None
    text = (
        f"{len(frozen)} of {len(case.gradients.parameters)} parameters are frozen; with all of them trained the batch "
        f"is memorised in {steps} steps"
    )
    return Cause("frozen-parameters", text, "Unfreeze more layers: module.requires_grad_(True).", True)


def rate(case: Case) -> Cause | None:
    """The optimizer and rate that were handed over, against others."""
    recipe, mine = case.recipe, case.best
    if not recipe.given:
        return _searched(case)
    other = case.memoriser.search(own_recipe(case.subject.model))
    unheld = _unheld(case)
    if other.reached is None:
        case.ruled_out.append(f"{other.optimizer} does not do it either, at any of the usual rates")
        return None
    works = f"{other.optimizer} at lr={other.lr:g} memorises it in {other.reached} steps"
    if unheld:
        names, total = unheld
        text = f"the optimizer does not hold {len(names)} of {total} parameters ({listed(names)}); {works}"
        fix = f"Make it after the model is complete: torch.optim.{recipe.name}(model.parameters(), ...)"
        return Cause("parameters-not-optimized", text, fix, True)
    same = _same_at_other_rates(case)
    if same is None:
        text = f"{recipe.name} at lr={figure(recipe.rate or math.nan)} does not get there, nor at other rates; {works}"
        return Cause("optimizer-misconfigured", text, f"torch.optim.{other.optimizer}(params, lr={other.lr:g})", True)
    high = recipe.rate is not None and same.lr is not None and recipe.rate > same.lr
    name = "learning-rate-too-high" if high else "learning-rate-too-low"
    text = (
        f"lr={recipe.rate:g} is too {'high' if high else 'low'}: the loss went from {figure(mine.losses[0])} to "
        f"{figure(mine.losses[-1])}; {same.optimizer} at lr={same.lr:g} memorises the batch in {same.reached} steps"
    )
    return Cause(name, text, f"lr={same.lr:g}; torchdoctor.find_lr looks for the best on the whole data.", True)


def _searched(case: Case) -> Cause | None:
    attempts = case.memoriser.attempts
    rates = sorted({a.lr for a in attempts if a.lr is not None})
    case.ruled_out.append(f"{len(rates)} learning rates from {min(rates):g} to {max(rates):g} with {case.recipe.name}")
    return None


def _unheld(case: Case) -> tuple[list[str], int] | None:
    """Trainable parameters that the optimizer does not know."""
    case.memoriser.put_back()
    held = {id(p) for group in case.recipe.make(None).param_groups for p in group["params"]}
    named = [(n, p) for n, p in case.subject.model.named_parameters() if p.requires_grad]
    missing = [n for n, p in named if id(p) not in held]
    return (missing, len(named)) if missing else None


def _same_at_other_rates(case: Case) -> Attempt | None:
    """The user's own optimizer, faster and slower."""
    recipe = case.recipe
    if recipe.rate is None or not recipe.rate > 0:
        return None
    given = recipe.rate
    rates = [given * f for f in FACTORS] + [r for r in OTHER_RATES if not given / 3 < r < given * 3]
    for other in sorted(rates, key=lambda r: abs(math.log(r / given))):
        found = case.memoriser.attempt(recipe, other)
        case.memoriser.attempts.append(found)
        if found.reached is not None:
            return found
    return None
