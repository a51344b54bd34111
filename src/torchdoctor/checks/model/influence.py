"""What hangs on what: outputs under changed inputs, and batches with one tensor exchanged."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor.checks.bench import Bench
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.subject import fields_of, logits_of
from torchdoctor.probes.activations import first_tensor
from torchdoctor.probes.batches import batch_tensors

SEED = 20
"""Before every pass, so that two of them draw the same random numbers."""

MOVED = 1e-5
"""Of the largest sum over a row, by which another must differ to have changed."""

Change = Callable[[int, Tensor], Tensor]


def outputs_of(bench: Bench, batch: Any, change: Change | None = None) -> list[Tensor]:
    """The tensors that the model gives for this batch, as far as they are numbers on a scale. The batch stays as it is,
    whatever the model does to what it is given."""
    reseed()

    def give(number: int, given: Tensor) -> Tensor:
        return (change(number, given) if change else given).clone()

    with torch.no_grad(), bench.with_inputs(give), torch.compiler.set_stance("force_eager"):
        outputs = bench.subject.outputs(batch)
    found = batch_tensors(logits_of(outputs))
    return [tensor.detach().clone() for tensor in found if tensor.is_floating_point() and tensor.numel()]


def reseed() -> None:
    """All that a step may draw from; an experiment puts it back."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


def sample_count(bench: Bench, batch: Any) -> int | None:
    """Of this batch; where batches have time before samples, the loader tells."""
    told = getattr(bench.train_loader, "batch_size", None)
    tensors = [tensor for tensor in batch_tensors(batch) if tensor.dim() >= 2]
    if isinstance(told, int) and tensors and all(t.shape[0] != told and t.shape[1] == told for t in tensors):
        return told
    return samples_in(batch)


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
    counter = iter(range(1 << 30))

    def over(value: Any) -> Any:
        if isinstance(value, Tensor):
            return tensor if next(counter) == position else value
        if isinstance(value, Mapping):
            exchanged = {key: over(part) for key, part in value.items()}
            with contextlib.suppress(TypeError):
                return type(value)(exchanged)  # type: ignore[call-arg]
            return exchanged
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(over, value))
        if isinstance(value, list | tuple):
            return type(value)(map(over, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(value, **{key: over(part) for key, part in fields_of(value).items()})
        return value

    return over(batch)


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
