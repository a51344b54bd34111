from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import InputsFact, LabelsFact, LoaderFact, LossCallFact, ModuleFact
from torchdoctor.findings import Proof, RuledOut, Severity
from torchdoctor.signals import (
    BATCH_SIZE,
    INPUT_MEAN,
    LABEL_CLASSES,
    LABEL_ENTROPY,
    TARGET_MEAN,
    TARGET_STD,
)

NAME = "not-shuffled"


def loader(shuffled: bool | None, batches: int = 40) -> LoaderFact:
    return LoaderFact("loader", "train", batches, 40 * 32, 32, 0, shuffled, "TensorDataset")


def record(batches: list[np.ndarray], looks: list[int] | None = None, phase: str = "train") -> RunBuilder:
    """Labels as the recorder would have written them at those steps."""
    looks = list(range(len(batches))) if looks is None else looks
    seen = [batches[i] for i in looks]
    counts = Counter(str(int(v)) for batch in seen for v in batch)
    entropy = []
    for batch in seen:
        p = np.unique(batch, return_counts=True)[1] / len(batch)
        entropy.append(float(-(p * np.log(p)).sum()))
    return (
        RunBuilder(len(batches))
        .scalar(LABEL_ENTROPY, entropy, phase, looks)
        .scalar(LABEL_CLASSES, [float(len(np.unique(b))) for b in seen], phase, looks)
        .scalar(TARGET_MEAN, [float(b.mean()) for b in seen], phase, looks)
        .scalar(TARGET_STD, [float(b.std()) for b in seen], phase, looks)
        .scalar(BATCH_SIZE, [float(len(b)) for b in seen], phase, looks)
        .fact(LabelsFact(phase, dict(counts), len(seen)), step=looks[-1])
    )


def cut(labels: np.ndarray, size: int, epochs: int = 3) -> list[np.ndarray]:
    return [labels[i : i + size] for _ in range(epochs) for i in range(0, len(labels) - size + 1, size)]


def labels(classes: int, count: int = 1280) -> np.ndarray:
    return np.sort(np.arange(count) % classes)


SPARSE = [0, 1, 2, 3, 5, 8, 12, 16, 20, 27, 35, 45, 59, 77, 100]


@pytest.mark.parametrize("looks", [None, SPARSE], ids=["every step", "governed"])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_sorted_classes_and_no_shuffling(classes: int, looks: list[int] | None) -> None:
    (found,) = findings(record(cut(labels(classes), 32), looks).fact(loader(False)).build(), NAME)
    assert found.severity is Severity.WARNING and found.proof is Proof.STRUCTURE
    assert found.fix.code == "DataLoader(dataset, batch_size=32, shuffle=True)"


def test_slices_without_a_loader() -> None:
    (found,) = findings(record(cut(labels(10), 32)).build(), NAME)
    assert found.proof is Proof.STATISTICS
    assert "randperm" in (found.fix.code or "")


@pytest.mark.parametrize("size", [4, 32, 128])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_random_order_is_never_flagged(size: int, classes: int) -> None:
    for seed in range(8):
        shuffled = np.random.default_rng(seed).permutation(labels(classes))
        for fact in (loader(True), loader(None)):
            assert findings(record(cut(shuffled, size)).fact(fact).build(), NAME) == []
        said = detect(record(cut(shuffled, size)).fact(loader(False)).build(), NAME)
        assert [type(s) for s in said] == [RuledOut]


def test_rare_classes_in_random_order() -> None:
    rare = np.random.default_rng(0).permutation(np.repeat([0, 1], [1240, 40]))
    assert findings(record(cut(rare, 16)).fact(loader(None)).build(), NAME) == []


def test_few_classes_a_batch_on_purpose() -> None:
    random = np.random.default_rng(0)
    batches = [np.repeat(random.choice(50, 8, replace=False), 4) for _ in range(100)]
    assert findings(record(batches).fact(loader(None)).build(), NAME) == []


def test_one_batch_an_epoch() -> None:
    assert findings(record([labels(10)] * 50).fact(loader(False)).build(), NAME) == []


def test_dense_targets_are_not_judged() -> None:
    batches = cut(labels(10, 40_000), 32 * 16)
    run = record(batches).scalar(BATCH_SIZE, 32.0, "train", range(len(batches))).fact(loader(False)).build()
    assert findings(run, NAME) == []


def test_a_sorted_validation_set_is_fine() -> None:
    run = record(cut(labels(10), 32), phase="validation").scalar(TARGET_MEAN, 4.5, "train").build()
    assert findings(run, NAME) == []


