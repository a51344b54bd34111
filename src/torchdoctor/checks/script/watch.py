"""What is to be known of a script beside its loop, noted while it rehearses: its saves, its seeds, and its setup."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from torchdoctor.attach.importing import after_import
from torchdoctor.checks.script.save_watch import SaveWatch
from torchdoctor.experiments.seed_notes import SeedNotes


class ScriptWatch:
    """`setup`: seconds from here to the script's first update."""

    def __init__(self) -> None:
        self.saves, self.seeds = SaveWatch(), SeedNotes()
        self.setup: float | None = None
        self._begun = perf_counter()

    def place(self) -> None:
        self.seeds.place()
        after_import("torch", self.saves.place)
        after_import("torch", self._await_update)

    def _await_update(self, _torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        def updating(*_: Any) -> None:
            self.setup = self.setup or perf_counter() - self._begun

        register_optimizer_step_pre_hook(updating)
