"""What a script does to its training from outside the loop: loading, saving, initialising, casting, waiting."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer, lr_scheduler

from torchdoctor.attach.guard import guarded
from torchdoctor.attach.patches import Switch
from torchdoctor.attach.places import applier, caller
from torchdoctor.attach.session import Session
from torchdoctor.attach.weak import IdentityMap
from torchdoctor.probes.saved import Packing

INITIALISERS = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "constant_",
    "ones_",
    "zeros_",
    "eye_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
)
WAITING_CALLS = ("item", "tolist", "cpu", "numpy", "__repr__", "__float__")
"""Formatting a tensor reads it by `item`."""
COPYING_CALLS = ("to", "cuda", "copy_")
"""Wrapped on looked steps only (see DeviceProbe.plan)."""


class HandlingSites:
    """Handlers for calls around the loop. None of them is called in every step of a usual loop."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._made: IdentityMap[tuple[str, bool]] = IdentityMap()

    def place(self, wrap: Callable[..., None], switch: Callable[..., Switch]) -> None:
        wrap(torch.nn.Module, "load_state_dict", before=self.module_loading, after=self.module_loaded)
        wrap(Optimizer, "load_state_dict", after=self.optimizer_loaded)
        wrap(Optimizer, "state_dict", after=self.optimizer_asked)
        for scheduler in list(vars(lr_scheduler).values()):
            if isinstance(scheduler, type) and "load_state_dict" in vars(scheduler) and scheduler is not Optimizer:
                wrap(scheduler, "load_state_dict", after=self.scheduler_loaded)
        wrap(torch.autograd.graph.saved_tensors_hooks, "__enter__", before=self.packing)
        wrap(torch, "load", after=self.file_read)
        wrap(torch, "save", before=self.pause_begins, after=self.file_written)
        wrap(gc, "collect", before=self.pause_begins, after=self.pause_site("gc.collect"))
        wrap(torch.cuda, "empty_cache", before=self.pause_begins, after=self.pause_site("torch.cuda.empty_cache"))
        for name in INITIALISERS:
            wrap(torch.nn.init, name, before=self.initialising)
        precision = self.session.precision
        wrap(torch.amp.autocast_mode.autocast, "__init__", after=self.autocast_made, gate=precision.gate)
        wrap(torch.amp.autocast_mode.autocast, "__enter__", before=self.autocast_entered, gate=precision.gate)
        wrap(torch.amp.GradScaler, "scale", after=self.loss_scaled, gate=precision.gate)
        for name in WAITING_CALLS if torch.cuda.is_available() else ():
            wrap(Tensor, name, after=self.waiting_site(name), gate=self.session.synchronisations.gate)
        for name in COPYING_CALLS if torch.cuda.is_available() else ():
            copying = switch(Tensor, name, before=self.copy_begins, after=self.copy_site(name), stays=False)
            self.session.device.gate.switches.append(copying)

    # -- states ---------------------------------------------------------------------------

    @guarded("state loading")
    def module_loading(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        if self.session.loop.updates:
            self.session.steady.leave()
            self.session.custody.changing("load_state_dict", list(args[0].parameters()), caller())

    @guarded("module state loaded")
    def module_loaded(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        state = args[1] if len(args) > 1 else kwargs.get("state_dict")
        self.session.resuming.module_loaded(args[0], state, caller())

    @guarded("optimizer state loaded")
    def optimizer_loaded(self, _token: Any, _args: Any, _kwargs: Any, _result: Any) -> None:
        self.session.resuming.optimizer_loaded()
        self.session.custody.restarted()

    @guarded("optimizer state asked")
    def optimizer_asked(self, _token: Any, _args: Any, _kwargs: Any, _result: Any) -> None:
        self.session.resuming.state_asked()

    @guarded("scheduler state loaded")
    def scheduler_loaded(self, _token: Any, _args: Any, _kwargs: Any, _result: Any) -> None:
        self.session.resuming.scheduler_loaded()

    @guarded("initialising")
    def initialising(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensor = args[0] if args else kwargs.get("tensor")
        if self.session.loop.updates and isinstance(tensor, Tensor):
            self.session.steady.leave()
            self.session.custody.changing("init", [tensor], applier())

    @guarded("saved tensors packed")
    def packing(self, _args: Any, _kwargs: Any) -> None:
        Packing.seen = True

    # -- files and pauses -------------------------------------------------------------------

    @guarded("file read")
    def file_read(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.session.resuming.read(args[0] if args else kwargs.get("f"), result)

    @guarded("pause begins")
    def pause_begins(self, _args: Any, _kwargs: Any) -> float:
        return perf_counter()

    @guarded("file written")
    def file_written(self, begun: float | None, args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        self.session.resuming.written(args[1] if len(args) > 1 else kwargs.get("f"))
        self._pause_ends("torch.save", begun)

    def pause_site(self, call: str) -> Callable[..., None]:
        @guarded(f"pause by {call}")
        def pause_ended(begun: float | None, _args: Any, _kwargs: Any, _result: Any) -> None:
            self._pause_ends(call, begun)

        return pause_ended

    def _pause_ends(self, call: str, begun: float | None) -> None:
        if begun is not None:
            self.session.pauses.ended(call, perf_counter() - begun, self.session.loop.updates, caller())

    # -- precision and waiting ----------------------------------------------------------------

    @guarded("autocast made")
    def autocast_made(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        """Where the device is not there torch switches the block off: what the script asked for is kept aside."""
        device = args[1] if len(args) > 1 else kwargs.get("device_type")
        enabled = args[3] if len(args) > 3 else kwargs.get("enabled", True)
        self._made[args[0]] = (str(device), bool(enabled))

    @guarded("autocast entered")
    def autocast_entered(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        block = args[0]
        device, enabled = self._made.get(block) or (block.device, bool(block._enabled))
        if torch.is_grad_enabled():
            self.session.precision.entered(device, enabled, caller())

    @guarded("loss scaled for precision")
    def loss_scaled(self, _token: Any, args: tuple[Any, ...], _kwargs: Any, _result: Any) -> None:
        self.session.precision.scaled(bool(getattr(args[0], "_enabled", True)))

    def waiting_site(self, call: str) -> Callable[..., None]:
        @guarded(f"waiting by {call}")
        def waited(_token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
            if args and isinstance(args[0], Tensor):
                self.session.synchronisations.called(call, args[0], caller())

        return waited

    @guarded("waiting by a copy")
    def copy_begins(self, _args: Any, _kwargs: Any) -> float:
        return perf_counter()

    def copy_site(self, call: str) -> Callable[..., None]:
        @guarded(f"waiting by a copy with {call}")
        def copied(begun: float | None, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
            if begun is not None:
                self.session.device.copied(call, args, kwargs, result, perf_counter() - begun, caller)

        return copied
