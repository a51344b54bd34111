"""No sample's output hangs on another sample: one of them is changed, and the outputs of the others must stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.influence import (
    SEED,
    Change,
    by_sample,
    farthest,
    first_to_change,
    outputs_of,
    sample_count,
    sample_counts,
    sample_dims,
)
from torchdoctor.checks.model.loss_wiring import Normalised, wiring_of
from torchdoctor.checks.model.mode_modules import StepModes, sensitive_of
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
    moved: tuple[int, ...]
    """samples that changed with it"""
    count: int
    alike: bool
    """all samples have the same output"""
    module: str | None = None
    """the first in which they mix"""
    kind: str | None = None

    @property
    def others(self) -> int:
        return len(self.moved)

    @property
    def is_statistic(self) -> bool:
        """All others changed a little, as with a mean over the batch."""
        return self.others == self.count - 1 and self.share <= STATISTIC / self.count


@dataclass(frozen=True)
class Trial:
    """Samples that were exchanged one by one."""

    leak: Leak | None = None
    seen: bool = False
    """the outputs changed at all, and not by themselves"""


def perform(bench: Bench) -> Outcome:
    batch = bench.train[0]
    counts = [count for count in sample_counts(bench, batch) if count > 1]
    if not counts:
        return skipped("a batch holds a single sample")
    inputs = bench.inputs(batch)
    if any(_links_samples(inputs, count) for count in counts):
        return skipped("the inputs link the samples with one another (a graph): they are meant to see each other")
    if any(holds_links(bench.model, count) for count in counts):
        return skipped("the model holds links between the samples (a graph): they are meant to see each other")
    norms = [m for m in bench.model.modules() if isinstance(m, _BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        return skipped("batch norm without running statistics mixes the samples by design, in evaluation too")
    for what, tensors in (("input", inputs), ("output", outputs_of(bench, batch))):
        if not any(sample_dims(tensor, count) for tensor in tensors for count in counts):
            return skipped(f"no {what} has a dimension of {counts[0]}, the number of samples")
    shared = [m for m in StepModes.of(bench, sensitive_of(bench.model)).active if isinstance(m.module, _BatchNorm)]
    bench.model.eval()
    trials = {count: _try_dims(bench, batch, count) for count in counts}
    apart = next((count for count, trial in trials.items() if trial.seen and trial.leak is None), None)
    if apart is not None:
        return _judge_training(bench, batch, apart) or _kept_apart(apart, counts, len(shared))
    leak = next((trial.leak for trial in trials.values() if trial.leak is not None), None)
    if leak is None:
        return skipped("another sample in place of one changes nothing in the outputs, or they change by themselves")
    return _failure(bench, leak)


def _kept_apart(count: int, counts: list[int], norms: int) -> Outcome:
    layers = f"{norms} batch norm layer{'s' * (norms != 1)}"
    beside = f"; in the training step {layers} share{'s' * (norms == 1)} statistics, as meant" if norms else ""
    taken = f", with {count} taken for the number of samples" if len(counts) > 1 else ""
    return passed(f"another sample in place of one changes its own output only{taken}{beside}", samples=count)


def leak_of(bench: Bench, batch: Any) -> Leak | None:
    """The first leak that is found in eval mode; None where there is none, or where it cannot be known."""
    count = sample_count(bench, batch)
    if count is None or count < 2:
        return None
    bench.model.eval()
    return _try_dims(bench, batch, count).leak


def _try_dims(bench: Bench, batch: Any, count: int, seed: int = SEED) -> Trial:
    """A leak only where none of the dimensions that may run over the samples keeps them apart."""
    inputs = bench.inputs(batch)
    most = max((len(sample_dims(t, count)) for t in inputs if t.dim() > 2 or not t.is_floating_point()), default=1)
    found = [_try_along(bench, batch, inputs, count, number, seed) for number in range(max(1, most))]
    return next((trial for trial in found if trial.seen and trial.leak is None), found[0])


def _try_along(bench: Bench, batch: Any, inputs: list[Tensor], count: int, number: int, seed: int) -> Trial:
    """`number`: which of the dimensions that may run over the samples is taken to do so."""

    def dim_of(tensor: Tensor) -> int | None:
        dims = sample_dims(tensor, count)
        return dims[min(number, len(dims) - 1)] if dims else None

    base = outputs_of(bench, batch, seed=seed)
    if not _is_repeated(base, outputs_of(bench, batch, seed=seed)):
        return Trial()  # it draws from generators of its own, or keeps something from pass to pass
    seen = False
    for sample in sorted({0, count // 2, count - 1}):
        change = _exchange(inputs, dim_of, sample)
        for before, after in zip(base, outputs_of(bench, batch, change, seed), strict=True):
            dim = dim_of(before)
            if dim is None or before.shape != after.shape:
                continue
            seen |= not torch.equal(before, after)
            leak = _compare(before, after, dim, sample, count)
            if leak is not None:
                others = [n for n in range(count) if n != sample]
                module, kind = first_to_change(bench, batch, change, lambda made: _rows(made, count), others)
                return Trial(replace(leak, module=module, kind=kind), True)
    return Trial(None, seen)


def _is_repeated(base: list[Tensor], again: list[Tensor]) -> bool:
    return all(
        a.shape == b.shape and bool((torch.nan_to_num((a - b).abs().float()) <= _rounding(a)).all())
        for a, b in zip(base, again, strict=True)
    )


def _rounding(tensor: Tensor) -> float:
    return ROUNDING * torch.finfo(tensor.dtype).eps * float(torch.nan_to_num(tensor).abs().max())


# -- training mode -------------------------------------------------------------------------------


def _judge_training(bench: Bench, batch: Any, count: int) -> Outcome | None:
    """Samples that mix in training mode alone. Batch norm is left out, and so is what draws whom to mix: mixup in a
    model's forward is meant."""
    bench.model.train()
    for module in bench.model.modules():
        if isinstance(module, _BatchNorm) or hasattr(module, "running_mean"):
            module.eval()
    for sensitive in sensitive_of(bench.model):
        sensitive.module.eval()
    leak = _try_dims(bench, batch, count).leak
    if leak is None or leak.is_statistic:
        return None
    again = _try_dims(bench, batch, count, SEED + 1).leak
    return _failure(bench, leak, in_training=True) if again is not None and again.moved == leak.moved else None


