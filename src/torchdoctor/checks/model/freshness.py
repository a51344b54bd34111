"""Has this model been trained before? Told by what initialisations leave and training does not."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from torchdoctor.checks.bench import Bench
from torchdoctor.facts import WiringFact

REACHED = 0.8
"""Share of the bound that the largest of a few dozen uniform numbers comes to."""
ROUNDING = 1e-6


def is_fresh(bench: Bench) -> bool | None:
    """No: a checkpoint was loaded, normalisations have moved or hold statistics. Yes: all of them stand at one and
    zero; without any, each layer has biases of zero or weights cut off at PyTorch's own bound. None: nothing tells."""
    wiring = bench.run.last_fact(WiringFact) if bench.run is not None else None
    if wiring is not None and wiring.loaded:
        return False
    modules = list(bench.model.modules())
    norms = [_is_untouched(m) for m in modules if "Norm" in type(m).__name__ and _weight(m) is not None]
    if norms:
        return all(norms)
    layers = [_is_default(m) for m in modules if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    return True if layers and all(layers) else None


def _weight(module: nn.Module) -> Tensor | None:
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) else None


def _is_untouched(norm: nn.Module) -> bool:
    """Statistics tell only of what cannot move: a script has made its first pass before anything is looked at."""
    weight, bias = _weight(norm), getattr(norm, "bias", None)
    if weight is None or (isinstance(bias, Tensor) and not _is(bias, 0.0)):
        return False
    seen = norm.num_batches_tracked if isinstance(norm, _NormBase) else None
    if seen is not None and seen > 0 and not weight.requires_grad:
        return False
    return _is(weight, 1.0) or _is(weight, 0.0)


def _is_default(layer: nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) -> bool:
    """Biases at zero, or weights within the bound of PyTorch's own initialisation, and up to it."""
    if layer.bias is not None and _is(layer.bias, 0.0):
        return True
    bound = 1 / math.sqrt(max(1, layer.weight[0].numel()))
    most = float(layer.weight.detach().abs().max())
    return REACHED * bound <= most <= bound * (1 + ROUNDING)


def _is(tensor: Tensor, value: float) -> bool:
    return bool((tensor.detach() == value).all())
