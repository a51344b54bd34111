"""Statistics of tensors: one pass over memory, no wait for the device, no exception for an odd tensor.

`reference` says what each number means; `cpu`, `triton` and `foreach` compute it fast; `operators` makes it
callable from a compiled graph. No function here draws random numbers, writes into its inputs, adds to an autograd
graph or keeps a tensor alive after it returns.
"""

from __future__ import annotations

from torchdoctor.stats import operators as operators
from torchdoctor.stats.activation import activation, alive_units
from torchdoctor.stats.batch import batch, features, unit_spread
from torchdoctor.stats.fingerprint import fingerprint_each, fingerprints
from torchdoctor.stats.histogram import histograms
from torchdoctor.stats.summary import change_norms, norms, summarize
from torchdoctor.stats.support import detached, has_own_dispatch, unsupported

__all__ = [
    "activation",
    "alive_units",
    "batch",
    "change_norms",
    "detached",
    "features",
    "fingerprint_each",
    "fingerprints",
    "has_own_dispatch",
    "histograms",
    "norms",
    "summarize",
    "unit_spread",
    "unsupported",
]
