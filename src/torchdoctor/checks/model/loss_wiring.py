"""The way from the last layer to the loss, written down by the probes of a recorded run, for the rules to judge."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from torchdoctor.attach.places import Place as Line
from torchdoctor.attach.places import caller
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.model.looks import Look, looks_of
from torchdoctor.checks.model.records import record_of
from torchdoctor.checks.model.start import ModelNames, Notes
from torchdoctor.facts import GraphFact, LossCallFact
from torchdoctor.findings import Finding, Place
from torchdoctor.probes.attention import SOFTMAXES
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph, GraphProbe, line_of, output_shape
from torchdoctor.probes.layers import LayerProbe
from torchdoctor.probes.optimizers import OptimizerProbe
from torchdoctor.probes.saved import saved
from torchdoctor.probes.token_targets import TokenTargetsProbe
from torchdoctor.rules import find
from torchdoctor.rules.loss_graph import RESHAPING, forward_name
from torchdoctor.run import Run, Seen

LOG_SOFTMAX = "LogSoftmaxBackward0"


@dataclass(frozen=True)
class Normalised:
    """A softmax in the graph: over which dimension of what."""

    name: str
    dim: int
    shape: tuple[int, ...]
    place: Place


@dataclass(frozen=True)
class Compared:
    """An activation whose result is subtracted from a target, or the reverse, and that target's range."""

    activation: str
    low: float
    high: float
    spread: float
    place: Place


@dataclass
class Wiring:
    run: Run
    looks: list[Look]
    softmaxes: list[Normalised] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    """where the error is written by hand or absolute: no operator then has the loss's name, or keeps the target"""
    error: Exception | None = None
    """that kept the loss from being computed"""
    backward_error: Exception | None = None
    has_graph: bool = False


def wiring_of(bench: Bench) -> Wiring:
    """The same for every check of one bench."""
    return bench.once(_read)


def consult(run: Run, *names: str) -> list[Finding]:
    """What the rules of these names find, worst first; a rule that lacks what it reads is passed over."""
    found: list[Finding] = []
    for name in names:
        loaded = find(name)
        if loaded is not None and not loaded.rule.missing(run):
            found += [said for said in loaded.detect(run) if isinstance(said, Finding)]
    return sorted(found, key=lambda finding: finding.severity.rank)


def with_calls(run: Run, keep: Callable[[LossCallFact], bool]) -> Run:
    """The same run as if only these calls of loss functions had been made."""
    seen = tuple(s for s in run.seen if not isinstance(s.fact, LossCallFact) or keep(s.fact))
    return replace(run, seen=seen, _cache={})


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """Compiled parts run as they are written, and every operator knows the line that made it."""
    with torch.compiler.set_stance("force_eager"), torch.autograd.set_detect_anomaly(True, check_nan=False):
        yield


def _read(bench: Bench) -> Wiring:
    looks, base = looks_of(bench).train, record_of(bench)
    wiring = Wiring(base, looks, error=next((look.error for look in looks if look.error is not None), None))
    if wiring.error is not None:
        return wiring
    notes = Notes()
    context = Context(notes, ModelNames(bench.model), lambda tensor, use: use(tensor.detach().cpu().numpy()))
    optimizers = OptimizerProbe(context)
    for number, optimizer in enumerate(bench.optimizers):
        optimizers.describe(str(number), optimizer)
    own = caller()
    _walk(bench, context, wiring, own)
    added = (_without_line(seen, own) for seen in notes.run(len(looks)).seen)
    wiring.run = replace(base, seen=(*base.seen, *added), _cache={})
    return wiring


def _walk(bench: Bench, context: Context, wiring: Wiring, own: Line | None) -> None:
    """Note the graph of the first batch's loss, and what its backward fails with."""
    bench.model.train()
    look = wiring.looks[0]
    with as_written():
        loss = bench.subject.loss(look.batch)
    if not loss.requires_grad:
        return
    root = _root(loss)
    graph: Graph | None = GraphProbe(context).look(root, None, "")
    if graph is None:
        return
    wiring.has_graph = True
    LayerProbe(context).look(graph)
    tokens = TokenTargetsProbe(context)
    tokens.given(look.inputs)
    tokens.look(root, _wanted(look), None)
    wiring.softmaxes = list(_softmaxes(graph, own))
    wiring.compared = list(_compared(graph, own))
    try:
        loss.backward()
    except RuntimeError as error:
        wiring.backward_error = error


def _root(loss: Tensor) -> Any:
    """The loss as the training made it, without the view that a subject gives of it."""
    node = loss.grad_fn
    below = node.next_functions[0][0] if node is not None and node.name() == "ViewBackward0" else None
    return loss if below is None else SimpleNamespace(grad_fn=below, shape=loss.shape)


def _wanted(look: Look) -> list[Tensor]:
    return [call.target for call in look.calls if call.target is not None][-1:]


def _softmaxes(graph: Graph, own: Line | None) -> Iterator[Normalised]:
    for node in graph.nodes:
        shape = output_shape(node) if node.name() in (*SOFTMAXES, LOG_SOFTMAX) else None
        dim = getattr(node, "_saved_dim", None)
        if shape is None or dim is None:
            continue
        dim = dim - 2**64 if dim >= 2**63 else dim
        yield Normalised(node.name(), dim % len(shape) if shape else 0, tuple(shape), _place(node, own))


def _compared(graph: Graph, own: Line | None) -> Iterator[Compared]:
    """The target is what the activation gave less the difference, which the power or absolute value above it keeps."""
    for node in graph.positions:
        difference = saved(node, "self") if forward_name(node.name()) in ("Pow", "Abs") else None
        below = node.next_functions[0][0] if difference is not None and node.next_functions else None
        if difference is None or below is None or forward_name(below.name()) not in ("Sub", "Rsub"):
            continue
        sides = [side for side, _ in below.next_functions]
        source = next((side for side in sides if side is not None), None)
        first = sides and sides[0] is not None and forward_name(below.name()) == "Sub"
        while source is not None and forward_name(source.name()) in RESHAPING and source.next_functions:
            source = source.next_functions[0][0]
        result = saved(source, "result") if source is not None and sum(s is not None for s in sides) == 1 else None
        if source is None or result is None or result.numel() != difference.numel():
            continue
        result = result.detach().reshape(difference.shape).float()
        target = result - difference if first else result + difference
        low, high, spread = (float(v.detach()) for v in (target.min(), target.max(), target.std()))
        yield Compared(forward_name(source.name()), low, high, spread, _place(source, own))


def _place(node: Any, own: Line | None) -> Place:
    line = line_of(node)
    return Place() if line is None or line == own else Place(file=line.file, line=line.line)


def _without_line(seen: Seen, own: Line | None) -> Seen:
    """The line from which the checks were called is nobody's place."""
    fact = seen.fact
    if own is None or not isinstance(fact, GraphFact):
        return seen
    nodes = [
        node | {"file": None, "line": None} if (node.get("file"), node.get("line")) == tuple(own) else node
        for node in fact.nodes
    ]
    return Seen(seen.step, replace(fact, nodes=nodes))
