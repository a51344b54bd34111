"""What a script's model gets right and wrong: judged on what its own loss compares, as its graph keeps it.

So nothing has to be known of how batches look or which output is meant, and a language model's shift, padding and
flattening are those of the script.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchdoctor.errors import UsageError
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import Subject
from torchdoctor.probes.graph import walk
from torchdoctor.probes.saved import saved

if TYPE_CHECKING:
    from torchdoctor.instruments.result import Result
    from torchdoctor.takeover.driving import LoopSubject
    from torchdoctor.takeover.parts import Parts

LOSSES: dict[str, Callable[..., Tensor]] = {
    "NllLossBackward0": F.nll_loss,
    "NllLoss2DBackward0": F.nll_loss,
    "BinaryCrossEntropyWithLogitsBackward0": F.binary_cross_entropy_with_logits,
    "BinaryCrossEntropyBackward0": F.binary_cross_entropy,
    "MseLossBackward0": F.mse_loss,
    "SmoothL1LossBackward0": F.smooth_l1_loss,
    "HuberLossBackward0": F.huber_loss,
}
"""Operators that keep what they compare; a cross-entropy is the first of them, on log-probabilities."""
FROM_CODE = "torchdoctor.evaluate(model, loader, output_fn=..., target_fn=...) in the script is told what to compare"


@dataclass(frozen=True)
class Compared:
    loss_fn: Callable[..., Tensor]
    outputs: Tensor
    target: Tensor
    ignore_index: int | None = None


def compared_in(loss: Tensor) -> Compared:
    """By the one loss function of torch that this loss hangs on."""
    graph = walk(loss)
    nodes = [node for node in (graph.nodes if graph is not None else []) if node.name() in LOSSES]
    if not nodes:
        raise UsageError(f"the script's loss is none of torch's own that keep what they compare; {FROM_CODE}")
    if len(nodes) > 1:
        raise UsageError(f"the script's loss is made of {len(nodes)} losses; {FROM_CODE}")
    node = nodes[0]
    outputs, target = saved(node, "self"), saved(node, "target")
    if outputs is None or target is None:
        raise UsageError(f"what the script's loss compares is packed away by its checkpointing; {FROM_CODE}")
    ignored = getattr(node, "_saved_ignore_index", None)
    return Compared(LOSSES[node.name()], outputs.detach(), target.detach(), ignored)


class _Judged(Subject):
    """The loop is driven with a batch, and what its loss compared is read off."""

    def __init__(self, subject: LoopSubject, loss_fn: Callable[..., Tensor]) -> None:
        super().__init__(subject.model, loss_fn)
        self._subject = subject
        self._compared: Compared | None = None

    def outputs(self, batch: Any) -> Tensor:
        with torch.enable_grad():
            self._compared = compared_in(self._subject.loss(batch))
        return self._compared.outputs

    def target(self, _batch: Any) -> Tensor:
        assert self._compared is not None  # outputs() comes first
        return self._compared.target


def judge(parts: Parts, *, validation: bool, batches: int | None, worst: int, level: float) -> Result:
    from torchdoctor.instruments.evaluating.evaluation import measure
    from torchdoctor.instruments.evaluating.judged import Choices
    from torchdoctor.instruments.evaluating.reading import Wishes

    loader = parts.validation_loader if validation else parts.train_loader or parts.train
    if loader is None:
        raise UsageError(
            "no loader that the script validates with was seen in its first steps; --train judges what it trains on"
        )
    first = (parts.validation if validation else parts.train)[0]
    with untouched(parts.subject.model, loaders=(loader,)):
        found = compared_in(parts.subject.loss(first))
    wishes = Wishes(
        task=None,
        scores=None,
        class_names=None,
        slices=None,
        slice_parts=1,
        worst=worst,
        threshold=0.5,
        ignore_index=found.ignore_index,
        choices=Choices(k=(10, 100), top=(5,), level=level, bins=15, binning="uniform"),
        shift=False,
        batches=batches,
        progress=True,
    )
    return measure(_Judged(parts.subject, found.loss_fn), loader, wishes)
