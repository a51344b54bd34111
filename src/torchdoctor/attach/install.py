"""Put every wrapper and hook in place, and take them all out again."""

from __future__ import annotations

import builtins
import functools
import logging
import os
import weakref
from threading import get_ident
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from torchdoctor.attach import guard
from torchdoctor.attach.forward import ForwardWatch
from torchdoctor.attach.guard import guarded, is_guarded
from torchdoctor.attach.handling import HandlingSites
from torchdoctor.attach.isolation import skip_compilation
from torchdoctor.attach.loaders import LoaderSites
from torchdoctor.attach.loggers import LoggerSites
from torchdoctor.attach.loss_sites import LossSites
from torchdoctor.attach.ownership import watch_building
from torchdoctor.attach.patches import Patches
from torchdoctor.attach.printing import PrintSites
from torchdoctor.attach.session import Session
from torchdoctor.attach.sites import Sites
from torchdoctor.probes.loss_calls import FUNCTIONS

_is_compiling = torch.compiler.is_compiling


class Installation:
    """Everything that makes torch call us for one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = Patches()
        self.sites = Sites(session)
        self.loaders = LoaderSites(session)
        self.handling = HandlingSites(session)
        self.forward = ForwardWatch(session)
        self.sites.arm = self.loaders.arm = self.forward.arm
        self.sites.grad_off = self.forward.grad_off
        self.sites.forget_calls = self.loaders.forget_calls = self.forward.forget_calls
        self.sites.hooks_in = self.forward.are_in
        session.forward_input, session.forget_input = self.forward.last_input, self.forward.forget_input
        session.on_turn = self.forward.update
        self._handles: list[Any] = []
        self._place()
        session.lines.start()
        self.forward.update()
        _forget_in_children(self)

    def _place(self) -> None:
        session, sites, loaders, wrap = self.session, self.sites, self.loaders, self.patches.wrap
        wrap(
            torch.autograd,
            "backward",
            before=sites.backward_begins,
            after=sites.backward_ends,
            failed=sites.backward_failed,
            shortcut=session.steady,
        )
        gradients = {"before": sites.gradients_begin, "after": sites.gradients_end, "failed": sites.gradients_failed}
        wrap(torch.autograd, "grad", **gradients)
        wrap(Optimizer, "__init__", after=sites.optimizer_created)
        wrap(Optimizer, "zero_grad", after=sites.zeroed, gate=session.steady.calls)
        wrap(torch.nn.Module, "zero_grad", after=sites.zeroed, gate=session.steady.calls)
        wrap(torch.nn.Module, "train", before=sites.mode_changes, after=sites.mode_changed, failed=sites.mode_failed)
        wrap(torch.nn.Module, "load_state_dict", after=sites.state_loaded)
        wrap(torch, "compile", before=sites.compiling)
        for context in (torch.no_grad, torch.inference_mode):
            wrap(context, "__enter__", before=sites.grad_switched_off)
            wrap(context, "__exit__", after=sites.grad_switched_back)
        wrap(DataLoader, "__iter__", after=loaders.loader_iterated)
        wrap(
            _BaseDataLoaderIter,
            "__next__",
            before=loaders.batch_wanted,
            after=loaders.batch_fetched,
            failed=loaders.loader_exhausted,
        )
        wrap(clip_grad, "clip_grad_norm_", after=sites.clipped_norm)
        wrap(clip_grad, "clip_grad_value_", after=sites.clipped_value)
        scaler = torch.amp.GradScaler
        scaling = sites.scaling
        wrap(scaler, "scale", after=scaling.loss_scaled)
        wrap(scaler, "step", before=scaling.step_begins, after=scaling.step_ends)
        wrap(scaler, "update", after=scaling.updated)
        wrap(scaler, "unscale_", after=scaling.unscaled)
        for scheduler in list(vars(lr_scheduler).values()):
            if isinstance(scheduler, type) and "step" in vars(scheduler) and scheduler is not Optimizer:
                wrap(scheduler, "step", after=sites.scheduled)
        losses = LossSites(session)
        for name in FUNCTIONS:
            original = getattr(F, name, None)
            if original is not None:
                after, failed = losses.loss_site(name, original), losses.failure_site(name, original)
                wrap(F, name, after=after, failed=failed, gate=session.steady.loss_calls)
        self.handling.place(wrap, self.patches.switch)
        sites.reads = self.patches.switch(torch.Tensor, "item", after=sites.item_read)
        forward = self.forward
        forward.calls = self.patches.switch(
            torch.nn.Module, "__call__", before=forward.call_begins, after=forward.call_ends, failed=forward.call_failed
        )
        printing = PrintSites(self.session)
        if session.options.prints:
            wrap(builtins, "print", after=printing.printed)
        wrap(logging.Logger, "handle", after=printing.logged)
        LoggerSites(printing).place(self.patches)
        begins, ends = _when_not_counted(sites.step_begins, session), sites.step_ends
        if session.remedy.on:
            begins, ends = _with_remedy_before(sites.step_begins, session), _with_remedy_after(ends, session)
        self._hook(register_optimizer_step_pre_hook, begins)
        self._hook(register_optimizer_step_post_hook, ends)
        self._handles += watch_building(session.registry.ownership)

    def _hook(self, register: Any, handler: Any) -> None:
        """A global hook. One of each kind: a forked child takes it out while torch goes through them."""
        if not is_guarded(handler):
            raise AssertionError(f"{handler} is not guarded")

        registry, state = self.session.registry, guard.STATE

        @functools.wraps(handler)
        def hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if _is_compiling():
                return
            if state.thread not in (None, guard.NOBODY, get_ident()):
                registry.leave(optimizer)
            else:
                handler(optimizer, args, kwargs)

        skip_compilation(hook.__code__)
        self._handles.append(register(hook))

    def remove(self) -> None:
        self.patches.remove()
        self.forward.take_out()
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _when_not_counted(handler: Any, session: Session) -> Any:
    """Steps that are only counted go by, if their gradients are finite. A closure is told in any case: it makes the
    step an unusual one."""
    steady, is_broken = session.steady, guarded("watched gradient")(session.hunt.is_broken)

    @functools.wraps(handler)
    def hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(args) > 1 or kwargs or not steady.on or is_broken():
            handler(optimizer, args, kwargs)

    return hook


def _with_remedy_before(handler: Any, session: Session) -> Any:
    """The same where something is to be done about gradients that are not finite: all of them are looked at."""
    steady, remedy = session.steady, session.remedy

    @functools.wraps(handler)
    def hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        closure = (args[1] if len(args) > 1 else kwargs.get("closure")) is not None
        remedy.look(optimizer, closure)
        if len(args) > 1 or kwargs or not steady.on or remedy.tripped:
            handler(optimizer, args, kwargs)
        remedy.act(optimizer)

    return hook


def _with_remedy_after(handler: Any, session: Session) -> Any:
    remedy = session.remedy

    @functools.wraps(handler)
    def hook(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        remedy.after(optimizer)
        handler(optimizer, args, kwargs)

    return hook


_INSTALLED: weakref.WeakSet[Installation] = weakref.WeakSet()
_fork_hook = False


def _forget_in_children(installation: Installation) -> None:
    """A forked process (a loader's worker) inherits the wrappers; there they do nothing."""
    global _fork_hook
    _INSTALLED.add(installation)
    if not _fork_hook and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_go_inert)
        _fork_hook = True


def _go_inert() -> None:
    guard.STATE.inside = True
    for installation in _INSTALLED:
        installation.patches.active = False
        for handle in installation._handles:
            handle.remove()
        installation.session.lines.stop()
        installation.forward.take_out()
