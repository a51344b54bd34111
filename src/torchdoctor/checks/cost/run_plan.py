"""How long the full run will be: batches and updates, as far as it is known."""

from __future__ import annotations

import math
from typing import Any

from torchdoctor.checks.bench import Bench


def batches_of(loader: Any) -> int | None:
    """In an epoch; None where the loader does not tell."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def updates_an_epoch(bench: Bench) -> int | None:
    """The last ones may be made of fewer batches."""
    batches = batches_of(bench.train_loader)
    return math.ceil(batches / max(1, bench.accumulation)) if batches else None


def updates_of(bench: Bench) -> int | None:
    """Of the whole run."""
    if bench.updates is not None:
        return bench.updates
    each = updates_an_epoch(bench)
    return each * bench.epochs if each is not None and bench.epochs else None
