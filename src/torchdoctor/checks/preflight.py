"""`torchdoctor.check`: the pre-flight from code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.attach.guard import unseen
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.bottleneck import name_bottleneck
from torchdoctor.checks.check import Check
from torchdoctor.checks.checklist import Checked, Checklist
from torchdoctor.checks.performing import choose, perform
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.subject import StepFn, Subject

BATCHES, QUICK_BATCHES = 16, 4
"""Of each split that are looked at."""


@unseen()
def check(
    model: nn.Module,
    train_loader: Iterable[Any],
    loss_fn: Callable[..., Tensor] | None = None,
    *,
    val_loader: Iterable[Any] | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    scheduler: Any = None,
    scaler: Any = None,
    step_fn: StepFn | None = None,
    epochs: int | None = None,
    accumulation: int = 1,
    autocast: torch.dtype | None = None,
    save: Callable[[Any], Any] | None = None,
    load: Callable[[Any], Any] | None = None,
    quick: bool = False,
    only: Sequence[str] = (),
    progress: bool = True,
) -> Checklist:
    """Check a training before it is run, and leave everything as it was.

    `loss_fn(outputs, target)` for batches of inputs and targets, `step_fn(model, batch)` for any others; neither where
    the model gives its own loss. `epochs`, `scheduler` and `save(path)`/`load(path)` are checked where they are given.
    `quick`: ten seconds instead of a minute. `only`: names of the checks to make.
    """
    chosen = choose(quick, only)
    count = QUICK_BATCHES if quick else BATCHES
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
    bench = Bench(
        subject=Subject(model, loss_fn, step_fn=step_fn, autocast=autocast),
        train=first_batches(train_loader, count),
        validation=first_batches(val_loader, count) if val_loader is not None else [],
        train_loader=train_loader,
        validation_loader=val_loader,
        optimizers=optimizers,
        schedulers=list(scheduler) if isinstance(scheduler, list | tuple) else [scheduler] if scheduler else [],
        scalers=[scaler] if scaler is not None else [],
        epochs=epochs,
        accumulation=accumulation,
        save=save,
        load=load,
        quick=quick,
    )
    with _Progress(len(chosen), progress) as bar:
        made = perform(bench, chosen, bar.tell)
    return Checklist(made, name_bottleneck(bench))


class _Progress:
    def __init__(self, total: int, shown: bool) -> None:
        from torchdoctor.console import Console, Progress

        console = Console(stderr=True)
        self._bar = Progress(console=console, transient=True, disable=not (shown and console.is_terminal))
        self._task = self._bar.add_task("check", total=total)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, check: Check, made: Checked | None) -> None:
        self._bar.update(self._task, description=check.asks, advance=0 if made is None else 1)
