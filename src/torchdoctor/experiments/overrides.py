"""In the process of one seed: the seeds that the script itself sets are replaced by that one.

random.seed, np.random.seed, torch.manual_seed and torch.cuda.manual_seed(_all) are led through here, and with them
lightning's seed_everything and the set_seed of transformers and accelerate, which call them. A script that sets several
different seeds keeps them different: the first becomes the wanted one, others lie as far from it as before, times a
large number, so that seed 0 in epoch 1 is not seed 1 in epoch 0. Generators that are made with a seed of their own
(torch.Generator, np.random.default_rng) are left alone: they mostly fix a split of the data.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

from torchdoctor.attach.importing import after_import
from torchdoctor.attach.places import caller

STRIDE = 1_000_003
LIMIT = 2**32
"""NumPy takes no larger seeds."""
CALLS_KEPT = 8


class Overrides:
    """`calls` are the first that were changed: what was called, with what, and where."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._first: int | None = None
        self._pid = os.getpid()
        self._inside = False
        """torch hands on to its devices what was replaced before"""
        self.calls: list[dict[str, Any]] = []

    def place(self) -> None:
        """Seed what there is, and what comes when it is imported."""
        random.seed(self._seed)
        random.seed = self._led("random.seed", random.seed)  # type: ignore[assignment]
        after_import("numpy", self._seed_numpy)
        after_import("torch", self._seed_torch)

    def _seed_numpy(self, numpy: Any) -> None:
        numpy.random.seed(self._seed % LIMIT)
        numpy.random.seed = self._led("np.random.seed", numpy.random.seed)

    def _seed_torch(self, torch: Any) -> None:
        torch.manual_seed(self._seed)
        torch.manual_seed = torch.random.manual_seed = self._led("torch.manual_seed", torch.manual_seed)
        for name in ("manual_seed", "manual_seed_all"):
            led = self._led(f"torch.cuda.{name}", getattr(torch.cuda, name))
            setattr(torch.cuda, name, led)
            setattr(torch.cuda.random, name, led)

    def _led(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def seed(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else next(iter(kwargs.values()), None)
            strange = isinstance(given, bool) or not hasattr(given, "__index__")  # None and texts stay
            if self._inside or strange or os.getpid() != self._pid:  # a worker seeds itself from its parent
                return original(*args, **kwargs)
            self._inside = True
            try:
                return original(self._replace(name, int(given)))
            finally:
                self._inside = False

        return seed

    def _replace(self, name: str, given: int) -> int:
        if self._first is None:
            self._first = given
        wanted = (self._seed + (given - self._first) * STRIDE) % LIMIT
        if len(self.calls) < CALLS_KEPT:
            place = caller()
            at = {"file": place.file, "line": place.line} if place is not None else {}
            self.calls.append({"call": name, "given": given, "wanted": wanted, **at})
        return wanted
