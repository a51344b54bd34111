"""The operators between the loss and the last layer, as rules walk them: which output goes into which operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torchdoctor.facts import GraphFact
from torchdoctor.findings import Place

RESHAPING = frozenset(
    [
        *("View", "UnsafeView", "Reshape", "ReshapeAlias", "Flatten", "Unflatten", "Squeeze", "Unsqueeze"),
        *("Permute", "Transpose", "T", "Movedim", "Swapaxes", "AsStrided", "Alias", "Identity"),
        *("Slice", "Select", "Index", "IndexSelect", "MaskedSelect", "Narrow", "Chunk", "Split", "SplitWithSizes"),
        *("Unbind", "Cat", "Stack", "Clone", "Contiguous", "ToCopy", "Clamp", "ClampMin", "ClampMax"),
    ]
)
"""Operators that move, pick, cast or bound values: a probability stays a probability on the way through."""

SCALING = RESHAPING | {"Mul", "Div", "Neg"}


@dataclass(frozen=True)
class Operator:
    """One operator by its forward name (SoftmaxBackward0 is Softmax)."""

    name: str
    position: int
    depth: int
    shape: tuple[int, ...] | None
    place: Place
    parameters: tuple[str, ...]


class LossGraph:
    """One GraphFact with its edges."""

    def __init__(self, fact: GraphFact) -> None:
        self.fact = fact

    @cached_property
    def operators(self) -> list[Operator]:
        return [
            Operator(
                name=forward_name(str(node.get("op", ""))),
                position=position,
                depth=int(node.get("depth", 0)),
                shape=tuple(node["shape"]) if node.get("shape") is not None else None,
                place=Place(file=node.get("file"), line=node.get("line")),
                parameters=tuple(node.get("parameters", ())),
            )
            for position, node in enumerate(self.fact.nodes)
        ]

    def inputs(self, operator: Operator) -> list[Operator]:
        """The operators whose output this one takes; none where the graph branches and its edges are unknown."""
        given = self.fact.nodes[operator.position].get("inputs")
        if given is not None:
            return [self.operators[i] for i in given if 0 <= i < len(self.operators)]
        if sum(o.depth == operator.depth for o in self.operators) > 1:
            return []
        return [o for o in self.operators if o.depth == operator.depth + 1]

    def sources(self, operator: Operator) -> Iterator[Operator]:
        """The first operators below this one that change values, whatever reshaping lies between."""
        waiting, seen = self.inputs(operator), set()
        while waiting:
            below = waiting.pop()
            if below.position in seen:
                continue
            seen.add(below.position)
            if below.name in RESHAPING:
                waiting.extend(self.inputs(below))
            else:
                yield below

    def named(self, *names: str) -> list[Operator]:
        return [o for o in self.operators if o.name in names]

    @property
    def has_several_terms(self) -> bool:
        """The loss is a sum of terms (a penalty, a second task, a divergence), each with a graph of its own."""
        at = self.operators[0] if self.operators else None
        while at is not None and at.name in SCALING and len(self.inputs(at)) == 1:
            at = self.inputs(at)[0]
        return at is not None and at.name in ("Add", "Sub") and len(self.inputs(at)) > 1

    @property
    def place(self) -> Place:
        return Place(file=self.fact.file, line=self.fact.line)


def forward_name(op: str) -> str:
    return re.sub(r"Backward\d*$", "", op)
