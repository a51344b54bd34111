"""What checks work on: the parts of a training, laid out before it begins."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import Subject
from torchdoctor.probes.batches import batch_tensors, change_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchdoctor.attach.target import Target
    from torchdoctor.checks.check import Outcome
    from torchdoctor.checks.script.checkpoints import ScriptCheckpoints
    from torchdoctor.run import Run

Made = TypeVar("Made")


@dataclass
class Bench:
    subject: Subject
    """the model and the way from a batch to its loss; in a script that is the script's own loop"""
    train: list[Any]
    """the first batches of training, as the loader gave them"""
    validation: list[Any] = field(default_factory=list)
    train_loader: Any = None
    validation_loader: Any = None
    optimizers: list[Optimizer] = field(default_factory=list)
    schedulers: list[Any] = field(default_factory=list)
    scalers: list[Any] = field(default_factory=list)
    epochs: int | None = None
    """that the full run will take, where known"""
    updates: int | None = None
    """the same of a run that counts its updates instead"""
    accumulation: int = 1
    """batches an update"""
    is_compiled: bool = False
    """the script compiles its model, which is left out here"""
    step_of_schedule: str | None = None
    """"update" or "epoch": how often the schedulers are stepped, where known"""
    sets_rates: bool = False
    """the loop sets learning rates as it goes, without a scheduler"""
    save: Callable[[Any], Any] | None = None
    """the user's own, of a checkpoint to a path"""
    load: Callable[[Any], Any] | None = None
    checkpoints: Callable[[], ScriptCheckpoints] | None = None
    """finds a script's own ways to save and to load"""
    target: Target | None = None
    """the script, where one is checked"""
    setup: float | None = None
    """seconds that it takes to its first update"""
    seeded: bool | None = None
    """it sets a seed by itself"""
    quick: bool = False
    why_no_loss: str | None = None
    """the loop of the script cannot be driven"""
    run: Run | None = None
    """the record of a rehearsal, where a script was run"""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """of the checks before this one, by name"""
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def model(self) -> nn.Module:
        return self.subject.model

    def once(self, make: Callable[[Bench], Made]) -> Made:
        """What `make` makes of this bench: one and the same for all checks, and no longer kept than the bench."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]  # type: ignore[no-any-return]

    def without(self, what: str) -> str:
        """Why a check of it is not made: in code it is handed over, in a script it has to be seen."""
        return f"no {what} was " + ("handed over" if self.target is None else "seen in the script's first steps")

    @contextlib.contextmanager
    def experiment(self) -> Iterator[None]:
        """Whatever is done inside is put back, random states included."""
        loaders = tuple(loader for loader in (self.train_loader, self.validation_loader) if loader is not None)
        with untouched(*self.subject.parts, *self.optimizers, *self.schedulers, *self.scalers, loaders=loaders):
            yield

    def inputs(self, batch: Any) -> list[Tensor]:
        """The tensors that go into the model for this batch, in order."""
        given: list[Tensor] = []

        def note(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if not given:
                given.extend(batch_tensors([*args, *kwargs.values()]))

        handle = self.subject.called.register_forward_pre_hook(note, with_kwargs=True)
        try:
            self.subject.outputs(batch)
        finally:
            handle.remove()
        return given

    @contextlib.contextmanager
    def with_inputs(self, change: Callable[[int, Tensor], Tensor]) -> Iterator[None]:
        """Inside, the model is given `change(number, tensor)` for each of the tensors that `inputs` tells."""

        def changed(_module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            counter = itertools.count()
            given = change_tensors([*args, *kwargs.values()], lambda tensor: change(next(counter), tensor))
            return tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True))

        handle = self.subject.called.register_forward_pre_hook(changed, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def named_parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.model.named_parameters())
