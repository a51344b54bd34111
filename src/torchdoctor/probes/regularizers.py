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
        share = module.p if isinstance(module, _DropoutNd) else None
        if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
            share = module.dropout
        if isinstance(share, (int, float)) and share > 0 and len(found) < NAMES_KEPT:
            found[path] = float(share)
    if found:
        context.record.fact(DropoutFact(model=name, shares=found), context.step, name)
