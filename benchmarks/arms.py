"""The ways of looking at a training that are compared: each sets itself up once and stays attached.

Peers are used as their manuals say, offline, with nothing but what the comparison needs. Each arm yields what is
called between backward and the update, what is called after the update, and a way to be lifted for a while: then the
same process trains bare, and the comparison is not one of where two processes' memory happens to lie.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from workloads import Between, Training

if TYPE_CHECKING:
    from torchdoctor import Doctor


class Watching(NamedTuple):
    between: Between
    after: Between
    lifted: Callable[[], AbstractContextManager[None]] = nullcontext
    spent: Callable[[], float] | None = None
    """seconds that the arm knows it has taken so far; where that is a hundredth of a step, the difference of two
    trainings drowns in the machine's noise and this does not"""


@dataclass(frozen=True)
class Arm:
    name: str
    about: str
    attach: Callable[[Training, Path], AbstractContextManager[Watching]]
    needs: str | None = None
    """the package without which it cannot run"""
    eager_at_first: bool = False
    """it takes more time of the first steps than of later ones, and is measured after those"""

    def missing(self) -> bool:
        return self.needs is not None and importlib.util.find_spec(self.needs) is None


def nothing(number: int) -> None:
    return None


@contextmanager
def bare(training: Training, folder: Path) -> Iterator[Watching]:
    yield Watching(nothing, nothing)


@contextmanager
def torchdoctor(training: Training, folder: Path) -> Iterator[Watching]:
    import torchdoctor
    from torchdoctor.attach import guard

    def spent() -> float:
        others = process_time() - thread_time()
        return guard.STATE.own_seconds + others

    with torchdoctor.watch(training.model, training.optimizer, out=str(folder)) as doctor:
        one_thread = torch.get_num_threads() == 1 and next(training.model.parameters()).is_cpu
        yield Watching(nothing, nothing, lambda: _unhooked(doctor), spent if one_thread else None)


@contextmanager
def _unhooked(doctor: Doctor) -> Iterator[None]:
    """Nothing of torchdoctor's is in torch, and the time is nobody's: it buys no looks. The updates made meanwhile are
    not counted as writes by someone else, which would have it compare the weights at every step."""
    from torch.optim import optimizer as hooks

    session = doctor._session
    installation = session.on_finish.__self__  # type: ignore[attr-defined]
    session.steady._write()
    tables = [hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks]
    held = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    installation.forward.take_out()
    with installation.patches.suspended():
        yield
    for table, entries in zip(tables, held, strict=True):
        table.update(entries)
    installation.forward.update()
    session.clock._step_end = perf_counter()
    session.custody._writes = None


@contextmanager
def birth_watch(training: Training, folder: Path) -> Iterator[Watching]:
    """torchdoctor stays in place in both blocks: what is lifted is the watch for the birth of a NaN alone."""
    import torchdoctor

    with torchdoctor.watch(training.model, training.optimizer, out=str(folder)) as doctor:
        yield Watching(nothing, nothing, lambda: _unwatched(doctor))


@contextmanager
def _unwatched(doctor: Doctor) -> Iterator[None]:
    hunt, start = doctor._session.hunt, doctor._session.step_start
    watched, draws = hunt._watched, start.draws
    hunt._watched, start.draws = None, False
    yield
    hunt._watched, start.draws = watched, draws


@contextmanager
def item_norms(training: Training, folder: Path) -> Iterator[Watching]:
    parameters = list(training.model.parameters())
    norms: list[float] = []
    spent = 0.0

    def between(number: int) -> None:
        nonlocal spent
        start = perf_counter()
        norms[:] = [p.grad.norm().item() for p in parameters if p.grad is not None]
        spent += perf_counter() - start

    yield Watching(between, nothing, spent=lambda: spent)