# -- one sample for another ----------------------------------------------------------------------


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
    if list(before.shape) == [count, count] and int((before[sample] != after[sample]).sum()) > 1:
        before, after = before.clone(), after.clone()  # similarities of all pairs: those of the changed sample change
        before[:, sample] = after[:, sample] = 0
    moved = torch.nan_to_num((by_sample(after, dim) - by_sample(before, dim)).abs().float()).amax(1)
    own = float(moved[sample])
    moved[sample] = 0
    limit = max(LEAKED * own, _rounding(before))
    if float(moved.max()) <= limit:
        return None
    rows = by_sample(before, dim).float()
    alike = bool((rows - rows[:1]).abs().max() <= SAME * rows.abs().max())
    share = float(moved.max()) / own if own else float("inf")
    return Leak(sample, share, tuple((moved > limit).nonzero().flatten().tolist()), count, alike)


def _rows(made: Tensor, count: int) -> Tensor | None:
    dims = sample_dims(made, count)
    return by_sample(made, dims[0]) if dims else None


def _links_samples(inputs: list[Tensor], count: int) -> bool:
    """Edges of a graph, or a matrix of neighbours beside the features."""
    edges = any(t.dim() == 2 and t.shape[0] == 2 != count and not t.is_floating_point() for t in inputs)
    matrix = len(inputs) > 1 and any(t.layout != torch.strided or list(t.shape) == [count, count] for t in inputs)
    return edges or matrix


def holds_links(model: nn.Module, count: int) -> bool:
    """A matrix of neighbours, or edges, among as many samples: one graph that every pass goes through."""
    held = [t for m in model.modules() for t in (*m.buffers(recurse=False), *vars(m).values()) if isinstance(t, Tensor)]
    return any(_is_matrix(t, count) or _is_edges(t, count) for t in held)


def _is_matrix(held: Tensor, count: int) -> bool:
    """Sparse, or full on both sides of its diagonal: a causal mask is not."""
    if list(held.shape) != [count, count]:
        return False
    return held.layout != torch.strided or not (torch.equal(held, held.tril()) or torch.equal(held, held.triu()))


def _is_edges(held: Tensor, count: int) -> bool:
    whole = held.dtype in (torch.int32, torch.int64) and held.layout == torch.strided
    pairs = whole and held.dim() == 2 and held.shape[0] == 2 and held.shape[1] > 1
    return pairs and int(held.min()) >= 0 and int(held.max()) < count


def _failure(bench: Bench, leak: Leak, in_training: bool = False) -> Outcome:
    softmax = next((s for s in wiring_of(bench).softmaxes if _is_over_samples(s, leak.count)), None)
    misfit = _built_for_time_first(bench, leak)
    at = f"; they first mix at {clean(leak.module)} ({leak.kind}) or just before it" if leak.module else ""
    mode = "in training mode " if in_training else ""
    others = f"{leak.others} of the other {leak.count - 1} samples"
    text = f"{mode}changing sample {leak.sample} changes the outputs of {others}"
    places = [Place(module=clean(leak.module))] if leak.module else []
    diagnosis, severity, fix = None, Severity.WARNING if in_training else Severity.ERROR, _MIXED
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
    elif leak.is_statistic:
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
        evidence=(_MEASURED_IN_TRAINING if in_training else _MEASURED,),
        where=known(*places),
        others=leak.others,
        share=leak.share,
    )


def _is_over_samples(softmax: Normalised, count: int) -> bool:
    return softmax.dim == 0 and len(softmax.shape) > 1 and softmax.shape[0] == count


_MEASURED = "measured in eval mode, in which batch norm keeps samples apart"
_MEASURED_IN_TRAINING = (
    "measured with dropout and batch norm put into eval mode; with all of it there, the samples stay apart"
)
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
