"""Causes of the second kind: outputs and loss do not fit together, or the outputs do not depend on the inputs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.instruments.one_batch import tensors_in
from torchdoctor.instruments.overfitting.case import Case, Cause
from torchdoctor.instruments.overfitting.loss_floor import TOP
from torchdoctor.instruments.overfitting.loss_reading import Reading, groups_of_equal_inputs
from torchdoctor.probes.loss_calls import ROW_SUM_TOLERANCE, LossCall
from torchdoctor.rules.curves import figure

PASSED_OVER = frozenset(
    (
        *("View", "Reshape", "ReshapeAlias", "UnsafeView", "AsStrided", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Alias", "Transpose", "T", "Permute", "ToCopy", "Clone", "Select", "Slice"),
    )
)
HEADS = {"Softmax": "softmax", "Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu", "Hardtanh": "hardtanh"}
RANGES = {"softmax": (0.0, 1.0), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "relu": (0.0, math.inf)}
QUANTITIES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
STEEP = 0.2
"""Share of itself by which the loss falls for a relative growth of all weights by one, at the rate of the start. Where
all answers are right a linear head shows one and more, and scores that have reached their bounds about zero."""
SAME = 1e-5
"""Largest difference between two samples over the size of what is compared, from which they are different."""


def head_of(tensor: Tensor) -> str | None:
    """The activation that made it, from the graph; what only changes shapes is passed over."""
    node = tensor.grad_fn
    while node is not None:
        name = node.name().rstrip("0123456789").removesuffix("Backward")
        if name not in PASSED_OVER:
            return HEADS.get(name)
        node = node.next_functions[0][0] if node.next_functions else None
    return None


def unbounded(reading: Reading, factor: float) -> Cause | None:
    """Losses that fall for ever: those are not memorising, however low they get."""
    if factor < 0:
        text = "the loss is the negative of torch's own: it falls as the model gets worse"
        return Cause("loss-sign-flipped", text, "Drop the minus sign before the loss.", True)
    for call in reading.calls:
        if call.function == "nll_loss" and (top := float(call.input.detach().max())) > TOP:
            text = f"nll_loss wants log-probabilities, which are never above 0; it gets {figure(top)}"
            return Cause("wrong-loss-for-task", text, "loss = F.cross_entropy(logits, target)", True)
        if call.function == "cross_entropy" and call.class_dim is not None and call.input.shape[call.class_dim] == 1:
            text = "cross_entropy over a single output is always zero"
            fix = "Two classes: F.binary_cross_entropy_with_logits(output, target); quantities: F.mse_loss."
            return Cause("wrong-loss-for-task", text, fix, True)
    return None


def wrong_head(case: Case) -> Cause | None:
    call, now = case.start.call, case.end.call
    if call is None or now is None:
        return None
    found = _broadcast(case, call) or _squashed(case, call, now)
    if found is None:
        case.ruled_out.append(f"the outputs fit {call.function} (no activation or broadcast in between)")
    return found


def _squashed(case: Case, call: LossCall, now: LossCall) -> Cause | None:
    head = head_of(call.input) or ("softmax" if _rows_sum_to_one(call) and _rows_sum_to_one(now) else None)
    if head is None or head not in RANGES:
        return None
    low, high = RANGES[head]
    factor = case.floor.factor
    if call.function == "cross_entropy" and call.class_dim is not None and math.isfinite(high):
        classes = call.input.shape[call.class_dim]
        rows = call.target.numel() if call.target is not None and call.options.get("reduction") == "sum" else 1
        bound = factor * rows * math.log1p((classes - 1) * math.exp(low - high))
        name = "softmax-before-cross-entropy" if head == "softmax" else "misplaced-activation"
        text = (
            f"the scores pass through {head} and stay between {figure(low)} and {figure(high)}, so with {classes} "
            f"classes cross_entropy cannot fall below {figure(bound)}"
        )
        return Cause(name, text, f"Return raw scores: take {head} out of the model.", case.holds_at(bound))
    if call.function == "binary_cross_entropy_with_logits" and math.isfinite(high) and call.target is not None:
        ends = torch.tensor([low, high], device=call.target.device)
        target = call.target.detach().float()[..., None].expand(*call.target.shape, 2)
        losses = nn.functional.binary_cross_entropy_with_logits(ends.expand_as(target), target, reduction="none")
        nearest = losses.amin(-1)
        bound = factor * float(nearest.sum() if call.options.get("reduction") == "sum" else nearest.mean())
        name = "sigmoid-before-bce-with-logits" if head in ("sigmoid", "softmax") else "misplaced-activation"
        text = (
            f"the scores pass through {head}, and binary_cross_entropy_with_logits applies a sigmoid once more: it "
            f"cannot fall below {figure(bound)}"
        )
        return Cause(name, text, f"Return raw scores: take {head} out of the model.", case.holds_at(bound))
    if call.function in QUANTITIES and call.target is not None:
        return _out_of_range(case, call, head, low, high)
    return None


def _out_of_range(case: Case, call: LossCall, head: str, low: float, high: float) -> Cause | None:
    target = call.target
    assert target is not None
    nearest = target.detach().float().clamp(low, high)
    beyond = float((nearest != target.float()).float().mean())
    if not beyond:
        return None
    apart = getattr(nn.functional, call.function)(nearest, target.float(), reduction="none")
    bound = case.floor.factor * float(apart.sum() if call.options.get("reduction") == "sum" else apart.mean())
    limits = f"between {figure(low)} and {figure(high)}" if math.isfinite(high) else "not below 0"
    text = (
        f"the outputs pass through {head} and stay {limits}, but {beyond:.0%} of the targets lie outside: the loss "
        f"cannot fall below {figure(bound)}"
    )
    fix = f"Take {head} off the last layer, or scale the targets into its range."
    return Cause("misplaced-activation", text, fix, case.holds_at(bound))


def _rows_sum_to_one(call: LossCall) -> bool:
    dim = call.class_dim if call.class_dim is not None else -1
    rows = call.input.detach().float()
    if rows.dim() < 2 or float(rows.min()) < 0:
        return False
    return bool(((rows.sum(dim) - 1).abs() < ROW_SUM_TOLERANCE).all())


def _broadcast(case: Case, call: LossCall) -> Cause | None:
    target = call.target
    if call.function not in QUANTITIES or target is None or call.input.shape == target.shape:
        return None
    text = (
        f"outputs of shape {tuple(call.input.shape)} and targets of shape {tuple(target.shape)} are broadcast: every "
        "output is compared with every target, and the best is their mean"
    )
    return Cause("shape-broadcast-in-loss", text, "Give both one shape: output.squeeze(1), or target[:, None].", True)


def dead_output(case: Case) -> Cause | None:
    """All samples get the same answer although their inputs differ."""
    groups = groups_of_equal_inputs(case.end)
    output = _first_tensor(case.end)
    if groups is None or output is None or len(output) != len(groups) or int(groups.max()) == 0:
        return None
    if _varies(output):
        case.ruled_out.append("the outputs differ from sample to sample")
        return None
    where, gradients = _where_samples_become_equal(case), case.gradients
    text = "the outputs are the same for every sample, so the inputs do not reach them"
    if where:
        text += f"; from {where} on all samples look the same"
    if gradients.profile == "vanishing":
        text += f"; the gradient fades to 1/{figure(gradients.fall)} on its way to the first layers"
        return Cause("vanishing-gradients", text, "Use ReLU or GELU, normalisation or skip connections.", True)
    fix = "Dead or saturated units, or weights of zero? Lower the rate, change the activation or the initial weights."
    return Cause("dead-relu" if "ReLU" in (where or "") else "representation-collapse", text, fix, True)


def _first_tensor(reading: Reading) -> Tensor | None:
    outputs = getattr(reading.outputs, "logits", reading.outputs)
    return next((t for _, t in tensors_in(outputs) if t.dim() > 0 and t.is_floating_point()), None)


def _varies(tensor: Tensor) -> bool:
    rows = tensor.detach().float().flatten(1) if tensor.dim() > 1 else tensor.detach().float()[:, None]
    size = float(rows.abs().max())
    return size > 0 and float((rows - rows[:1]).abs().max()) > SAME * size


def _where_samples_become_equal(case: Case) -> str | None:
    """The first module that gives all samples the same, from inputs that differ."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            given = [a for a in args if isinstance(a, Tensor) and a.dim() > 0 and a.is_floating_point()]
            if found or not given or not isinstance(output, Tensor) or len(given[0]) != len(output):
                return
            if _varies(given[0]) and not _varies(output):
                found.append(f"{name} ({type(module).__name__})")

        return hook

    case.weights.put_back()
    leaves = [(n, m) for n, m in case.subject.model.named_modules() if n and not any(True for _ in m.children())]
    handles = [module.register_forward_hook(look(name)) for name, module in leaves]
    try:
        case.subject.loss(case.batch)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def falls_with_larger_scores(case: Case) -> bool:
    """Return whether growing all weights in proportion lowers the loss, at the weights of the best attempt.

    It does where the scores are unbounded and all answers are right, and does not where the scores are cosines.
    """
    case.weights.put_back()
    case.subject.model.zero_grad(set_to_none=True)
    loss = case.subject.loss(case.batch)
    loss.backward()
    trained = [p for p in case.subject.model.parameters() if p.grad is not None and p.grad.layout == torch.strided]
    slope = sum(float((p.grad.detach() * p.detach()).sum().real) for p in trained if p.grad is not None)
    return slope < -STEEP * abs(float(loss.detach()))
