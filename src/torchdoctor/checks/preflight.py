"""`torchdoctor.check`: the pre-flight from code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.attach.guard import unseen
from torchdoctor.attach.places import caller
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.bottleneck import name_bottleneck
from torchdoctor.checks.check import Check
from torchdoctor.checks.checklist import Checked, Checklist
from torchdoctor.checks.model.looks import looks_of
from torchdoctor.checks.performing import choose, perform
from torchdoctor.errors import UsageError
from torchdoctor.findings import Place
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.subject import StepFn, Subject
from torchdoctor.opening import current_folder

log = logging.getLogger("torchdoctor")

BATCHES, QUICK_BATCHES = 16, 4
"""Of each split that are looked at."""
OF_OPTIMIZERS = ("param_groups", "step", "zero_grad", "state_dict", "load_state_dict")
OF_SCHEDULERS = ("step", "state_dict", "load_state_dict")
OF_SCALERS = ("scale", "step", "update", "state_dict", "load_state_dict")
"""What the checks use of them."""
SHOWN = 2


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
    only: str | Sequence[str] = (),
    progress: bool = True,
) -> Checklist:
    """Check a training before it is run, and leave everything as it was.

    `loss_fn(outputs, target)` for batches of inputs and targets, `step_fn(model, batch)` for any others; neither where
    the model gives its own loss. `epochs`, `scheduler` and `save(path)`/`load(path)` are checked where they are given.
    `quick`: ten seconds instead of a minute. `only`: names of the checks to make. A compiled model is checked as it is
    written.
    """
    chosen = choose(quick, (only,) if isinstance(only, str) else only)
    count = QUICK_BATCHES if quick else BATCHES
    _check_model(model)
    bench = Bench(
        subject=Subject(model, loss_fn, step_fn=step_fn, autocast=autocast),
        train=first_batches(train_loader, count, "train_loader"),
        validation=first_batches(val_loader, count, "val_loader") if val_loader is not None else [],
        train_loader=train_loader,
        validation_loader=val_loader,
        optimizers=_several("optimizer", optimizer, *OF_OPTIMIZERS),
        schedulers=_several("scheduler", scheduler, *OF_SCHEDULERS),
        scalers=_several("scaler", scaler, *OF_SCALERS),
        epochs=epochs,
        accumulation=accumulation,
        is_compiled=_is_compiled(model),
        save=save,
        load=load,
        quick=quick,
    )
    # Hooks and calls inside of a compiled model would be compiled with it, or be out of sight.
    with _Progress(len(chosen), progress) as bar, torch.compiler.set_stance("force_eager"):
        if any(c.check.needs_loss for c in chosen):
            _check_use(bench)
        made = perform(bench, chosen, bar.tell)
    place = caller()
    places = [Place(file=place.file, line=place.line)] if place is not None else []
    return Checklist([c.fitted(places, None, [str(current_folder())]) for c in made], name_bottleneck(bench))


def _several(role: str, given: Any, *needs: str) -> list[Any]:
    """One, several or none, each with what is done with it here."""
    several = isinstance(given, Iterable) and not isinstance(given, str) and not hasattr(given, "step")
    found = [] if given is None else list(given) if several else [given]
    for one in found:
        lacking = [f"{name}()" if name != "param_groups" else name for name in needs if not hasattr(one, name)]
        if isinstance(one, type):
            raise UsageError(f"{role} is the class {one.__name__}; hand over the one that the training uses")
        if lacking:
            kind, without = type(one).__name__, " and no ".join(lacking[:SHOWN])
            raise UsageError(
                f"{role} is a {kind}, which has no {without}: what the checks do to it could not be put back; hand "
                "over one that has, or none"
            )
    return found


def _check_model(model: Any) -> None:
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError("the model is scripted, and takes no hooks; hand over the one that torch.jit was given")


def _check_use(bench: Bench) -> None:
    """How to compute a loss has to be told; what comes of that is for the checks to judge."""
    subject = bench.subject
    try:
        with bench.experiment():
            look = looks_of(bench).train[-1]
    except Exception:
        log.debug("the first look failed", exc_info=True)
        return  # each check says for itself what it could not examine
    told = subject.loss_fn is not None or subject.step_fn is not None
    if isinstance(look.error, UsageError) and (look.outputs is None or not told):
        raise look.error


def _is_compiled(model: nn.Module) -> bool:
    return any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())


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
