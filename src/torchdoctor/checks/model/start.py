"""The model before its first update, seen over a few batches by the probes that record a run.

What comes of it is a `Run` as a recorder would have written it, so that the readings of the rules hold for it as they
stand. No update is made: every look is at the same weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor import signals
from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.facts import TRAIN, Fact, InputsFact, ModelFact
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.probes.activations import KINDS, ActivationProbe, first_tensor
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph, GraphProbe
from torchdoctor.probes.layers import LayerProbe
from torchdoctor.probes.saved import Packing
from torchdoctor.probes.tensors import TensorProbe
from torchdoctor.rules.architecture.dead_relu import MIN_LOOKS, WINDOW
from torchdoctor.run import Run, Seen, Trace

SECONDS = 0.8
"""After which a model that is slow gets no further look, once it has had the least."""


@dataclass
class Start:
    """What the looks showed beside the record."""

    run: Run
    losses: list[float] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """trainable parameters that got no gradient on any look"""
    zero: list[str] = field(default_factory=list)
    """whose gradient was exactly zero on every look"""
    broken: list[str] = field(default_factory=list)
    """whose gradient was not finite on some look"""
    called: set[str] = field(default_factory=set)
    """modules that ran"""
    strays: list[nn.Parameter] = field(default_factory=list)
    """parameters that the loss depends on, and that no part of the model is"""
    finite_inputs: bool = True


def start_of(bench: Bench) -> Start:
    """The same for every check of one bench."""
    return bench.once(_look)


class Notes:
    """A recorder in memory."""

    def __init__(self) -> None:
        self._scalars: dict[tuple[str, str], list[tuple[int, float]]] = {}
        self._rows: dict[str, list[tuple[int, dict[str, float]]]] = {}
        self._seen: list[Seen] = []

    def scalar(self, name: str, step: int, value: float, key: str = "") -> None:
        self._scalars.setdefault((name, key), []).append((step, value))

    def scalars(self, rows: Sequence[tuple[str, str, int, float]]) -> None:
        for name, key, step, value in rows:
            self.scalar(name, step, value, key)

    def matrix(self, step: int, columns: tuple[str, ...], values: dict[str, NDArray[np.float32]]) -> None:
        for name, row in values.items():
            self._rows.setdefault(name, []).append((step, dict(zip(columns, row.tolist(), strict=True))))

    def histogram(self, step: int, signal_name: str, columns: tuple[str, ...], counts: NDArray[Any]) -> None:
        pass

    def fact(self, fact: Fact, step: int, subject: str = "") -> None:
        self._seen.append(Seen(step, fact))

    def run(self, steps: int) -> Run:
        traces = {at: Trace.raw(*zip(*pairs, strict=True)) for at, pairs in self._scalars.items()}
        for name, rows in self._rows.items():
            columns = list(dict.fromkeys(column for _, row in rows for column in row))
            values = np.array([[row.get(column, np.nan) for column in columns] for _, row in rows], np.float32)
            traces[name, ""] = Trace.raw([step for step, _ in rows], values, columns)
        return Run({}, frozenset(traces), lambda name, key: traces[name, key], tuple(self._seen), steps, False)


class ModelNames:
    """Names of one model's modules and parameters, as the user writes them."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.module_names = {id(module): clean(name) for name, module in model.named_modules()}
        self._names = {id(p): clean(name) for name, p in model.named_parameters()}

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        return ((clean(name), p) for name, p in self._model.named_parameters())

    def live_models(self) -> Iterator[tuple[str, nn.Module]]:
        yield type(self._model).__name__, self._model

    def live_optimizers(self) -> Iterator[tuple[str, Optimizer]]:
        return iter(())

    def held(self) -> dict[int, str]:
        return dict.fromkeys(self._names, "0")

    def is_held(self, tensor: Tensor) -> bool:
        return id(tensor) in self._names

    def name_of(self, parameter: Tensor) -> str | None:
        return self._names.get(id(parameter))

    def chosen(self, _name: str) -> bool:
        return True


