"""Where numbers end: non-finite values, the operations that make them, precisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchdoctor.facts.base import Fact

GAVE_UP = "the script looked at its loss itself and ended; torchdoctor replay runs the step again"
"""Why the birth of a NaN is not known (HealthFact.unsupported), where no backward was called on the loss."""


MODEL_INPUT = "what the model was given"
"""Name of an input that is not the batch as a loader handed it out."""

NO_BACKWARD = "no backward pass was seen in this program"
"""The same where the program only computed losses."""


OTHER_INPUT = "argument"
"""Begins the name of an input that is not the first tensor of a call; its path follows."""


@dataclass(frozen=True)
class NonfiniteFact(Fact):
    """The first time something held NaN or Inf."""

    kind: ClassVar[str] = "nonfinite"
    role: str
    """loss, gradient, weight, buffer, input, target, activation"""
    name: str
    phase: str
    count: int
    nan: int
    samples: list[int] = field(default_factory=list)
    """indices in the batch, at most 16"""
    features: list[int] = field(default_factory=list)
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class OperationFact(Fact):
    """An operation that can give NaN or Inf from finite numbers, or whose gradient can, as the graph had it.

    Written when it is first seen, when it first goes over its edge, and when the loss broke on it.
    """

    kind: ClassVar[str] = "operation"
    trouble: str
    """log, division, sqrt, exp or half"""
    operator: str
    """the forward operator, such as Log"""
    over: bool
    """a value lies where the operation or its gradient is not finite"""
    born: bool
    """the loss of that step is not finite, and this is the first operation, in the order of the forward pass, whose
    result is not finite while what went into it was"""
    count: int = 0
    """such values"""
    total: int = 0
    low: float | None = None
    """smallest value that went in (for exp and half: the largest that came out)"""
    dtype: str | None = None
    samples: list[int] = field(default_factory=list)
    """indices in the batch, at most 16"""
    module: str | None = None
    """the layer that feeds it"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class BirthFact(Fact):
    """Where the first NaN or Inf was made, from a step that was run again with every operation checked."""

    kind: ClassVar[str] = "birth"
    operator: str
    """the dispatcher's name, such as log or _softmax; empty where what was bad came in from outside"""
    backward: bool
    """it ran in the backward pass"""
    result: str
    """nan or inf"""
    inputs: list[list[float | None]] = field(default_factory=list)
    """smallest and largest value of each tensor that went in; None where not finite"""
    at: list[float | None] = field(default_factory=list)
    """of each the value that gave the first bad one, where that can be said"""
    shapes: list[list[int]] = field(default_factory=list)
    dtype: str | None = None
    """of what came out"""
    scalars: list[float | None] = field(default_factory=list)
    """numbers that went in beside them"""
    count: int = 0
    """values of the result that are not finite"""
    total: int = 0
    samples: list[int] = field(default_factory=list)
    """indices in the batch, at most 16"""
    source: str | None = None
    """what was bad before the step: input, target, or the name of a weight or buffer"""
    noticed: str = "loss"
    """loss, or the name of the gradient that was seen first"""
    module: str | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None
    chain: list[str] = field(default_factory=list)
    """from the birth to where it was noticed, an operation with its line each"""
    node: str | None = None
    """autograd's name of the operation whose gradient was computed, where it ran in the backward pass"""


@dataclass(frozen=True)
class HalfOperationFact(Fact):
    """An operation that ran in a 16-bit type and whose result easily leaves its range or digits: a softmax, a
    normalisation, a loss, an exponential, a long sum."""

    kind: ClassVar[str] = "half_operation"
    operator: str
    """the forward operator, such as LogSoftmax"""
    dtype: str
    count: int
    """how many of them the graph held"""
    length: int | None = None
    """values that a sum or mean ran over, the most of them"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class PrecisionFact(Fact):
    """Mixed precision as it was asked for, and in which type the matrix products of a step were made."""

    kind: ClassVar[str] = "precision"
    device: str
    """of the parameters"""
    asked: list[str]
    """device types of the autocast blocks that were entered in the step, as the script gave them"""
    switched_off: bool
    """blocks with enabled=False were entered"""
    scaler: bool
    """a gradient scaler scaled the loss, or was asked to"""
    products: dict[str, int]
    """matrix products and convolutions in the graph, by type"""
    parameters: list[str]
    """types of the parameters"""
    file: str | None = None
    line: int | None = None
    scaling: bool | None = None
    """that scaler is switched on; one with enabled=False, or for a device that is not there, multiplies by one"""
