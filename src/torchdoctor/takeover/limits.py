"""Trainers that would end within a look at them are told to go on; a loop that the user wrote ends where it ends.

They are also told to keep no checkpoints: a driven loop has nothing to keep.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import FrameType, ModuleType
from typing import Any

ENDLESS = 1_000_000
"""Epochs; a number that a schedule can still be computed with."""


def lift_limits(frames: Iterable[FrameType]) -> None:
    """Of the loops that these frames are in."""
    for frame in frames:
        loop = frame.f_locals.get("self")
        if type(loop).__name__ == "_FitLoop":
            _lift_lightning(loop)
        elif is_trainer(loop):
            _lift_trainer(loop)


def _lift_lightning(loop: Any) -> None:
    loop.max_epochs, loop.epoch_loop.max_steps = -1, -1
    loop.min_epochs = ENDLESS  # no callback may stop it early
    kept = [c for c in loop.trainer.callbacks if not any(kind.__name__ == "Checkpoint" for kind in type(c).__mro__)]
    loop.trainer.callbacks = kept


def _lift_trainer(trainer: Any) -> None:
    # A group of batches is fetched at once, and each of its losses is divided by all of them.
    trainer.args.gradient_accumulation_steps = 1
    trainer.state.max_steps = ENDLESS
    for name in ("save_strategy", "eval_strategy", "logging_strategy"):
        _never(trainer.args, name)
    _stop_never(trainer)


def is_trainer(value: Any) -> bool:
    """Whether it is Hugging Face's."""
    return any(kind.__module__ == "transformers.trainer" and kind.__name__ == "Trainer" for kind in type(value).__mro__)


def lift_epochs(module: ModuleType) -> bool:
    """transformers.trainer was imported: its loop counts no epochs, and its schedule stays as long as it was asked for.
    False where that Trainer has no place for it."""
    count = getattr(module.Trainer, "set_initial_training_values", None)
    if count is None:
        return False

    @functools.wraps(count)
    def endless(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        _epochs, *others = count(*args, **kwargs)
        return (ENDLESS, *others)

    module.Trainer.set_initial_training_values = endless
    return True


class TrainerLimits:
    """Of Hugging Face's Trainer, which fixes how long it trains before it begins."""

    def __init__(self) -> None:
        self.accumulation = 1
        """batches an update that were asked for"""

    def lift(self, module: ModuleType) -> None:
        """transformers.trainer was imported."""
        counts_none = lift_epochs(module)
        train = module.Trainer.train

        def endless(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            asked = trainer.args
            self.accumulation, asked.gradient_accumulation_steps = asked.gradient_accumulation_steps, 1
            if not counts_none:
                setattr(asked, "max_steps" if asked.max_steps > 0 else "num_train_epochs", ENDLESS)
            _never(asked, "save_strategy")
            _stop_never(trainer)
            return train(trainer, *args, **kwargs)

        module.Trainer.train = endless


def _stop_never(trainer: Any) -> None:
    for callback in [c for c in trainer.callback_handler.callbacks if "EarlyStopping" in type(c).__name__]:
        trainer.remove_callback(callback)


def _never(asked: Any, name: str) -> None:
    setattr(asked, name, type(getattr(asked, name))("no"))
