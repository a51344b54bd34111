"""Modules that depend on the mode, and whether their own settings make sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome, failed
from torchdoctor.checks.cost.run_plan import updates_of
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.instruments.tables import listed
from torchdoctor.probes.modes import has_initial_statistics
from torchdoctor.probes.regularizers import dropout_share

NEARLY_ALL = 0.9
"""Share that dropout takes away, from which on it is more likely the one that was to be kept. Srivastava et al. (2014)
drop 0.2 of the inputs and 0.5 of hidden units."""
LAST_BATCH = 0.9
"""Momentum, PyTorch's being the weight of the newest batch: the running statistics are those of the last one. Elsewhere
the same name is the weight of the old ones, and 0.9 or 0.99 the default."""
NEVER_ARRIVES = 0.5
"""Share of the running statistics that is still their start (zero and one) at the end of the run."""
DEFAULT = 0.1
"""PyTorch's momentum: nobody made it too small."""
LARGE_EPS = 0.1
"""Beside a variance of one; the usual one is 1e-5, and 1e-3 in TensorFlow."""


@dataclass(frozen=True)
class Sensitive:
    name: str
    module: Any
    drops: bool
    """dropout; else a normalisation with running statistics"""

    def __str__(self) -> str:
        """In a Sequential the name is a number: the kind tells more."""
        return f"{self.name or 'the model'} ({type(self.module).__name__})"

    @property
    def is_frozen(self) -> bool:
        """A normalisation whose weights are not trained may be kept in eval mode on purpose."""
        weight = getattr(self.module, "weight", None)
        return not self.drops and weight is not None and not weight.requires_grad

    @property
    def has_initial_statistics(self) -> bool:
        """The running statistics are those of a new module: in eval mode it normalises nothing."""
        return not self.drops and has_initial_statistics(self.module)


@dataclass(frozen=True)
class StepModes:
    """The modes that modules have when the training step calls them."""

    root_trains: bool | None
    """None where the step does not call the model as a module"""
    active: list[Sensitive]
    silent: list[Sensitive]
    """those in eval mode"""
    unused: list[Sensitive]
    """those that the step never calls"""

    @classmethod
    def of(cls, bench: Bench, modules: list[Sensitive]) -> StepModes:
        """Make one training step, in the modes that the model has or that the step sets."""
        root = bench.subject.called
        modes: dict[int, bool] = {}

        def note(module: nn.Module, _args: Any) -> None:
            modes[id(module)] = module.training

        watched = {id(m): m for m in (root, *(m.module for m in modules)) if not isinstance(m, torch.jit.ScriptModule)}
        handles = [module.register_forward_pre_hook(note) for module in watched.values()]
        try:
            bench.subject.loss(bench.train[0])
        finally:
            for handle in handles:
                handle.remove()
        called = [m for m in modules if id(m.module) in modes]
        return cls(
            modes.get(id(root)),
            [m for m in called if modes[id(m.module)]],
            [m for m in called if not modes[id(m.module)]],
            [m for m in modules if id(m.module) not in modes],
        )


def sensitive_of(model: nn.Module) -> list[Sensitive]:
    found = []
    for name, module in model.named_modules():
        if dropout_share(module) > 0:
            found.append(Sensitive(clean(name), module, True))
        elif isinstance(module, _BatchNorm | _InstanceNorm) and module.track_running_stats:
            found.append(Sensitive(clean(name), module, False))
    return found


def judge_settings(bench: Bench, modules: list[Sensitive]) -> Outcome | None:
    drops = [m for m in modules if m.drops and dropout_share(m.module) >= NEARLY_ALL]
    if drops:
        share = max(dropout_share(m.module) for m in drops)
        return failed(
            f"dropout takes away {share:.0%} of what goes through {listed(list(map(str, drops)), 3)}",
            "over-regularized",
            Fix("Give the share to drop, not the share to keep.", f"nn.Dropout({round(1 - share, 3) or 0.1})"),
            severity=Severity.ERROR if share >= 1 else Severity.WARNING,
            where=tuple(Place(module=m.name) for m in drops[:3]),
        )
    norms = [m for m in modules if not m.drops and m.module.training and not m.is_frozen]
    return _momentum(bench, norms) or _epsilon(bench.model)


def _momentum(bench: Bench, norms: list[Sensitive]) -> Outcome | None:
    fast = [m for m in norms if m.module.momentum is not None and m.module.momentum >= LAST_BATCH]
    if fast:
        value = fast[0].module.momentum
        return failed(
            f"momentum={value:g} of {listed(list(map(str, fast)), 3)} makes the running statistics those of the last "
            "batch: in PyTorch it is the weight of the newest batch",
            None,
            Fix(
                "Give one minus the momentum of other frameworks.",
                f"nn.BatchNorm2d(channels, momentum={round(1 - value, 4) or 0.1:g})",
            ),
            severity=Severity.WARNING,
            where=tuple(Place(module=m.name) for m in fast[:3]),
        )
    updates = updates_of(bench)
    batches = updates * max(1, bench.accumulation) if updates is not None else None
    slow = [
        m
        for m in norms
        if m.module.momentum is not None
        and not _has_statistics(m.module)
        and (m.module.momentum <= 0 or (batches is not None and (1 - m.module.momentum) ** batches > NEVER_ARRIVES))
    ]
    if not slow:
        return None
    value = slow[0].module.momentum
    if value >= DEFAULT and batches is not None:
        return _too_short(slow, batches)
    after = f"after all {batches} batches of the run" if batches is not None and value > 0 else "for ever"
    left = (1 - value) ** batches if batches is not None and value > 0 else 1.0
    return failed(
        f"momentum={value:g} of {listed(list(map(str, slow)), 3)} is so small that {left:.0%} of the running "
        f"statistics, which eval mode uses, are their start (0 and 1) {after}",
        None,
        Fix("Leave it at its default, or at None for a plain average.", "nn.BatchNorm2d(channels, momentum=0.1)"),
        severity=Severity.WARNING,
        where=tuple(Place(module=m.name) for m in slow[:3]),
    )


def _too_short(slow: list[Sensitive], batches: int) -> Outcome:
    value = slow[0].module.momentum
    return failed(
        f"the run is too short for the running statistics of {listed([m.name for m in slow], 3)}, which eval mode "
        f"uses: after its {batches} batches {(1 - value) ** batches:.0%} of them are still their start (0 and 1)",
        None,
        Fix(
            "Train for more batches, or let them be a plain average of those that there are.",
            "nn.BatchNorm2d(channels, momentum=None)",
        ),
        severity=Severity.WARNING,
        where=tuple(Place(module=m.name) for m in slow[:3]),
    )


def _has_statistics(norm: Any) -> bool:
    """From an earlier training."""
    return norm.num_batches_tracked is not None and int(norm.num_batches_tracked) > 0


def _epsilon(model: nn.Module) -> Outcome | None:
    odd = [
        (Sensitive(clean(name), module, False), float(module.eps))
        for name, module in model.named_modules()
        if "Norm" in type(module).__name__
        and isinstance(getattr(module, "eps", None), int | float)
        and (module.eps <= 0 or module.eps >= LARGE_EPS)
    ]
    if not odd:
        return None
    first, value = odd[0]
    return failed(
        f"eps={value:g} of {listed([str(m) for m, _ in odd], 3)} "
        + ("lets a constant input divide by zero" if value <= 0 else "outweighs the variance that it is added to"),
        "division-by-zero" if value <= 0 else None,
        Fix("Leave it at its default.", "eps=1e-5"),
        severity=Severity.WARNING,
        where=(Place(module=first.name),),
    )
