from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import TRAIN, LoaderFact
from torchdoctor.findings import RuledOut, Severity

NAME = "memory-growth"
MB = 1024**2
AT = [0, 1, 2, 3, 5, 8, 12, 20, 40, 60, 90, 130, 180, 230, 290, 350, 399]


def run(megabytes: np.ndarray, loader: int | None = None) -> RunBuilder:
    builder = RunBuilder(400).scalar(signals.MEMORY_HOST, megabytes * MB, steps=AT)
    if loader:
        builder.fact(LoaderFact("loader", TRAIN, loader, 32 * loader, 32, 0, True, "TensorDataset"))
    return builder


def test_a_steady_rise() -> None:
    (found,) = findings(run(400 + 0.5 * np.array(AT)).build(), NAME)
    assert found.severity is Severity.WARNING and "500 MB in 1,000 steps" in found.title


def test_in_the_first_epoch_it_may_be_a_cache() -> None:
    (found,) = findings(run(400 + 0.5 * np.array(AT), loader=380).build(), NAME)
    assert found.severity is Severity.INFO


def test_a_cache_that_fills_and_one_full_after_an_epoch() -> None:
    at = np.array(AT)
    assert not findings(run(400 + 200 * (1 - np.exp(-at / 80))).build(), NAME)
    assert not findings(run(400 + np.minimum(at, 200), loader=200).build(), NAME)


def test_noise_and_a_small_rise() -> None:
    noise = 400 + 30 * np.random.default_rng(0).random(len(AT))
    assert not findings(run(noise).build(), NAME)
    assert not findings(run(400 + 0.05 * np.array(AT)).build(), NAME)


def test_a_level_is_ruled_out() -> None:
    assert isinstance(run(np.full(len(AT), 400.0)).detect(NAME)[0], RuledOut)
