from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import InputsFact, LoaderFact, MembershipFact, SplitFact
from torchdoctor.findings import RuledOut, Severity
from torchdoctor.rules.data.repeated_batch import is_irregular
from torchdoctor.signals import (
    BATCH_PART,
    BATCH_REPEATED,
    BATCH_SIZE,
    LOSS_TRAIN,
    LOSS_VALIDATION,
    TARGET_MEAN,
    TARGET_STD,
    TIME_DATA,
)

NAME = "repeated-batch"
LOOKS = [0, 1, 2, 3, 5, 8, 12, 16, 20, 30, 45, 60]


def record(repeated: float | list[float], seen: int, *, fetched: bool = True, part: float = 1.0) -> RunBuilder:
    return (
        RunBuilder(100)
        .scalar(BATCH_REPEATED, repeated, "train", LOOKS[1:])
        .scalar(BATCH_PART, part, "train", LOOKS)
        .scalar(BATCH_SIZE, 32.0, "train", LOOKS)
        .scalar(TIME_DATA, 1e-4 if fetched else np.where(np.arange(100) == 0, 1e-4, 0.0))
        .fact(MembershipFact("train", "", list(range(seen)), 1.0, 32 * len(LOOKS), len(LOOKS), 0, 496))
    )


def loader(samples: int | None, workers: int = 0) -> LoaderFact:
    return LoaderFact("loader", "train", None, samples, 32, workers, False, "Dataset")


def test_a_loader_that_is_restarted_in_every_step() -> None:
    (found,) = findings(record(1.0, 32).fact(loader(1000)).build(), NAME)
    assert found.severity is Severity.ERROR and "1,000 samples" in found.evidence[0].text


@pytest.mark.parametrize(
    "run",
    [
        record(1.0, 32, fetched=False).fact(loader(1000)),
        record(1.0, 32).fact(loader(32)),
        record(1.0, 32),
        record(1.0, 32, part=0.7),
    ],
    ids=["one batch kept on purpose", "the loader holds no more", "whole data without a loader", "a training split"],
)
def test_meant_repetition(run: RunBuilder) -> None:
    assert findings(run.build(), NAME) == []


def test_a_stream_of_unknown_length_is_a_warning() -> None:
    (found,) = findings(record(1.0, 32).fact(loader(None)).build(), NAME)
    assert found.severity is Severity.WARNING


def test_the_same_slice_in_every_step() -> None:
    (found,) = findings(record(1.0, 32, part=0.05).build(), NAME)
    assert found.severity is Severity.WARNING and "holds 640" in found.evidence[0].text


def test_workers_that_all_yield_everything() -> None:
    stream = SplitFact("loader", "Stream/0", 0, [], 1, workers=2, iterable=True, sharded=False)
    run = record([1.0, 0.0, 1.0] + [0.0] * 8, 300).fact(loader(None, workers=2)).fact(stream)
    (found,) = findings(run.build(), NAME)
    assert "2 workers" in found.evidence[1].text and "get_worker_info" in (found.fix.code or "")


def test_steps_before_the_loader_is_asked_may_repeat_a_batch() -> None:
    waited = np.where(np.arange(100) < 4, 0.0, 1e-4)  # a graph of the device is warmed up on one batch, then captured
    run = record([1.0, 1.0, 1.0] + [0.0] * 8, 300).fact(loader(1000)).scalar(TIME_DATA, waited)
    assert findings(run.build(), NAME) == []


def test_workers_that_share_a_generator() -> None:
    split = SplitFact("loader", "Data/0", 1000, list(range(1000)), 1, workers=4, generators=["dataset.rng"])
    (found,) = findings(record(0.02, 300).fact(loader(1000, workers=4)).fact(split).build(), NAME)
    assert "info.dataset.rng" in (found.fix.code or "")


def test_different_batches_rule_it_out() -> None:
    assert [type(s) for s in detect(record(0.02, 300).fact(loader(1000)).build(), NAME)] == [RuledOut]


def kept_batch(run: RunBuilder, validation: float) -> RunBuilder:
    return run.fact(loader(1000)).scalar(LOSS_TRAIN, 0.2).scalar(LOSS_VALIDATION, validation, steps=[30, 60, 90])


def test_a_batch_fetched_once_while_validation_falls_behind() -> None:
    (found,) = findings(kept_batch(record(1.0, 32, fetched=False), 0.5).build(), NAME)
    assert "2.5 times training loss" in found.evidence[0].text
    assert findings(kept_batch(record(1.0, 32, fetched=False), 0.21).build(), NAME) == []


def test_noise_on_one_batch_is_seen_by_its_targets() -> None:
    target = InputsFact("train", "target", [32, 1, 8, 8], "float32", fingerprints=list(range(32)))
    run = kept_batch(record(0.0, 384, fetched=False), 0.5).fact(target)
    run = run.scalar(TARGET_MEAN, 0.3, "train", LOOKS).scalar(TARGET_STD, 0.2, "train", LOOKS)
    (found,) = findings(run.build(), NAME)
    assert "fetched and used in every step" in found.evidence[0].text
    labels = InputsFact("train", "target", [32], "int64", fingerprints=list(range(32)))
    run = kept_batch(record(0.0, 384, fetched=False), 0.5).fact(labels)
    assert findings(run.scalar(TARGET_MEAN, 0.3, "train", LOOKS).build(), NAME) == []


@pytest.mark.parametrize(
    ("seen", "shuffled", "validation", "expected"),
    [(64, None, 2.0, 1), (64, True, 2.0, 0), (300, None, 2.0, 0), (64, None, 0.01, 0)],
    ids=["few samples", "torch's own sampler", "a larger part", "validation follows"],
)
def test_a_sampler_that_draws_the_same_few_in_every_epoch(
    seen: int, shuffled: bool | None, validation: float, expected: int
) -> None:
    run = (
        record([0.0, 1.0] * 5 + [0.0], seen)
        .fact(LoaderFact("loader", "train", 2, 2600, 32, 0, shuffled, "TensorDataset"))
        .scalar(LOSS_TRAIN, np.geomspace(1.0, 0.01, 100))
        .scalar(LOSS_VALIDATION, validation, steps=[50, 99])
    )
    assert len(findings(run.build(), NAME)) == expected


def test_labels_in_an_order_that_nobody_designs() -> None:
    order = np.random.default_rng(0).integers(0, 3, 48).tolist()
    assert is_irregular(order)
    assert not is_irregular(sorted(order)) and not is_irregular([0, 1, 2] * 16) and not is_irregular([0] * 48)


def test_all_of_the_data_in_one_batch_is_the_same_batch_in_every_epoch() -> None:
    """Of each of several folds, so that more samples are seen than a batch has."""
    epochs = [1.0, 1.0, 1.0, 1.0] + [0.0] * 7
    assert findings(record(epochs, 300).fact(loader(1000)).build(), NAME)
    assert findings(record(epochs, 300).fact(replace(loader(32), batches=1)).build(), NAME) == []
