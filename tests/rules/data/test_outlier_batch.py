from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import SpikeFact
from torchdoctor.findings import RuledOut, Severity
from torchdoctor.probes.spikes import LossWatch
from torchdoctor.signals import (
    BATCH_SIZE,
    INPUT_MAX,
    INPUT_MEAN,
    INPUT_MIN,
    INPUT_STD,
    LOSS_TRAIN,
    TARGET_MEAN,
    TARGET_STD,
)

NAME = "outlier-batch"


def record(high: float = 4.0) -> RunBuilder:
    """Standardised inputs and targets, a loss of 0.5 with one spike."""
    loss = np.full(200, 0.5)
    loss[120] = 50.0
    run = RunBuilder(200).scalar(LOSS_TRAIN, loss)
    for signal, value in ((INPUT_MEAN, 0.0), (INPUT_STD, 1.0), (INPUT_MIN, -high), (INPUT_MAX, high)):
        run.scalar(signal, value, "train", range(0, 200, 10))
    for signal, value in ((TARGET_MEAN, 0.0), (TARGET_STD, 1.0)):
        run.scalar(signal, value, "train", range(0, 200, 10))
    return run


def spike(largest: float = 1.5, high: float = 4.0, target: float = 3.0, loss: float = 50.0) -> SpikeFact:
    return SpikeFact(
        loss=loss,
        usual=0.5,
        noise=0.05,
        input_shape=[32, 20],
        input_size=max(1.0, largest / 5.6),
        input_high=high,
        sample_sizes=[largest, 1.4, 1.3],
        samples=[17, 3, 5],
        sample_typical=1.0,
        target_high=target,
        target_typical=0.7,
        target_samples=[17],
        target_integral=False,
    )


def test_a_sample_far_out_of_range() -> None:
    (found,) = findings(record().fact(spike(largest=120.0, high=500.0), step=120).build(), NAME)
    assert found.severity is Severity.WARNING and found.first_step == 120
    assert "sample 17" in found.summary and "spikes" in found.symptoms


def test_a_target_far_out_of_range() -> None:
    (found,) = findings(record().fact(spike(target=90.0), step=120).build(), NAME)
    assert found.title.startswith("Targets 90 times")


def test_a_spike_of_an_ordinary_batch_is_another_cause() -> None:
    assert [type(s) for s in detect(record().fact(spike(), step=120).build(), NAME)] == [RuledOut]


def test_values_that_every_batch_has_are_usual() -> None:
    assert findings(record(high=400.0).fact(spike(largest=120.0, high=500.0), step=120).build(), NAME) == []


def test_without_a_spike_nothing_is_said() -> None:
    assert detect(record().build(), NAME) == []


@pytest.mark.parametrize("factor", [3.0, 100.0])
def test_the_watch_tells_a_spike_from_noise_and_descent(factor: float) -> None:
    random, watch = np.random.default_rng(0), LossWatch()
    losses = (2 * np.exp(-np.arange(400) / 80) + 0.2) * (1 + 0.1 * random.normal(size=400))
    assert sum(watch.note(float(v)) for v in losses) == 0
    assert watch.note(factor * float(losses[-1]))


def test_one_of_many_spikes_is_not_what_makes_them() -> None:
    run = record().fact(spike(target=9.0), step=120)
    for step in range(20, 60):
        run.fact(spike(), step=step)
    assert findings(run.build(), NAME) == []


def recurring(sizes: np.ndarray, target: float) -> RunBuilder:
    run = record()
    run.scalar(BATCH_SIZE, 32.0, "train", range(0, 200, 10))
    run.scalar(TARGET_STD, sizes, "train", range(0, 200, 10))
    return run.fact(spike(target=target), step=120)


def test_a_rare_reward_that_comes_again_and_again_is_no_accident() -> None:
    sizes = np.full(20, 1.0)
    sizes[::4] = 2.5
    assert findings(recurring(sizes, 10.0).build(), NAME) == []
    assert findings(recurring(np.full(20, 1.0), 10.0).build(), NAME)


def test_the_tail_of_the_targets_does_not_outweigh_its_batch() -> None:
    run = recurring(np.full(20, 1.0), 9.0).scalar(BATCH_SIZE, 256.0, "train", range(0, 200, 10))
    assert findings(run.build(), NAME) == []


@pytest.mark.parametrize(
    ("largest", "others", "is_accident"),
    [(9.3, (1.2, 2.9, 3.1), True), (9.3, (4.2, 5.8, 6.3, 7.5), False), (19.0, (4.2, 5.2, 6.0, 7.0), True)],
)
def test_an_accident_stands_apart_from_the_other_targets(
    largest: float, others: tuple[float, ...], is_accident: bool
) -> None:
    run = recurring(np.full(20, 1.0), largest)
    for at, target in enumerate(others):
        run.fact(spike(target=target), step=30 + at)
    said = detect(run.build(), NAME)
    assert bool(said) == is_accident, "of a tail nothing is said, not that its batches were usual"


@pytest.mark.parametrize(("measured_until", "is_told"), [(190, True), (26, False)])
def test_targets_of_long_ago_are_not_the_usual_ones(measured_until: int, is_told: bool) -> None:
    run = record()
    for signal, value in ((TARGET_MEAN, 0.0), (TARGET_STD, 1.0)):
        run.scalar(signal, value, "train", range(0, measured_until, 2))
    said = findings(run.fact(spike(target=90.0), step=120).build(), NAME)
    assert bool(said) == is_told