class _Looker:
    def __init__(self, bench: Bench) -> None:
        self._bench, self.notes = bench, Notes()
        self._trained = [p for p in bench.model.parameters() if p.requires_grad]
        self._names = names = ModelNames(bench.model)
        self._context = Context(self.notes, names, lambda tensor, use: use(tensor.detach().cpu().numpy()))
        self._activations, self._graphs = ActivationProbe(self._context), GraphProbe(self._context)
        self._layers, self._tensors = LayerProbe(self._context), TensorProbe(self._context)
        self._seen: dict[str, list[str]] = {name: [] for name, p in names.parameters() if p.requires_grad}
        self._outputs: list[Tensor | None] = []
        """of this pass, so that none of them gives its place in memory to another, which the probe would take for it"""
        self.start = Start(Run({}, frozenset(), lambda *_: Trace.empty(), ()))

    def look(self, step: int, batch: Any) -> None:
        self._context.step = step
        for parameter in self._bench.model.parameters():
            parameter.grad = None
        with self._watched():
            loss = self._bench.subject.loss(batch)
            self.start.losses.append(float(loss.detach()))
            graph = self._graphs.look(loss, None, "") if loss.requires_grad else None
            if graph is not None:
                self._activations.graph(graph)
                self._layers.look(graph)
                self._note_strays(graph)
        self._activations.finish()
        self._outputs.clear()
        if graph is not None:
            loss.backward()
        self._read_gradients()
        size = samples_in(batch)
        if size is not None:
            self.notes.scalar(signals.BATCH_SIZE.name, step, float(size), TRAIN)
        self.notes.scalar(signals.LOSS_TRAIN.name, step, self.start.losses[-1])

    def end(self, looks: int) -> Start:
        self._tensors.describe(self._graphs.orders)
        states = {name: set(seen) for name, seen in self._seen.items()}
        self.start.missing = [name for name, seen in states.items() if seen <= {"none"}]
        self.start.zero = [name for name, seen in states.items() if "zero" in seen and seen <= {"none", "zero"}]
        self.start.broken = [name for name, seen in states.items() if "broken" in seen]
        model = self._bench.model
        total, trained = (sum(p.numel() for p in some) for some in (list(model.parameters()), self._trained))
        fact = ModelFact(type(model).__name__, type(model).__name__, total, trained, sum(1 for _ in model.modules()))
        self.notes.fact(fact, 0)
        self.start.run = self.notes.run(looks)
        return self.start

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Hooks on every module; and where saved tensors are packed away, none of them is read."""
        handles = [
            module.register_forward_hook(self._leave)
            for module in self._bench.model.modules()
            if not isinstance(module, torch.jit.ScriptModule)
        ]
        handles.append(self._bench.subject.called.register_forward_pre_hook(self._note_inputs, with_kwargs=True))
        kind, packed = torch.autograd.graph.saved_tensors_hooks, Packing.seen
        enter = kind.__enter__

        def packing(hooks: Any) -> Any:
            Packing.seen = True
            return enter(hooks)

        kind.__enter__ = packing  # type: ignore[method-assign]
        try:
            yield
        finally:
            kind.__enter__ = enter  # type: ignore[method-assign]
            Packing.seen = packed
            for handle in handles:
                handle.remove()

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        name = self._names.module_names.get(id(module), "")
        self.start.called.add(name)
        given, made = first_tensor(args), first_tensor(output)
        self._outputs.append(made)
        handed_on = given is not None and made is not None and given.data_ptr() == made.data_ptr()
        if next(module.children(), None) is None and (type(module) in KINDS or not handed_on):
            self._activations.module(name, module, output)

    def _read_gradients(self) -> None:
        if self._trained:
            held: Any = SimpleNamespace(param_groups=[{"params": self._trained}])
            self._tensors.look_all("0", held, False)
        for name, parameter in self._names.parameters():
            if parameter.requires_grad:
                self._seen[name].append(_state(parameter.grad))

    def _note_strays(self, graph: Graph) -> None:
        known = {id(p) for p in self._bench.model.parameters()} | {id(p) for p in self.start.strays}
        found = (leaf for leaf, _ in graph.reached.values() if isinstance(leaf, nn.Parameter))
        self.start.strays += [leaf for leaf in found if id(leaf) not in known]

    def _note_inputs(self, _module: nn.Module, args: Any, kwargs: Any) -> None:
        for tensor in batch_tensors([*args, *kwargs.values()]):
            if tensor.is_floating_point() and tensor.dim() > 1 and not tensor.requires_grad:
                std, mean = torch.std_mean(tensor.float())
                self.start.finite_inputs &= bool(std.isfinite())
                dtype = str(tensor.dtype).removeprefix("torch.")
                fact = InputsFact(TRAIN, "input", list(tensor.shape), dtype, mean=float(mean), std=float(std))
                self.notes.fact(fact, self._context.step)


def _state(gradient: Tensor | None) -> str:
    if gradient is None:
        return "none"
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    if not bool(values.isfinite().all()):
        return "broken"
    return "some" if bool(values.any()) else "zero"


def _look(bench: Bench) -> Start:
    if not bench.model.training:
        bench.model.train()
    looker, begun, looks = _Looker(bench), perf_counter(), 0
    for step, batch in enumerate(islice(cycle(bench.train), max(MIN_LOOKS, min(WINDOW, len(bench.train))))):
        if looks >= MIN_LOOKS and perf_counter() - begun > SECONDS:
            break
        looker.look(step, batch)
        looks += 1
    return looker.end(looks)
