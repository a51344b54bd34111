"""The rules about a CUDA device at work, from facts as an H200 gives them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import DeviceFact, SynchronisationFact, TransferFact
from torchdoctor.findings import Finding, Severity

FACT = DeviceFact(
    name="H200",
    looks=3,
    device_seconds=1e-3,
    host_seconds=8e-3,
    piled=True,
    slots=270_336,
    memory=140_000_000_000,
    memory_peak=1_000_000_000,
    operations=600,
    parameters=10,
    elements=30_000,
    flops=1e9,
    bytes=1e8,
    pointwise_bytes=5e7,
    dtype="float32",
    matmul_rate=5e13,
    copy_rate=4e12,
)
COPY = TransferFact("to", 40, 20, 50_000_000, 8e-3, True, False, False, 0.0, "train.py", 7, "x = x.to(device)")


def run(seconds: float = 9e-3, steps: int = 1000, **changed: object) -> RunBuilder:
    builder = RunBuilder(steps).scalar(signals.TIME_STEP, seconds)
    return builder.fact(replace(FACT, **changed), steps - 1)  # type: ignore[arg-type]


def one(builder: RunBuilder, name: str) -> Finding | None:
    found = findings(builder.build(), name)
    assert len(found) <= 1
    return found[0] if found else None


# -- small-kernels and device-underfilled ------------------------------------------------


def test_a_loop_over_time_steps() -> None:
    found = one(run(), "small-kernels")
    assert found is not None and found.severity is Severity.WARNING
    assert "600 small operations" in found.title


def test_the_loop_explains_the_empty_device() -> None:
    told = {f.name: f for f in run().examine().findings}
    assert told["device-underfilled"].consequence_of == "small-kernels"


def test_few_operations_in_small_layers_are_a_matter_of_the_batch() -> None:
    builder = run(operations=30, parameters=16).scalar(signals.BATCH_SIZE, 64.0, key="train")
    assert one(builder, "small-kernels") is None
    found = one(builder, "device-underfilled")
    assert found is not None and found.severity is Severity.WARNING
    assert found.fix.code == "batch_size = 512  # was 64"


def test_large_layers_that_wait_are_small_kernels() -> None:
    builder = run(operations=60, parameters=30, elements=400_000)
    assert one(builder, "small-kernels") is not None
    assert one(builder, "device-underfilled") is None


@pytest.mark.parametrize("name", ["small-kernels", "device-underfilled"])
def test_a_demonstration_of_a_second_is_only_told(name: str) -> None:
    found = one(run(steps=150), name)
    assert found is not None and found.severity is Severity.INFO


def test_a_queue_that_overflows_gives_a_lower_bound() -> None:
    found = one(run(device_seconds=4e-3, host_seconds=9e-3, piled=False), "small-kernels")
    assert found is not None and found.severity is Severity.WARNING


def test_waiting_for_data_is_not_idle_time() -> None:
    assert one(run().scalar(signals.TIME_DATA, 7e-3), "small-kernels") is None


@pytest.mark.parametrize("name", ["small-kernels", "device-underfilled"])
def test_half_a_step_is_only_told(name: str) -> None:
    found = one(run(seconds=16e-3), name)
    assert found is not None and found.severity is Severity.INFO


@pytest.mark.parametrize("name", ["small-kernels", "device-underfilled"])
def test_a_busy_device_is_fine(name: str) -> None:
    assert one(run(device_seconds=8e-3), name) is None


@pytest.mark.parametrize("name", ["small-kernels", "device-underfilled"])
def test_time_that_python_does_not_spend_on_queueing_is_not_theirs(name: str) -> None:
    assert one(run(seconds=100e-3), name) is None


@pytest.mark.parametrize("name", ["small-kernels", "device-underfilled"])
def test_the_parts_of_usual_steps_bound_what_python_needs(name: str) -> None:
    builder = run()
    for signal in (signals.TIME_FORWARD, signals.TIME_BACKWARD, signals.TIME_OPTIMIZER):
        builder.scalar(signal, 0.5e-3)
    assert one(builder, name) is None


def test_a_full_memory_leaves_no_room_for_larger_batches() -> None:
    assert one(run(operations=30, parameters=16, memory_peak=80_000_000_000), "device-underfilled") is None


def test_reading_values_in_every_step_comes_first() -> None:
    reads = SynchronisationFact("item", 1480, 10, 1, "train.py", 12, "p.grad.norm().item()")
    told = {f.name: f for f in run().fact(reads, 999).examine().findings}
    assert told["small-kernels"].consequence_of == "host-sync-bound"


# -- memory-bound-kernels ----------------------------------------------------------------


def moving(**changed: object) -> RunBuilder:
    fields = {"device_seconds": 8e-3, "bytes": 25e9, "pointwise_bytes": 20e9, "flops": 1e10, **changed}
    return run(**fields)  # type: ignore[arg-type]


def test_element_by_element_operations() -> None:
    found = one(moving(), "memory-bound-kernels")
    assert found is not None and found.severity is Severity.WARNING


def test_normalised_convolutions_are_only_told() -> None:
    found = one(moving(pointwise_bytes=8e9), "memory-bound-kernels")
    assert found is not None and found.severity is Severity.INFO


@pytest.mark.parametrize(
    "changed", [{"flops": 3e11}, {"bytes": 5e9}, {"device_seconds": 3e-3}, {"copy_rate": None}, {"flops": None}]
)
def test_what_computes_or_is_not_known_is_fine(changed: dict[str, object]) -> None:
    assert one(moving(**changed), "memory-bound-kernels") is None


# -- slow-transfer -----------------------------------------------------------------------


def copying(step: float = 20e-3, **changed: object) -> RunBuilder:
    fact = replace(COPY, **changed)  # type: ignore[arg-type]
    return RunBuilder(1000).scalar(signals.TIME_STEP, step).fact(fact, 999)


def test_pageable_and_blocking() -> None:
    found = one(copying(), "slow-transfer")
    assert found is not None and found.severity is Severity.WARNING and found.where[0].line == 7
    assert "80%" in found.title and "pageable, blocking" in found.title
    assert "pin_memory" in (found.fix.code or "")


def test_the_measured_speed_counts() -> None:
    found = one(copying().fact(replace(FACT, transfer_rate=50e9), 999), "slow-transfer")
    assert found is not None and found.severity is Severity.INFO


def test_the_same_tensor_in_every_step() -> None:
    found = one(copying(repeated=0.95), "slow-transfer")
    assert found is not None and "the same tensor" in found.title and "register_buffer" in (found.fix.code or "")


@pytest.mark.parametrize(
    "changed",
    [
        {"pinned": True, "non_blocking": True},
        {"bytes": 16_000},
        {"seconds": 20e-6},
        {"steps": 2, "count": 4},
    ],
)
def test_quick_or_few_copies_are_fine(changed: dict[str, object]) -> None:
    assert one(copying(**changed), "slow-transfer") is None


def test_a_long_step_hides_them() -> None:
    assert one(copying(step=0.5), "slow-transfer") is None
