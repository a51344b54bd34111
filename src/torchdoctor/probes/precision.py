"""Mixed precision: which autocast blocks a step enters, in which type its matrix products are made, and what else of it
runs in 16 bits though its result easily leaves their range or digits."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.attach.patches import Gate
from torchdoctor.attach.places import Place
from torchdoctor.facts import HalfOperationFact, PrecisionFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph, line_of
from torchdoctor.probes.saved import saved

PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward", "BaddbmmBackward", "ConvolutionBackward", "LinearBackward")
"""Operators that autocast makes in the lower type, by the beginning of their names (torch's list of autocast ops)."""
SIXTEEN_BITS = (torch.float16, torch.bfloat16)
DELICATE = (
    *("Softmax", "LogSoftmax", "NativeLayerNorm", "NativeBatchNorm", "NativeGroupNorm", "FusedRmsNorm"),
    *("NllLoss", "MseLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "L1Loss", "SmoothL1Loss", "KlDiv"),
    *("Exp", "Expm1", "Log", "Log2", "Log10", "Log1P", "Logsumexp", "Pow", "Prod", "Cumsum", "Cumprod"),
    *("LinalgVectorNorm", "Norm", "Std", "Var", "StdMean", "VarMean"),
)
"""What autocast makes in float32 on a GPU (torch's list of ops that cast to float32), and what it is made of."""
DELICATE_NODES = frozenset(f"{name}Backward{n}" for name in DELICATE for n in (0, 1))
REDUCTIONS = frozenset(f"{name}Backward{n}" for name in ("Sum", "Mean") for n in (0, 1))
LONG = 2048
"""float16 counts in ones up to here; a sum over more values of one size is beyond its digits."""
FACTS_KEPT = 8
OPERATIONS_KEPT = 16


class PrecisionProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.gate = Gate(True)
        """autocast blocks are of interest on structural steps only"""
        self._asked: dict[str, None] = {}
        self._switched_off = False
        self._scaler = False
        self._scaling: bool | None = None
        self._place: Place | None = None
        self._written: set[Any] = set()
        self._delicate: set[tuple[Any, ...]] = set()

    @contained("precision: entered")
    def entered(self, device: str, enabled: bool, place: Place | None) -> None:
        if enabled:
            self._asked[device] = None
            self._place = self._place or place
        else:
            self._switched_off = True

    def scaled(self, enabled: bool) -> None:
        """A scaler was given a loss; one that is switched off asks for nothing."""
        self._scaler, self._scaling = self._scaler or enabled, enabled

    @contained("precision: look")
    def look(self, loss: Tensor, graph: Graph | None) -> None:
        """At the beginning of a backward on a structural step."""
        if graph is not None:
            self._look_delicate(graph)
        if not self._asked and not self._scaler:
            return
        parameters = [p for _, p in self._context.names.parameters()]
        fact = PrecisionFact(
            device=parameters[0].device.type if parameters else loss.device.type,
            asked=list(self._asked),
            switched_off=self._switched_off,
            scaler=self._scaler,
            products=_products(graph) if graph is not None else {},
            parameters=sorted({str(p.dtype).removeprefix("torch.") for p in parameters if p.is_floating_point()}),
            file=self._place.file if self._place else None,
            line=self._place.line if self._place else None,
            scaling=self._scaling,
        )
        signature = str((fact.asked, fact.switched_off, fact.scaler, fact.products))
        if signature not in self._written and len(self._written) < FACTS_KEPT:
            self._written.add(signature)
            self._context.record.fact(fact, self._context.step, str(len(self._written)))

    def _look_delicate(self, graph: Graph) -> None:
        """Each kind of operation at each line is written once; later looks know no lines and add nothing."""
        found: Counter[tuple[str, torch.dtype, Place | None]] = Counter()
        longest: dict[tuple[str, torch.dtype, Place | None], int] = {}
        for node in graph.nodes:
            name = node.name()
            if name not in DELICATE_NODES and name not in REDUCTIONS:
                continue
            dtype = _dtype(node)
            length = _length(node) if name in REDUCTIONS else None
            if dtype not in SIXTEEN_BITS or (length is not None and length <= LONG):
                continue
            key = (name.partition("Backward")[0], dtype, line_of(node))
            found[key] += 1
            if length is not None:
                longest[key] = max(length, longest.get(key, 0))
        for key, count in found.items():
            operator, dtype, place = key
            known = any(done[:2] == (operator, dtype) for done in self._delicate)
            if key in self._delicate or (place is None and known) or len(self._delicate) >= OPERATIONS_KEPT:
                continue
            self._delicate.add(key)
            where = (place.file, place.line) if place else (None, None)
            kind = str(dtype).removeprefix("torch.")
            fact = HalfOperationFact(operator, kind, count, longest.get(key), *where)
            self._context.record.fact(fact, self._context.step, str(len(self._delicate)))

    def stepped(self) -> None:
        self._asked = {}
        self._switched_off = self._scaler = False
        self._scaling = None


def _dtype(node: Any) -> torch.dtype | None:
    """Of what the operator gave; its own copy of that goes before autograd's note, since a softmax casts as it runs."""
    result = saved(node, "result")
    if result is not None:
        return result.dtype
    metadata = getattr(node, "_input_metadata", None)
    return metadata[0].dtype if metadata else None


def _length(node: Any) -> int:
    """How many values a sum or mean took together."""
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    metadata = getattr(node, "_input_metadata", None)
    if sizes is None or not metadata:
        return 0
    return math.prod(int(n) for n in sizes) // max(math.prod(int(n) for n in metadata[0].shape), 1)


def _products(graph: Graph) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        name = node.name()
        if name.startswith(PRODUCTS) or "Attention" in name:
            dtype = _dtype(node)
            if dtype is not None:
                counts[str(dtype).removeprefix("torch.")] += 1
    return dict(counts)
