"""The autograd graph behind a loss: operators near the loss, parameters reached, activations saved in it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

from torch import Tensor

from torchdoctor.attach.ceiling import GRAPH
from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place, from_traceback
from torchdoctor.facts import GraphFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.saved import saved

NODES_LIMIT = 50_000
INPUTS_KEPT = 4
PARAMETER_HOPS = 3
"""Operators between a parameter and the layer that uses it: a transposition, a view, a cast."""
NODES_AT_LEAST = 256
"""Operators next to the loss that are visited whatever is left of the budget: a few milliseconds."""
OPERATORS_PER_PARAMETER = 6
"""An upper guess, before the first walk."""
OPERATORS_AT_FIRST = 2_000
HEAD_LIMIT = 200
"""Operators kept between the loss and the last parametrised layer."""
ACCUMULATE = "torch::autograd::AccumulateGrad"
_VIEWS = ("TBackward0", "TransposeBackward0", "PermuteBackward0")
OPAQUE = ("CompiledFunction", "CheckpointFunction")
ACTIVATIONS = {
    "ReluBackward0": "relu",
    "SigmoidBackward0": "sigmoid",
    "TanhBackward0": "tanh",
}
"""Activation functions whose operator keeps its result."""


@dataclass
class Graph:
    """One walk, nearest to the loss first."""

    root: str
    operators: Counter[str] = field(default_factory=Counter)
    head: list[dict[str, Any]] = field(default_factory=list)
    reached: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    """id of a leaf -> the leaf and the sequence number of the first operator that used it"""
    activations: list[tuple[Any, str]] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    """every operator, as walked"""
    positions: dict[Any, int] = field(default_factory=dict)
    """operators of the head -> their place in it"""
    truncated: bool = False
    cut: bool = False
    """truncated to stay inside the budget: another walk may go further"""
    opaque: bool = False


def walk(loss: Tensor, limit: int = NODES_LIMIT) -> Graph | None:
    """Breadth first from the loss; parameters and operators as they come. `limit`: operators to visit at most."""
    start = loss.grad_fn
    if start is None:
        return None
    graph = Graph(start.name())
    head_open = {start}
    queue = deque([(start, 0)])
    seen = {start}
    while queue:
        node, depth = queue.popleft()
        name = node.name()
        graph.nodes.append(node)
        graph.operators[name] += 1
        if name.startswith(OPAQUE):
            graph.opaque = True
        if name in ACTIVATIONS:
            graph.activations.append((node, name))
        leaves = []
        children = []
        for child, _ in node.next_functions:
            if child is None:
                continue
            if child.name() == ACCUMULATE:
                leaf = child.variable
                leaves.append(leaf)
                sequence = node._sequence_nr()
                if id(leaf) not in graph.reached or sequence < graph.reached[id(leaf)][1]:
                    graph.reached[id(leaf)] = (leaf, sequence)
            else:
                children.append(child)
        if node in head_open:
            _keep_head(graph, node, name, depth, leaves, children, head_open)
        for child in children:
            if child not in seen:
                seen.add(child)
                queue.append((child, depth + 1))
        if len(seen) > limit:
            graph.truncated, graph.cut = True, limit < NODES_LIMIT
            break
    return graph


def _keep_head(
    graph: Graph, node: Any, name: str, depth: int, leaves: list[Tensor], children: list[Any], head_open: set[Any]
) -> None:
    """Note an operator of the head; go on beyond it only while it uses no parameter itself."""
    if len(graph.head) >= HEAD_LIMIT:
        return
    place = line_of(node)
    graph.positions[node] = len(graph.head)
    graph.head.append(
        {
            "op": name,
            "depth": depth,
            "file": place.file if place else None,
            "line": place.line if place else None,
            "shape": output_shape(node),
            "leaves": leaves,
            "children": children,
        }
    )
    leaves.extend(_viewed_leaves(children))
    if not leaves:
        head_open.update(children)


def _viewed_leaves(children: list[Any]) -> list[Tensor]:
    """A weight often comes transposed: the operator below is a view of a leaf."""
    below = [c.next_functions[0][0] for c in children if c.name() in _VIEWS and c.next_functions]
    return [node.variable for node in below if node is not None and node.name() == ACCUMULATE]


def line_of(node: Any) -> Place | None:
    """Where the user's code made this operator, if anomaly mode was on at that moment."""
    lines = node.metadata.get("traceback_")
    return from_traceback(lines) if lines else None


def output_shape(node: Any) -> list[int] | None:
    """Shape of what the operator gave; None where this torch does not tell."""
    metadata = getattr(node, "_input_metadata", None)
    return list(metadata[0].shape) if metadata else None