def regression(order: np.ndarray, size: int = 32, epochs: int = 3, looks: Iterable[int] | None = None) -> RunBuilder:
    batches = cut(order, size, epochs)
    looks = range(len(batches)) if looks is None else list(looks)
    seen = [batches[i] for i in looks]
    return (
        RunBuilder(len(batches))
        .scalar(TARGET_MEAN, [float(b.mean()) for b in seen], "train", looks)
        .scalar(TARGET_STD, [float(b.std()) for b in seen], "train", looks)
        .scalar(BATCH_SIZE, float(size), "train", looks)
        .fact(InputsFact("train", "input", [size, 8], "float32"))
    )


TARGETS = np.random.default_rng(5).normal(size=1280)


def test_sorted_by_the_target() -> None:
    assert findings(regression(np.sort(TARGETS)).fact(loader(False)).build(), NAME)
    assert findings(regression(np.sort(TARGETS)[::-1]).build(), NAME)


def test_a_target_that_drifts_once_over_the_run_is_not_sorted() -> None:
    assert findings(regression(np.sort(TARGETS), epochs=1).build(), NAME) == []


@pytest.mark.parametrize(("every", "batches", "epochs"), [(7, 300, 2), (23, 150, 2), (64, 73, 20), (64, 100, 10)])
def test_sorted_by_the_target_and_looked_at_now_and_then(every: int, batches: int, epochs: int) -> None:
    targets = np.sort(np.random.default_rng(0).normal(size=32 * batches))
    looks = [*range(20), *range(20, batches * epochs, every)]
    assert findings(regression(targets, epochs=epochs, looks=looks).build(), NAME)


@pytest.mark.parametrize("seed", range(4))
def test_targets_that_a_network_computes_climb_from_batch_to_batch(seed: int) -> None:
    """Values of a learning agent: they rise over the whole run, faster and slower, and never start anew."""
    rng = np.random.default_rng(seed)
    climbing = np.cumsum(np.abs(rng.normal(size=600))).repeat(32) + rng.normal(size=600 * 32)
    looks = sorted({int(1.15**n) for n in range(46)})
    assert not findings(regression(climbing, epochs=1, looks=looks).build(), NAME)


def test_a_random_target_is_silent() -> None:
    assert findings(regression(TARGETS).fact(loader(False)).build(), NAME) == []
    assert findings(regression(TARGETS).build(), NAME) == []


def test_a_series_in_the_order_of_time_is_silent() -> None:
    waves = np.sin(np.arange(1280) / 40) + 0.1 * TARGETS
    assert findings(regression(waves).fact(loader(False)).build(), NAME) == []
    trend = np.linspace(0, 5, 1280) + 0.1 * TARGETS
    recurrent = regression(trend).fact(loader(False)).fact(ModuleFact("lstm", "LSTM", order=0))
    assert findings(recurrent.build(), NAME) == []
    means = [float(b.mean()) for b in cut(trend, 32)]
    lagged = regression(trend).fact(loader(False)).scalar(INPUT_MEAN, means, "train")
    assert findings(lagged.build(), NAME) == []


RATIO = [0, 1, 2, 3, 5, 8, 12, 16, 20, 21, 26, 32, 39, 47, 57, 69, 83, 100, 120, 144, 173, 208, 250, 300, 360, 432]
"""The steps of the looks of a short run."""


def binary(batches: list[np.ndarray]) -> RunBuilder:
    call = LossCallFact("binary_cross_entropy_with_logits", "train", [30], "float32", [30], "float32")
    seen = [batches[i] for i in RATIO]
    return (
        RunBuilder(len(batches))
        .fact(call)
        .scalar(TARGET_MEAN, [float(b.mean()) for b in seen], "train", RATIO)
        .scalar(TARGET_STD, [float(b.std()) for b in seen], "train", RATIO)
        .scalar(BATCH_SIZE, [30.0] * len(seen), "train", RATIO)
    )


def test_all_of_one_class_and_then_all_of_the_other() -> None:
    (found,) = findings(binary(cut(np.repeat([0.0, 1.0], 600), 30, 12)).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "one class at a time" in found.title


def test_two_classes_in_random_or_alternating_order_are_silent() -> None:
    mixed = np.random.default_rng(0).permutation(np.repeat([0.0, 1.0], 600))
    assert findings(binary(cut(mixed, 30, 12)).build(), NAME) == []
    pure = [np.full(30, float(v)) for v in np.random.default_rng(1).integers(0, 2, 480)]
    assert findings(binary(pure).build(), NAME) == []


def test_looks_that_lie_epochs_apart_need_not_resemble_each_other() -> None:
    assert findings(record(cut(np.sort(np.arange(1500) % 10), 30, 15), RATIO).build(), NAME)
