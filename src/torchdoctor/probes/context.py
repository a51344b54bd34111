"""What every probe is given: where to write, how to read a device tensor, and which step it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.attach.ceiling import Ceiling
from torchdoctor.facts import TRAIN, Fact, NonfiniteFact

NONFINITE_KEPT = 256


class Recorder(Protocol):
    """The part of the store's recorder that probes use."""

    def scalar(self, name: str, step: int, value: float, key: str = "") -> None: ...
    def scalars(self, rows: Sequence[tuple[str, str, int, float]]) -> None: ...
    def matrix(self, step: int, columns: tuple[str, ...], values: dict[str, NDArray[np.float32]]) -> None: ...
    def histogram(self, step: int, signal_name: str, columns: tuple[str, ...], counts: NDArray[Any]) -> None: ...
    def fact(self, fact: Fact, step: int, subject: str = "") -> None: ...


class Names(Protocol):
    """The part of the registry that probes use."""

    module_names: dict[int, str]

    def parameters(self) -> Iterator[tuple[str, Tensor]]: ...
    def live_models(self) -> Iterator[tuple[str, nn.Module]]: ...
    def live_optimizers(self) -> Iterator[tuple[str, Optimizer]]: ...
    def held(self) -> dict[int, str]: ...
    def is_held(self, tensor: Tensor) -> bool: ...
    def name_of(self, parameter: Tensor) -> str | None: ...
    def chosen(self, name: str) -> bool: ...


class Context:
    """Shared by all probes of one session. `step` and `looks` change as the loop goes on."""

    def __init__(
        self,
        record: Recorder,
        names: Names,
        read: Callable[[Tensor, Callable[[NDArray[Any]], None]], None],
        ceiling: Ceiling | None = None,
    ) -> None:
        self.record = record
        self.names = names
        self.read = read
        self.ceiling = ceiling or Ceiling()
        self.step = 0
        self.looks: frozenset[str] = frozenset()
        self.unsupported: dict[str, str] = {}
        """what could not be measured, and why"""
        self._nonfinite: set[tuple[str, str]] = set()
        self.on_nonfinite: Callable[[], None] = lambda: None
        self.broke_at: int | None = None
        """the first step at which a loss, gradient or weight was seen not to be finite"""
        self.bad_gradients_at = -1
        """the last step on which a look found a gradient that is not finite"""

    def nonfinite(self, role: str, name: str, count: int, step: int, **details: Any) -> None:
        """Something held NaN or Inf; the first time for each name is written."""
        if role == "gradient":
            self.bad_gradients_at = step
        if role in ("loss", "gradient", "weight") and self.broke_at is None:
            self.broke_at = step
        if (role, name) not in self._nonfinite and len(self._nonfinite) < NONFINITE_KEPT:
            self._nonfinite.add((role, name))
            fact = NonfiniteFact(role=role, name=name, count=count, **{"phase": TRAIN, "nan": 0, **details})
            self.record.fact(fact, step, f"{role}/{name}")
            self.on_nonfinite()
