"""Stand-ins for the loggers of wandb and TensorBoard, under the names that these have."""

from __future__ import annotations

from typing import Any


class Run:
    def log(self, data: dict[str, Any], step: int | None = None) -> None:
        self.data = data


class SummaryWriter:
    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        self.tag = tag
