"""Metrics that the script hands to a logger: all that can be known of one that its framework computes."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from torchdoctor.attach.guard import guarded
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.patches import Patches
from torchdoctor.attach.printing import PrintSites

log = logging.getLogger("torchdoctor")

LIGHTNING = "trainer.connectors.logger_connector.logger_connector"
DICTIONARIES = (
    (f"lightning.pytorch.{LIGHTNING}", "_LoggerConnector", "log_eval_end_metrics"),
    (f"pytorch_lightning.{LIGHTNING}", "_LoggerConnector", "log_eval_end_metrics"),
    ("transformers.trainer", "Trainer", "log"),
    ("wandb.sdk.wandb_run", "Run", "log"),
)
"""Module, class and method that is given a dictionary of names and numbers."""
SCALARS = (("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar"),)
"""The same for one name and one number."""


class LoggerSites:
    """Handlers for the loggers of frameworks, put in place when these are imported."""

    def __init__(self, printing: PrintSites) -> None:
        self._printing = printing

    def place(self, patches: Patches) -> None:
        for found, site in ((DICTIONARIES, self.metrics_logged), (SCALARS, self.scalar_logged)):
            for module, owner, method in found:

                def wrap(imported: ModuleType, owner: str = owner, method: str = method, site: Any = site) -> None:
                    if patches.active and hasattr(imported, owner):
                        patches.wrap(getattr(imported, owner), method, after=site)

                after_import(module, _contain(wrap))

    @guarded("metrics logged")
    def metrics_logged(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        given = next((a for a in (*args[1:], *kwargs.values()) if isinstance(a, Mapping)), {})
        for name, value in list(given.items()):
            self._take(name, value)

    @guarded("scalar logged")
    def scalar_logged(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        name = args[1] if len(args) > 1 else kwargs.get("tag")
        self._take(name, args[2] if len(args) > 2 else kwargs.get("scalar_value"))

    def _take(self, name: Any, value: Any) -> None:
        """Numbers on a device are left there: reading them would make the script wait."""
        small = isinstance(value, (Tensor, np.generic, np.ndarray)) and getattr(value, "is_cpu", True)
        if small and math.prod(value.shape) == 1:
            value = value.item()
        if isinstance(name, str) and isinstance(value, (int, float)) and self._printing.session.loop.backwards:
            self._printing.take(f"{name.replace('/', ' ')} {float(value):.8f}")


def _contain(wrap: Any) -> Any:
    def callback(imported: ModuleType) -> None:
        try:
            wrap(imported)
        except Exception as error:  # the user's import goes on
            log.warning("torchdoctor: metrics given to %s are not read (%s)", imported.__name__, error)

    return callback
