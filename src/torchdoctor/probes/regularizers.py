"""What holds a model back on purpose and can be read off it: the probabilities of its dropout modules."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from torchdoctor.attach.guard import contained
from torchdoctor.facts import DropoutFact
from torchdoctor.probes.context import Context

NAMES_KEPT = 64


@contained("regularizers: look")
def look(context: Context, name: str, model: nn.Module) -> None:
    """Write down every dropout of a model that was just found."""
    found: dict[str, float] = {}
    for path, module in model.named_modules():
        share = dropout_share(module)
        if share > 0 and len(found) < NAMES_KEPT:
            found[path] = share
    if found:
        context.record.fact(DropoutFact(model=name, shares=found), context.step, name)


def dropout_share(module: nn.Module) -> float:
    """Return the share that a module drops in train mode; 0 where dropout is switched off or cannot act.

    A recurrent network drops between its layers, so one of a single layer drops nothing.
    """
    share = module.p if isinstance(module, _DropoutNd) else 0.0
    if isinstance(module, nn.MultiheadAttention) or (isinstance(module, nn.RNNBase) and module.num_layers > 1):
        share = module.dropout
    return float(share) if isinstance(share, (int, float)) else 0.0