def wandb_watch(frequency: int) -> Callable[[Training, Path], AbstractContextManager[Watching]]:
    @contextmanager
    def attach(training: Training, folder: Path) -> Iterator[Watching]:
        os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_CONSOLE="off")
        import wandb

        settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True)
        run = wandb.init(mode="offline", dir=str(folder), project="overhead", settings=settings)

        @contextmanager
        def unwatched() -> Iterator[None]:
            run.unwatch(training.model)
            yield
            run.watch(training.model, log="gradients", log_freq=frequency)

        run.watch(training.model, log="gradients", log_freq=frequency)
        yield Watching(nothing, lambda number: run.log({"step": number}), unwatched)
        run.finish()

    return attach


@contextmanager
def anomaly_mode(training: Training, folder: Path) -> Iterator[Watching]:
    with torch.autograd.set_detect_anomaly(True):
        yield Watching(nothing, nothing, lambda: torch.autograd.set_detect_anomaly(False))


WANDB_BINS = 64


def _histogram(gradient: Tensor) -> list[float]:
    """A histogram as wandb.watch takes it: finiteness, bounds and 64 counts, each brought to the host."""
    flat = gradient.detach().clone().reshape(-1).float()
    if (~torch.isfinite(flat)).all().item():
        return []
    if not torch.isfinite(flat).all():
        flat = flat[torch.isfinite(flat)]
    low, high = flat.min().item(), flat.max().item()
    return [float(flat.numel())] if low == high else flat.histc(WANDB_BINS, low, high).cpu().tolist()


@contextmanager
def wandb_way(training: Training, folder: Path) -> Iterator[Watching]:
    kept: dict[nn.Parameter, list[float]] = {}

    def look(parameter: nn.Parameter) -> Callable[[Tensor], None]:
        return lambda gradient: kept.__setitem__(parameter, _histogram(gradient))

    def hook() -> list[RemovableHandle]:
        return [p.register_hook(look(p)) for p in training.model.parameters()]

    handles = hook()

    @contextmanager
    def unhooked() -> Iterator[None]:
        for handle in handles:
            handle.remove()
        yield
        handles[:] = hook()

    yield Watching(nothing, nothing, unhooked)


def tensorboard(frequency: int) -> Callable[[Training, Path], AbstractContextManager[Watching]]:
    @contextmanager
    def attach(training: Training, folder: Path) -> Iterator[Watching]:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(folder))
        named = list(training.model.named_parameters())

        def between(number: int) -> None:
            if number % frequency == 0:
                for name, parameter in named:
                    if parameter.grad is not None:
                        writer.add_histogram(name, parameter.grad, number)

        yield Watching(between, nothing)
        writer.close()

    return attach


ARMS = {
    a.name: a
    for a in (
        Arm("bare", "nothing", bare),
        Arm("torchdoctor", "`torchdoctor.watch`, all default signals", torchdoctor, "torchdoctor", True),
        Arm("birth-watch", "torchdoctor's watch for a NaN, over torchdoctor without", birth_watch, "torchdoctor", True),
        Arm("norms", "`p.grad.norm().item()` for each parameter, every step", item_norms),
        Arm("anomaly", "`torch.autograd.set_detect_anomaly(True)`", anomaly_mode),
        Arm("wandb", "`wandb.watch(log='gradients', log_freq=1)`, offline", wandb_watch(1), "wandb"),
        Arm("wandb-1000", "`wandb.watch(log='gradients')`, every 1000 steps, offline", wandb_watch(1000), "wandb"),
        Arm("wandb-way", "wandb.watch's way of computing, every step, written nowhere (package not used)", wandb_way),
        Arm("tensorboard", "`add_histogram` of each gradient, every step", tensorboard(1), "tensorboard"),
        Arm("tensorboard-100", "`add_histogram` of each gradient, every 100 steps", tensorboard(100), "tensorboard"),
    )
}
DEFAULT_ARMS = ("bare", "torchdoctor", "norms", "wandb", "tensorboard")