class GraphProbe:
    """Walks the graph on chosen steps, and writes what stands between the loss and the last layer."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.orders: dict[str, int] = {}
        self._written: dict[str, tuple[Any, ...]] = {}
        self._lines: dict[tuple[str, int], tuple[str | None, int | None]] = {}
        self._sizes: dict[str, int] = {}
        """operators of the last whole walk from each loss"""

    @contained("graph: look")
    def look(self, loss: Tensor, place: Place | None, key: str) -> Graph | None:
        """Walk from the loss; `key` tells several losses apart."""
        graph = self._walk(loss, key)
        if graph is None:
            return None
        self.place(graph)
        nodes = [self._node(i, entry, graph.positions) for i, entry in enumerate(graph.head)]
        signature = tuple((n["op"], tuple(n["parameters"])) for n in nodes)
        if self._written.get(key) != signature:
            self._written[key] = signature
            fact = GraphFact(
                root=graph.root,
                loss_shape=list(loss.shape),
                nodes=nodes,
                operators=dict(graph.operators),
                file=place.file if place else None,
                line=place.line if place else None,
                truncated=graph.truncated,
                opaque=graph.opaque,
            )
            self._context.record.fact(fact, self._context.step, key)
        return graph

    def expect(self, guess: int) -> int:
        """Operators in a graph: of the largest that was walked, or the guess."""
        return max(self._sizes.values(), default=guess)

    def _walk(self, loss: Tensor, key: str) -> Graph | None:
        """As far as the budget allows."""
        ceiling = self._context.ceiling
        size = self._sizes.get(key) or OPERATORS_PER_PARAMETER * sum(1 for _ in self._context.names.parameters())
        if not size:  # nothing has a name yet
            size = OPERATORS_AT_FIRST
        share = ceiling.share_of(GRAPH, size)
        limit = NODES_LIMIT if share == 1.0 else max(NODES_AT_LEAST, int(share * size))
        start = thread_time()
        graph = walk(loss, limit)
        if graph is not None:
            ceiling.learn(GRAPH, len(graph.nodes), thread_time() - start)
            if not graph.cut:
                self._sizes[key] = len(graph.nodes)
        return graph

    def _node(self, at: int, entry: dict[str, Any], positions: dict[Any, int]) -> dict[str, Any]:
        """Lines are known from the first steps only; later walks over the same operators reuse them."""
        where = (entry["op"], at)
        if entry["line"] is not None:
            self._lines[where] = (entry["file"], entry["line"])
        else:
            entry["file"], entry["line"] = self._lines.get(where, (None, None))
        entry["inputs"] = [positions[c] for c in entry.pop("children") if c in positions]
        leaves = entry.pop("leaves")
        entry["parameters"] = [n for n in (self._context.names.name_of(p) for p in leaves) if n]
        return entry

    @contained("graph: place")
    def place(self, graph: Graph) -> None:
        """Forward order of parameters by the sequence numbers of the operators that use them."""
        if graph.cut:
            return
        ordered = sorted(graph.reached.values(), key=lambda item: item[1])
        for order, (leaf, _) in enumerate(ordered):
            name = self._context.names.name_of(leaf)
            if name is not None:
                self.orders.setdefault(name, order)


def saved_activations(graph: Graph) -> Iterator[tuple[str, Tensor, Any]]:
    """Activation functions in the graph: their kind, their saved result, and the node. A result changed in
    place since then cannot be read, and is passed over."""
    for node, name in graph.activations:
        result = saved(node, "result")
        if result is not None:
            yield ACTIVATIONS[name], result.detach(), node


def saved_inputs(loss: Tensor) -> list[Tensor]:
    """Tensors from outside that the first layers kept for their gradients: what the model was given."""
    kept = [t for t in _saved(loss, ("mat1", "input", "self")) if t.dim() > 1]
    return kept[-INPUTS_KEPT:]


def layer_inputs(loss: Tensor) -> list[Tensor]:
    """Tensors without a graph that a layer multiplied with its parameters: what the model was given.

    Unlike `saved_inputs`, leave out what was kept elsewhere, such as the weights of a loss.
    """
    kept = [t for t in _saved(loss, ("mat1", "input", "self"), only=_holds_parameter) if t.dim() > 1]
    return kept[-INPUTS_KEPT:]


def _holds_parameter(node: Any) -> bool:
    """A parameter enters this operator, at most through a transposition, a view and a cast."""
    for child, _ in node.next_functions:
        for _ in range(PARAMETER_HOPS):
            if child is None or child.name() == ACCUMULATE or len(child.next_functions) != 1:
                break
            child = child.next_functions[0][0]
        if child is not None and child.name() == ACCUMULATE:
            return True
    return False


def saved_targets(loss: Tensor) -> list[Tensor]:
    """What torch's loss functions kept of what they compared with."""
    return _saved(loss, ("target",))[:INPUTS_KEPT]


def _saved(loss: Tensor, names: tuple[str, ...], only: Callable[[Any], bool] = lambda _: True) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    queue = deque([loss.grad_fn] if loss.grad_fn is not None else [])
    seen = set(queue)
    while queue and len(seen) < NODES_LIMIT:
        node = queue.popleft()
        for name in names if only(node) else ():
            kept = saved(node, name)
            if kept is not None and not kept.requires_grad:
                found.setdefault(kept.data_ptr(), kept)
        for child, _ in node.next_functions:
            if child is not None and child not in seen and child.name() != ACCUMULATE:
                seen.add(child)
                queue.append(child)
    return list(found.values())


def nearest_parameter(node: Any, limit: int = 64) -> tuple[Tensor | None, str]:
    """The parameter whose layer feeds this operator, and that layer's operator."""
    queue = deque([node])
    seen = {node}
    while queue and limit:
        limit -= 1
        current = queue.popleft()
        for child, _ in current.next_functions:
            if child is None or child in seen:
                continue
            if child.name() == ACCUMULATE:
                if child.variable.dim() >= 2:
                    return child.variable, current.name()
                continue
            seen.add(child)
            queue.append(child)
    return None, ""
