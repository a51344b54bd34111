"""Train and eval mode of what behaves differently in them: dropout and normalisation with running statistics."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.facts import TRAIN, ModesFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.regularizers import dropout_share

NAMES_KEPT = 64
STATES_KEPT = 64


def has_initial_statistics(norm: Any) -> bool:
    """Return whether the running statistics are those of a new module: in eval mode it then normalises nothing."""
    mean, var = getattr(norm, "running_mean", None), getattr(norm, "running_var", None)
    return mean is not None and var is not None and not bool(mean.any()) and bool((var == 1).all())


@dataclass(frozen=True)
class Modes:
    """Flags of one model at one moment. `flags` runs over its sensitive modules."""

    training: bool
    flags: tuple[bool, ...]


class ModesProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._sensitive: dict[int, tuple[weakref.ref[nn.Module], list[tuple[str, Any, bool]]]] = {}
        self._written: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._counted: dict[tuple[Any, ...], tuple[int, ModesFact]] = {}

    def take(self, model: nn.Module) -> Modes:
        """Read the flags now; cheap enough for every watched pass."""
        modules = self._modules(model)
        return Modes(model.training, tuple(m.training for _, ref, _ in modules if (m := ref()) is not None))

    def _modules(self, model: nn.Module) -> list[tuple[str, Any, bool]]:
        known = self._sensitive.get(id(model))
        if known is None or known[0]() is not model:
            found: list[tuple[str, Any, bool]] = []
            for name, module in model.named_modules():
                if dropout_share(module) > 0:
                    found.append((name, weakref.ref(module), True))
                elif isinstance(module, (_BatchNorm, _InstanceNorm)) and module.track_running_stats:
                    found.append((name, weakref.ref(module), False))
            known = self._sensitive[id(model)] = (weakref.ref(model), found)
        return known[1]

    @contained("modes: write")
    def write(
        self, model: nn.Module, name: str, phase: str, modes: Modes, grad: bool, step: int, place: Place | None
    ) -> None:
        """A pass of this phase ran so. Written when it differs from the last pass of the phase."""
        key = (name, phase)
        seen = (modes, grad)
        known = self._counted.get((*key, *seen))
        if known is not None:
            self._counted[(*key, *seen)] = (known[0] + 1, known[1])
        if self._written.get(key) == seen:
            return
        self._written[key] = seen
        lists: dict[str, list[str]] = {
            "dropout_training": [],
            "dropout_eval": [],
            "norm_training": [],
            "norm_eval": [],
            "norm_frozen": [],
            "norm_idle": [],
        }
        for (path, ref, dropout), training in zip(self._modules(model), modes.flags, strict=False):
            lists[f"{'dropout' if dropout else 'norm'}_{'training' if training else 'eval'}"].append(path)
            module = ref()
            weight = getattr(module, "weight", None)
            if not dropout and not training and weight is not None and not weight.requires_grad:
                lists["norm_frozen"].append(path)
            elif not dropout and not training and modes.training and phase == TRAIN and has_initial_statistics(module):
                lists["norm_idle"].append(path)
        fact = ModesFact(
            model=name,
            phase=phase,
            training=modes.training,
            grad_enabled=grad,
            passes=known[0] + 1 if known else 1,
            file=place.file if place else None,
            line=place.line if place else None,
            library=place.library if place else None,
            **{k: v[:NAMES_KEPT] for k, v in lists.items()},
        )
        if known is None and len(self._counted) < STATES_KEPT:
            self._counted[(*key, *seen)] = (1, fact)
        self._context.record.fact(fact, step, f"{name}/{phase}")

    @contained("modes: close")
    def close(self, step: int) -> None:
        """Write once more how many passes ran in each state."""
        for (name, phase, *_), (passes, fact) in self._counted.items():
            if passes > fact.passes:
                self._context.record.fact(replace(fact, passes=passes), step, f"{name}/{phase}/total")
