"""A CUDA device at work: how long it needs for a step, how much work that is, what is copied to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchdoctor.facts.base import Fact


@dataclass(frozen=True)
class DeviceFact(Fact):
    """What a step is for the device. Measured in a few steps of a run; the last one stands."""

    kind: ClassVar[str] = "device"
    name: str
    looks: int
    """steps that were measured"""
    device_seconds: float
    """of forward, backward and update, with everything queued beforehand, so that no kernel waits for Python"""
    host_seconds: float
    """what Python needs to queue the same"""
    piled: bool
    """everything was queued before the device began; else device_seconds is an upper bound"""
    slots: int
    """threads that the device can hold at once"""
    memory: int
    """bytes it has"""
    memory_peak: int
    """bytes used at most"""
    operations: int | None = None
    """in the graph behind the losses of a step, without views; a lower estimate of launches in one direction"""
    parameters: int | None = None
    """tensors that the losses reach"""
    elements: int | None = None
    """of the median layer's output"""
    flops: float | None = None
    """of matrix products and convolutions in a step, forward and backward; None where the graph does not tell"""
    bytes: float | None = None
    """that a step reads and writes at least"""
    pointwise_bytes: float | None = None
    """of those, by operations that treat every element by itself"""
    dtype: str | None = None
    """of most of the matrix products"""
    matmul_rate: float | None = None
    """FLOP a second that this device reached in a large product of that dtype, after the training"""
    copy_rate: float | None = None
    """bytes a second, read and written, that it reached in a large copy"""
    transfer_rate: float | None = None
    """bytes a second from pageable host memory"""


@dataclass(frozen=True)
class TransferFact(Fact):
    """Copies between host and device in watched training steps, by place."""

    kind: ClassVar[str] = "transfer"
    call: str
    count: int
    steps: int
    """watched steps so far"""
    bytes: int
    """a call, on average"""
    seconds: float
    """inside a call, on average, with what was waited for"""
    to_device: bool
    pinned: bool
    """all of them from (or to) pinned memory"""
    non_blocking: bool
    repeated: float
    """share of the calls that copied the very tensor of the time before, unchanged"""
    file: str | None = None
    line: int | None = None
    code: str = ""
    library: str | None = None
