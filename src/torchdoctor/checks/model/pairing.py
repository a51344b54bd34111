"""Whose input answers for whose target: one sample's target is exchanged, the inputs' gradients are watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.model.influence import (
    by_sample,
    farthest,
    positions_of,
    reseed,
    sample_count,
    sample_dims,
    with_tensor,
)
from torchdoctor.checks.model.looks import Look
from torchdoctor.probes.batches import batch_tensors

LEAST_SAMPLES = 4
TRIED = 3
ALONE = 0.9
"""Share of its own in what another input for one sample changes in the gradients of all: less where the loss weighs
samples against one another, as a contrastive one does, and then its targets do, too."""


def own_share(bench: Bench, look: Look) -> float | None:
    """Of what another target for one sample changes in the gradients of all samples' inputs: the part of its own, in
    the mean of a few samples. One where each target is compared with the output of its own sample, little where they
    are dealt out among all. None where it cannot be measured."""
    count = sample_count(bench, look.batch)
    position = _target_in(bench, look, count)
    if count is None or position is None:
        return None
    target = batch_tensors(look.batch)[position]
    dim = sample_dims(target, count)[0]
    rows = by_sample(target, dim)
    bench.model.eval()
    base = _gradients(bench, look.batch, count)
    if base is None or _weighs_samples(bench, look, base, count):
        return None
    shares = []
    for sample in sorted({0, count // 2, count - 1})[:TRIED]:
        exchanged = target.clone()
        exchanged.select(dim, sample).copy_(target.select(dim, farthest(rows, sample)))
        changed = _gradients(bench, with_tensor(look.batch, position, exchanged), count)
        if changed is None or base.shape != changed.shape:
            return None
        moved = torch.nan_to_num(changed - _common_factor(base, changed) * base).norm(dim=1)
        if float(moved.sum()) > 0:
            shares.append(float(moved[sample] / moved.sum()))
    return sum(shares) / len(shares) if shares else None


def _weighs_samples(bench: Bench, look: Look, base: Tensor, count: int) -> bool:
    """What a sample brings changes the gradients of others."""

    def exchange(_number: int, given: Tensor) -> Tensor:
        dims = sample_dims(given, count)
        if not dims:
            return given
        changed = given.clone()
        changed.select(dims[0], 0).copy_(given.select(dims[0], farthest(by_sample(given, dims[0]), 0)))
        return changed

    with bench.with_inputs(exchange):
        changed = _gradients(bench, look.batch, count)
    if changed is None or changed.shape != base.shape:
        return True
    moved = torch.nan_to_num(changed - base).norm(dim=1)
    return float(moved[0]) < ALONE * float(moved.sum())


def _common_factor(base: Tensor, changed: Tensor) -> Tensor:
    """By which most samples' gradients changed: the loss divides by a sum of weights, or by the labels it counts."""
    size = base.square().sum(1)
    factors = ((base * changed).sum(1) / size)[size > 0]
    return factors.median() if len(factors) else torch.ones((), dtype=base.dtype, device=base.device)


def _target_in(bench: Bench, look: Look, count: int | None) -> int | None:
    """Which tensor of the batch the loss took as it is, where it is not an input, too."""
    wanted = [call.target for call in look.calls if call.target is not None]
    if len(wanted) != 1 or count is None or count < LEAST_SAMPLES:
        return None
    tensors = batch_tensors(look.batch)
    found = positions_of(look.batch, wanted[0])
    if len(found) != 1 or any(positions_of(tensors[found[0]], given) for given in look.inputs):
        return None
    sizes = [t for t in (*look.inputs, tensors[found[0]]) if t.dim()]
    if any(t.dim() > 1 and len(sample_dims(t, count)) > 1 for t in sizes):
        return None
    return found[0] if sample_dims(tensors[found[0]], count) else None


def _gradients(bench: Bench, batch: Any, count: int) -> Tensor | None:
    """Of the loss by what the model was given, a row for each sample; of ids, by what was looked up for them."""
    leaves: list[Tensor] = []

    def note(_number: int, given: Tensor) -> Tensor:
        if not given.is_floating_point():
            return given
        leaves.append(given.detach().clone().requires_grad_())
        return leaves[-1].clone()

    reseed()
    plain = torch.backends.cudnn.flags(enabled=False)  # its recurrent layers have no backward in eval mode
    with bench.with_inputs(note), _noting_embeddings(bench.model, leaves), plain:
        loss = bench.subject.loss(batch)
        found = torch.autograd.grad(loss, leaves, allow_unused=True) if leaves and loss.requires_grad else ()
    rows = [by_sample(g, sample_dims(g, count)[0]) for g in found if g is not None and sample_dims(g, count)]
    return torch.cat([row.double() for row in rows], 1) if rows else None


@contextmanager
def _noting_embeddings(model: nn.Module, leaves: list[Tensor]) -> Iterator[None]:
    def note(_module: nn.Module, _args: Any, made: Tensor) -> Tensor:
        kept = made if made.requires_grad else made.detach().requires_grad_()
        leaves.append(kept)
        return kept.clone()

    kinds = (nn.Embedding, nn.EmbeddingBag)
    handles = [module.register_forward_hook(note) for module in model.modules() if isinstance(module, kinds)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
