"""Batches on their way through the training's own step: what the model got, what each loss was given, what came of it.

The last is read where the loss functions are called, and from the graph of the loss where they are called out of sight
(in the thread of a script). What would end a process on a GPU, an index out of range, is stopped before it is used.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchdoctor.checks.bench import Bench
from torchdoctor.errors import TorchdoctorError, UsageError
from torchdoctor.instruments.subject import split
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.probes.graph import walk
from torchdoctor.probes.loss_calls import CLASSIFICATION, FUNCTIONS, LossCall, read_call
from torchdoctor.probes.saved import saved

SECONDS = 1.0
"""After which a slow step gets no further look, once it has had the least."""
LEAST, MOST_VALIDATION = 2, 4
MODULES = 16
"""First modules of the forward pass whose kinds are kept."""
NODES: dict[str, str] = {
    "NllLossBackward0": "nll_loss",
    "NllLoss2DBackward0": "nll_loss",
    "BinaryCrossEntropyWithLogitsBackward0": "binary_cross_entropy_with_logits",
    "BinaryCrossEntropyBackward0": "binary_cross_entropy",
    "MseLossBackward0": "mse_loss",
    "SmoothL1LossBackward0": "smooth_l1_loss",
    "HuberLossBackward0": "huber_loss",
    "SoftMarginLossBackward0": "soft_margin_loss",
}
"""Operators of a graph that keep their target, and the functions that make them."""


class OutOfRangeError(TorchdoctorError):
    """An index was about to be used that its table does not have."""


@dataclass(frozen=True)
class Lookup:
    """Indices on their way into an embedding."""

    module: str
    low: int
    high: int
    rows: int

    @property
    def fits(self) -> bool:
        return self.low >= 0 and self.high < self.rows


@dataclass
class Look:
    """One batch."""

    batch: Any
    inputs: list[Tensor] = field(default_factory=list)
    """of the last call of the model"""
    calls: list[LossCall] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    first: Tensor | None = None
    """what the first layer with weights was given"""
    outputs: Any = None
    loss: float | None = None
    error: Exception | None = None
    """that ended the step"""

    @property
    def broke(self) -> bool:
        return self.loss is not None and not math.isfinite(self.loss)


@dataclass
class Looks:
    train: list[Look] = field(default_factory=list)
    validation: list[Look] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    """kinds of the first modules, in the order in which they ran"""

    @property
    def error(self) -> Exception | None:
        """That training ended with."""
        return next((look.error for look in self.train if look.error is not None), None)


def looks_of(bench: Bench) -> Looks:
    """The same for every check of one bench."""
    return bench.once(_look)


def targets_of(bench: Bench, look: Look) -> list[Tensor]:
    """What is to be predicted: as the losses got it, else as the batch holds it."""
    called = [call.target for call in look.calls if call.target is not None]
    if called:
        return called
    try:
        held = bench.subject.target(look.batch)
        held = split(look.batch)[2] if held is None else held
    except UsageError:
        return []
    given = {tensor.data_ptr() for tensor in batch_tensors(look.inputs)}
    return [tensor for tensor in batch_tensors(held) if tensor.data_ptr() not in given]


def _look(bench: Bench) -> Looks:
    looks = Looks()
    if not bench.model.training:
        bench.model.train()
    with _eager():
        for batch, number in _in_time(bench.train, len(bench.train)):
            looks.train.append(look_at(bench, batch, looks.modules if number == 0 else None))
            if looks.train[-1].error is not None:
                return looks
        if bench.run is None:  # a script's loop is made for training batches
            for batch, _ in _in_time(bench.validation, MOST_VALIDATION):
                looks.validation.append(look_at(bench, batch))
    return looks


def _in_time(batches: list[Any], most: int) -> Iterator[tuple[Any, int]]:
    begun = perf_counter()
    for number, batch in enumerate(batches[:most]):
        if number >= LEAST and perf_counter() - begun > SECONDS:
            return
        yield batch, number


def look_at(bench: Bench, batch: Any, modules: list[str] | None = None) -> Look:
    """One batch through the step; the kinds of the first modules that run are added to `modules`."""
    look = Look(batch)
    watch = _Watch(look, modules)
    with watch.on(bench.model, bench.subject.called), _Calls(look):
        try:
            loss = bench.subject.loss(batch)
        except Exception as error:
            look.error = error
            return look
    look.loss = float(loss.detach())
    look.calls = look.calls or _calls_in_graph(loss)
    return look


class _Watch:
    """Hooks on a model for one step."""

    def __init__(self, look: Look, modules: list[str] | None) -> None:
        self._look, self._modules = look, modules

    @contextlib.contextmanager
    def on(self, model: nn.Module, called: nn.Module) -> Iterator[None]:
        """`called` is what gets the inputs: the model, or what wraps it."""
        handles = [
            called.register_forward_pre_hook(self._enter, with_kwargs=True),
            called.register_forward_hook(self._leave),
        ]
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule) or next(module.children(), None) is not None:
                continue
            handles.append(module.register_forward_pre_hook(self._leaf(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, _module: nn.Module, args: Any, kwargs: Any) -> None:
        self._look.inputs = [tensor.detach() for tensor in batch_tensors([*args, *kwargs.values()])]
        self._look.first = None

    def _leave(self, _module: nn.Module, _args: Any, output: Any) -> None:
        tensors = batch_tensors(output)
        self._look.outputs = tensors[0].detach() if tensors else None

    def _leaf(self, name: str) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, args: Any) -> None:
            if self._modules is not None and len(self._modules) < MODULES:
                self._modules.append(type(module).__name__)
            tensors = batch_tensors(args)
            if not tensors:
                return
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                self._look_up(name, tensors[0], module.num_embeddings)
            if self._look.first is None and any(p.dim() > 1 for p in module.parameters(recurse=False)):
                self._look.first = tensors[0].detach()

        return enter

    def _look_up(self, name: str, ids: Tensor, rows: int) -> None:
        if not ids.numel() or ids.is_floating_point():
            return
        lookup = Lookup(name, int(ids.min()), int(ids.max()), rows)
        self._look.lookups.append(lookup)
        if not lookup.fits:
            raise OutOfRangeError(f"{name} has {rows} rows and was asked for {lookup.low} to {lookup.high}")


class _Calls(TorchFunctionMode):
    """Calls of torch's loss functions, noted before they are made."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in FUNCTIONS and getattr(func, "__module__", None) == "torch.nn.functional":
            call = read_call(name, func, args, kwargs or {}, None)
            if call is not None:
                self._look.calls.append(_detached(call))
                _stop_out_of_range(call)
        return func(*args, **(kwargs or {}))


