"""One line at the end of the list: is it the model, the data, or the throughput that holds the training back."""

from __future__ import annotations

from torchdoctor.checks.bench import Bench


def name_bottleneck(bench: Bench) -> str | None:
    """From what the checks found; None where they say too little."""
    return None
