"""Graphs that outlive their step: held by a loss that was stored, or reached through a state that was carried over."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from typing import Any

from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph

MARKS_KEPT = 64
STEPS_KEPT = 4096
MARK = "torchdoctor_mark"
SETTLED = 2
"""A loop may hold its last loss and outputs until they are assigned again."""


class Mark:
    """Lives as long as the operator that holds it in its metadata."""

    __slots__ = ("__weakref__",)


class LivenessProbe:
    """Marks the last layer's operator on some steps, and sees later which of them are still there.

    A loss that is kept holds it, and so does a prediction.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._marks: list[tuple[int, weakref.ref[Mark]]] = []
        self._sequence: list[int] = []
        """the root's number at each look, rising: all operators of later steps have larger ones"""
        self._steps: list[int] = []

    @contained("liveness: look")
    def look(self, loss: Tensor, graph: Graph) -> None:
        step, record = self._context.step, self._context.record
        root: Any = loss.grad_fn
        if root is None:
            return
        if not graph.cut:
            record.scalar(signals.GRAPH_NODES.name, step, float(sum(graph.operators.values())))
        if graph.reached and self._sequence and not graph.cut:
            oldest = min(sequence for _, sequence in graph.reached.values())
            at = bisect_left(self._sequence, oldest)
            reach = step - self._steps[at] if at < len(self._steps) else 0
            record.scalar(signals.GRAPH_REACH.name, step, float(reach))
        old = [mark() is not None for at, mark in self._marks if at < step - SETTLED]
        if old:
            record.scalar(signals.GRAPHS_KEPT.name, step, float(sum(old)))
            record.scalar(signals.GRAPHS_MARKED.name, step, float(len(old)))
        self._number(root, step)
        layer = next(reversed(graph.positions), root)
        mark = Mark()
        layer.metadata[MARK] = mark
        self._marks = [*self._marks[1 - MARKS_KEPT :], (step, weakref.ref(mark))]

    def _number(self, root: Any, step: int) -> None:
        number = root._sequence_nr()
        if self._steps and self._steps[-1] == step:
            self._sequence[-1] = max(self._sequence[-1], number)
        elif not self._sequence or number > self._sequence[-1]:
            self._sequence, self._steps = (
                [*self._sequence[1 - STEPS_KEPT :], number],
                [*self._steps[1 - STEPS_KEPT :], step],
            )