def _stop_out_of_range(call: LossCall) -> None:
    """On a device only: on the host torch says so itself, and nothing is lost."""
    if call.target is None or call.target.is_cpu or not call.indices or not call.target.numel():
        return
    ignored = call.target == call.options.get("ignore_index", -100)
    wrong = call.target[~ignored & ((call.target < 0) | (call.target >= call.input.shape[call.class_dim or 0]))]
    if wrong.numel():
        raise OutOfRangeError(f"Target {int(wrong[0])} is out of bounds")


def _detached(call: LossCall) -> LossCall:
    options = {name: value for name, value in call.options.items() if name not in ("input", "target")}
    target = None if call.target is None else call.target.detach()
    return LossCall(call.function, call.input.detach(), target, options, None)


def _calls_in_graph(loss: Tensor) -> list[LossCall]:
    graph = walk(loss)
    found = []
    for node in graph.nodes if graph is not None else ():
        function, given, target = NODES.get(node.name()), saved(node, "self"), saved(node, "target")
        if function is None or given is None or target is None:
            continue
        options: dict[str, Any] = {name: saved(node, name) for name in ("weight", "pos_weight")}
        if function in CLASSIFICATION:
            below = [child.name() for child, _ in node.next_functions if child is not None]
            function = "cross_entropy" if "LogSoftmaxBackward0" in below else function
            index = getattr(node, "_saved_ignore_index", -100)
            options["ignore_index"] = index - (1 << 64) if index >= 1 << 63 else index
        found.append(LossCall(function, given.detach(), target.detach(), options, None))
    return found


def _eager() -> contextlib.AbstractContextManager[Any]:
    """A compiled model runs as it is written: hooks and calls inside it would be out of sight."""
    return torch.compiler.set_stance("force_eager")  # type: ignore[no-any-return]
