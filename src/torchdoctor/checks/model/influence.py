"""What hangs on what: outputs under changed inputs, and batches with one tensor exchanged."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor.checks.bench import Bench
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.subject import logits_of
from torchdoctor.probes.activations import first_tensor
from torchdoctor.probes.batches import batch_tensors, change_tensors

SEED = 20
"""Before every pass, so that two of them draw the same random numbers."""

MOVED = 1e-5
"""Of the largest sum over a row, by which another must differ to have changed."""

Change = Callable[[int, Tensor], Tensor]


def outputs_of(bench: Bench, batch: Any, change: Change | None = None, seed: int = SEED) -> list[Tensor]:
    """The tensors that the model gives for this batch, as far as they are numbers on a scale. The batch stays as it is,
    whatever the model does to what it is given."""
    reseed(seed)

    def give(number: int, given: Tensor) -> Tensor:
        return (change(number, given) if change else given).clone()

    # With a graph: a step, or a forward, may take the gradient of what it computes.
    with torch.enable_grad(), bench.with_inputs(give), torch.compiler.set_stance("force_eager"):
        outputs = bench.subject.outputs(batch)
    found = batch_tensors(logits_of(outputs))
    return [tensor.detach().clone() for tensor in found if tensor.is_floating_point() and tensor.numel()]


def reseed(seed: int = SEED) -> None:
    """All that a step may draw from; an experiment puts it back."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def sample_count(bench: Bench, batch: Any) -> int | None:
    """Of this batch; the likeliest where its shapes allow for more than one."""
    return next(iter(sample_counts(bench, batch)), None)


def sample_counts(bench: Bench, batch: Any) -> list[int]:
    """How many samples this batch may have, the likelier first. Batches may have time before samples: then the loader
    tells, or a target of one number each, or a module that takes time first. Without a loader that is sure of dimension
    0, and with targets for every step, both are possible."""
    tensors = [tensor for tensor in batch_tensors(batch) if tensor.dim()]
    deep, flat = [t for t in tensors if t.dim() > 1], {len(t) for t in tensors if t.dim() == 1}
    told = getattr(bench.train_loader, "batch_size", None)
    if isinstance(told, int):
        flat = {told}
    second = {t.shape[1] for t in deep}
    if len(second) == 1 and second <= flat and not any(t.shape[0] in flat for t in deep):
        return list(second)
    first = samples_in(batch)
    if first is None or isinstance(told, int) or not _may_begin_with_time(tensors):
        return [] if first is None else [first]
    other = deep[0].shape[1]
    return [other, first] if _is_read_by_time(bench, batch, (first, other)) else [first, other]


def _may_begin_with_time(tensors: list[Tensor]) -> bool:
    """All have the same first two dimensions, and these are not samples and features."""
    shapes = {tuple(t.shape[:2]) for t in tensors}
    alike = len(shapes) == 1 and len(shape := shapes.pop()) == 2 and shape[0] != shape[1]
    return alike and len(tensors) > 1 and any(t.dim() > 2 or not t.is_floating_point() for t in tensors)


def _is_read_by_time(bench: Bench, batch: Any, lengths: tuple[int, int]) -> bool:
    """A recurrent network or an attention that was built for (time, samples, features) is given these lengths."""
    found: list[bool] = []

    def note(_module: nn.Module, args: Any, kwargs: Any) -> None:
        given = next(iter(batch_tensors([*args, *kwargs.values()])), None)
        found.append(given is not None and given.dim() == 3 and tuple(given.shape[:2]) == lengths)

    kinds = (nn.RNNBase, nn.MultiheadAttention)
    built = [m for m in bench.model.modules() if isinstance(m, kinds) and not m.batch_first]
    handles = [module.register_forward_pre_hook(note, with_kwargs=True) for module in built]
    try:
        if built:
            outputs_of(bench, batch)
    finally:
        for handle in handles:
            handle.remove()
    return any(found)


def sample_dims(tensor: Tensor, count: int) -> list[int]:
    """The dimensions that may run over the samples, the likelier first."""
    return [dim for dim in (0, 1) if tensor.dim() > dim and tensor.shape[dim] == count]


def by_sample(tensor: Tensor, dim: int) -> Tensor:
    """A row for each sample."""
    rows = tensor.movedim(dim, 0)
    return rows.reshape(len(rows), -1)


def positions_of(batch: Any, wanted: Tensor) -> list[int]:
    """Which of a batch's tensors hold these values, in whatever shape."""
    flat = wanted.detach().reshape(-1)
    return [
        number
        for number, tensor in enumerate(batch_tensors(batch))
        if tensor.numel() == flat.numel() and torch.equal(tensor.detach().reshape(-1).to(flat.device, flat.dtype), flat)
    ]


def with_tensor(batch: Any, position: int, tensor: Tensor) -> Any:
    """The same batch with one of its tensors exchanged."""
    counter = itertools.count()
    return change_tensors(batch, lambda held: tensor if next(counter) == position else held)


def farthest(rows: Tensor, at: int) -> int:
    """The sample that differs most from this one."""
    differs = (rows != rows[at]).double().mean(1) if not rows.is_floating_point() else (rows - rows[at]).abs().mean(1)
    return int(torch.nan_to_num(differs).argmax())


def first_to_change(
    bench: Bench, batch: Any, change: Change, rows: Callable[[Tensor], Tensor | None], kept: list[int]
) -> tuple[str | None, str | None]:
    """The first module, in the order in which they finish, whose output changes in rows that should have stayed, and
    its kind. `rows` lays an output out by sample, or by position; None for what has none."""
    prints: list[dict[str, Tensor]] = []
    for each in (None, change):
        with _fingerprints(bench.model, rows) as found:
            outputs_of(bench, batch, each)
        prints.append(found)
    before, after = prints
    for name, marks in before.items():
        if name not in after or after[name].shape != marks.shape:
            continue
        moved = (after[name] - marks).abs() > MOVED * marks.abs().amax(0)
        if bool(moved[kept].any()):
            return name, type(bench.model.get_submodule(name)).__name__
    return None, None


@contextlib.contextmanager
def _fingerprints(model: nn.Module, rows: Callable[[Tensor], Tensor | None]) -> Iterator[dict[str, Tensor]]:
    """Sums over each row of what every module gives the first time it is called."""
    found: dict[str, Tensor] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            made = first_tensor(output)
            laid = rows(made.detach()) if made is not None and made.is_floating_point() else None
            if laid is not None and name not in found:
                laid = torch.nan_to_num(laid.double())
                ramp = torch.linspace(-1, 1, laid.shape[1], dtype=laid.dtype, device=laid.device)
                found[name] = torch.stack([laid.sum(1), laid.square().sum(1), laid @ ramp], 1)

        return hook

    named = [(name, module) for name, module in model.named_modules() if name]
    handles = [module.register_forward_hook(note(name)) for name, module in named]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
