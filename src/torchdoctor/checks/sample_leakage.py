"""No sample's output hangs on another sample: one of them is changed, and the outputs of the others must stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.influence import (
    Change,
    by_sample,
    farthest,
    first_to_change,
    outputs_of,
    sample_count,
    sample_dims,
)
from torchdoctor.checks.model.loss_wiring import Normalised, wiring_of
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.rules.architecture.representation_collapse import SAME
from torchdoctor.rules.places import known

CHECK = Check(
    name="sample-leakage",
    asks="samples do not leak into each other",
    part=MODEL,
    order=35,
    diagnoses=("misplaced-activation", "representation-collapse"),
)

LEAKED = 1e-4
"""Change of another sample's output over that of the changed one's own: far above rounding, far below any mixing."""
STATISTIC = 4.0
"""Over the number of samples: how much of one sample's change others may show where only a mean or a standard deviation
of the batch is shared, each sample being one of so many in it."""
ROUNDING = 32
"""Units in the last place of the largest output that a kernel may add otherwise."""


@dataclass(frozen=True)
class Leak:
    sample: int
    """that was changed"""
    share: float
    """largest change in the others over that of its own"""
    others: int
    """samples that changed with it"""
    count: int
    alike: bool
    """all samples have the same output"""
    module: str | None = None
    """the first in which they mix"""
    kind: str | None = None


def perform(bench: Bench) -> Outcome:
    batch = bench.train[0]
    count = sample_count(bench, batch)
    if count is None or count < 2:
        return skipped("a batch holds a single sample")
    inputs = bench.inputs(batch)
    if _links_samples(inputs, count):
        return skipped("the inputs link the samples with one another (a graph): they are meant to see each other")
    norms = [m for m in bench.model.modules() if isinstance(m, _BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        return skipped("batch norm without running statistics mixes the samples by design, in evaluation too")
    if not any(sample_dims(tensor, count) for tensor in inputs):
        return skipped(f"no input has a dimension of {count}, the number of samples")
    if not any(sample_dims(tensor, count) for tensor in outputs_of(bench, batch)):
        return skipped(f"no output has a dimension of {count}, the number of samples")
    leak = leak_of(bench, batch)
    if leak is None:
        beside = "; batch norm shares statistics in training mode, as it is meant to" if norms else ""
        return passed(f"another sample in place of one changes its own output only{beside}", samples=count)
    return _failure(bench, leak)


def leak_of(bench: Bench, batch: Any) -> Leak | None:
    """The first leak that is found in eval mode; None where there is none, or where it cannot be known."""
    count = sample_count(bench, batch)
    if count is None or count < 2:
        return None
    inputs = bench.inputs(batch)
    bench.model.eval()
    most = max((len(sample_dims(t, count)) for t in inputs if t.dim() > 2 or not t.is_floating_point()), default=1)
    found = [_leak_along(bench, batch, inputs, count, number) for number in range(max(1, most))]
    return found[0] if all(leak is not None for leak in found) else None


def _leak_along(bench: Bench, batch: Any, inputs: list[Tensor], count: int, number: int) -> Leak | None:
    """`number`: which of the dimensions that may run over the samples is taken to do so."""

    def dim_of(tensor: Tensor) -> int | None:
        dims = sample_dims(tensor, count)
        return dims[min(number, len(dims) - 1)] if dims else None

    base = outputs_of(bench, batch)
    for sample in sorted({0, count // 2, count - 1}):
        change = _exchange(inputs, dim_of, sample)
        for before, after in zip(base, outputs_of(bench, batch, change), strict=True):
            dim = dim_of(before)
            leak = _compare(before, after, dim, sample, count) if dim is not None else None
            if leak is not None:
                others = [n for n in range(count) if n != sample]
                module, kind = first_to_change(bench, batch, change, lambda made: _rows(made, count), others)
                return Leak(**{**vars(leak), "module": module, "kind": kind})
    return None


def _exchange(inputs: list[Tensor], dim_of: Any, sample: int) -> Change:
    """One sample's inputs replaced by another's, in all that the model is given; by noise where all are alike."""

    def change(number: int, given: Tensor) -> Tensor:
        dim = dim_of(given)
        if dim is None or number >= len(inputs):
            return given
        other = farthest(by_sample(given, dim), sample)
        changed = given.clone()
        changed.select(dim, sample).copy_(given.select(dim, other))
        if given.is_floating_point() and torch.equal(changed, given):
            noise = torch.randn(given.select(dim, sample).shape, generator=torch.Generator().manual_seed(sample))
            scale = given.float().std() if given.numel() > 1 else 1.0
            changed.select(dim, sample).add_((noise.to(given.device) * scale).to(given.dtype))
        return changed

    return change


def _compare(before: Tensor, after: Tensor, dim: int, sample: int, count: int) -> Leak | None:
    if before.shape != after.shape:
        return None
    if list(before.shape) == [count, count] and int((before[sample] != after[sample]).sum()) > 1:
        before, after = before.clone(), after.clone()  # similarities of all pairs: those of the changed sample change
        before[:, sample] = after[:, sample] = 0
    moved = torch.nan_to_num((by_sample(after, dim) - by_sample(before, dim)).abs().float()).amax(1)
    own, others = float(moved[sample]), torch.cat([moved[:sample], moved[sample + 1 :]])
    limit = max(LEAKED * own, ROUNDING * torch.finfo(before.dtype).eps * float(torch.nan_to_num(before).abs().max()))
    if float(others.max()) <= limit:
        return None
    rows = by_sample(before, dim).float()
    alike = bool((rows - rows[:1]).abs().max() <= SAME * rows.abs().max())
    share = float(others.max()) / own if own else float("inf")
    return Leak(sample, share, int((others > limit).sum()), count, alike)


def _rows(made: Tensor, count: int) -> Tensor | None:
    dims = sample_dims(made, count)
    return by_sample(made, dims[0]) if dims else None


def _links_samples(inputs: list[Tensor], count: int) -> bool:
    """Edges of a graph, or a matrix of neighbours beside the features."""
    edges = any(t.dim() == 2 and t.shape[0] == 2 != count and not t.is_floating_point() for t in inputs)
    matrix = len(inputs) > 1 and any(t.layout != torch.strided or list(t.shape) == [count, count] for t in inputs)
    return edges or matrix


def _failure(bench: Bench, leak: Leak) -> Outcome:
    softmax = next((s for s in wiring_of(bench).softmaxes if _is_over_samples(s, leak.count)), None)
    misfit = _built_for_time_first(bench, leak)
    at = f"; they first mix at {clean(leak.module)} ({leak.kind}) or just before it" if leak.module else ""
    text = f"changing sample {leak.sample} changes the outputs of {leak.others} of the other {leak.count - 1} samples"
    places = [Place(module=clean(leak.module))] if leak.module else []
    diagnosis, severity, fix = None, Severity.ERROR, _MIXED
    if softmax is not None:
        at, diagnosis = f": a softmax runs over the samples, dimension 0 of {softmax.shape}", "misplaced-activation"
        fix = Fix("Take it over the classes or the positions.", "torch.softmax(x, dim=-1)")
        places = [softmax.place, *places]
    elif misfit is not None:
        fix = Fix(
            f"{misfit} was built for (time, batch, features) and gets (batch, time, features): it attends or recurs "
            "over the samples.",
            f"nn.{misfit}(..., batch_first=True)",
        )
    elif leak.alike:
        text, diagnosis = f"{text} and all of them have the same output", "representation-collapse"
        fix = Fix("Pool over positions, not over the batch.", "x = x.mean(dim=1)  # dim 0 is the batch")
    elif leak.others == leak.count - 1 and leak.share <= STATISTIC / leak.count:
        text, severity = (
            f"{text} a little (up to {leak.share:.1%} of its own), as a mean over the batch does",
            Severity.INFO,
        )
        fix = Fix(
            "If that is meant, know that a sample alone, or in another batch, gets another output; nn.BatchNorm1d "
            "keeps statistics for that.",
            "self.norm = nn.BatchNorm1d(features)  # instead of x - x.mean(0)",
        )
    return failed(
        text + at,
        diagnosis,
        fix,
        severity=severity,
        evidence=("measured in eval mode, in which batch norm keeps samples apart",),
        where=known(*places),
        others=leak.others,
        share=leak.share,
    )


def _is_over_samples(softmax: Normalised, count: int) -> bool:
    return softmax.dim == 0 and len(softmax.shape) > 1 and softmax.shape[0] == count


_MIXED = Fix(
    "Keep dimension 0 for the samples: look for view or reshape after a transpose, and for mean, softmax or cat over "
    "dimension 0.",
    "x = x.permute(1, 0, 2).flatten(1)  # permute first, never view(batch, -1) on (time, batch, features)",
)


def _built_for_time_first(bench: Bench, leak: Leak) -> str | None:
    """The kind of the module in which samples mix, or of a part of it, where it takes time before samples."""
    module = bench.model.get_submodule(leak.module) if leak.module else None
    parts = list(module.modules()) if module is not None else []
    return next((type(m).__name__ for m in parts if getattr(m, "batch_first", None) is False), None)
