"""Mixed precision: which autocast blocks a step enters, and in which type its matrix products are made."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.attach.patches import Gate
from torchdoctor.attach.places import Place
from torchdoctor.facts import PrecisionFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import ACCUMULATE

NODES_LIMIT = 5000
PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward", "BaddbmmBackward", "ConvolutionBackward", "LinearBackward")
"""Operators that autocast makes in the lower type, by the beginning of their names (torch's list of autocast ops)."""
FACTS_KEPT = 8


class PrecisionProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.gate = Gate(True)
        """autocast blocks are of interest on structural steps only"""
        self._asked: dict[str, None] = {}
        self._switched_off = False
        self._scaler = False
        self._place: Place | None = None
        self._written: set[Any] = set()

    @contained("precision: entered")
    def entered(self, device: str, enabled: bool, place: Place | None) -> None:
        if enabled:
            self._asked[device] = None
            self._place = self._place or place
        else:
            self._switched_off = True

    def scaled(self) -> None:
        self._scaler = True

    @contained("precision: look")
    def look(self, loss: Tensor) -> None:
        """At the beginning of a backward on a structural step."""
        if not self._asked and not self._scaler:
            return
        parameters = [p for _, p in self._context.names.parameters()]
        fact = PrecisionFact(
            device=parameters[0].device.type if parameters else loss.device.type,
            asked=list(self._asked),
            switched_off=self._switched_off,
            scaler=self._scaler,
            products=_products(loss),
            parameters=sorted({str(p.dtype).removeprefix("torch.") for p in parameters if p.is_floating_point()}),
            file=self._place.file if self._place else None,
            line=self._place.line if self._place else None,
        )
        signature = str((fact.asked, fact.switched_off, fact.scaler, fact.products))
        if signature not in self._written and len(self._written) < FACTS_KEPT:
            self._written.add(signature)
            self._context.record.fact(fact, self._context.step, str(len(self._written)))

    def stepped(self) -> None:
        self._asked = {}
        self._switched_off = self._scaler = False


def _products(loss: Tensor) -> dict[str, int]:
    counts: Counter[str] = Counter()
    queue = deque([loss.grad_fn] if loss.grad_fn is not None else [])
    seen = set(queue)
    while queue and len(seen) < NODES_LIMIT:
        node = queue.popleft()
        name = node.name()
        if name.startswith(PRODUCTS) or "Attention" in name:
            metadata = getattr(node, "_input_metadata", None)
            if metadata:
                counts[str(metadata[0].dtype).removeprefix("torch.")] += 1
        for child, _ in node.next_functions:
            if child is not None and child not in seen and child.name() != ACCUMULATE:
                seen.add(child)
                queue.append(child)
    return dict(counts)
