"""What is minimised: calls of loss functions, the graph behind the loss, targets of tokens, spikes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchdoctor.facts.base import Fact


@dataclass(frozen=True)
class LossCallFact(Fact):
    """A call of a torch loss function, seen at the call or in the graph."""

    kind: ClassVar[str] = "loss_call"
    function: str
    """cross_entropy, nll_loss, mse_loss, binary_cross_entropy_with_logits, binary_cross_entropy, l1_loss ..."""
    phase: str
    input_shape: list[int]
    input_dtype: str
    target_shape: list[int] | None
    target_dtype: str | None
    reduction: str | None = None
    label_smoothing: float | None = None
    ignore_index: int | None = None
    weighted: bool = False
    """class weights or pos_weight were given"""
    input_low: float | None = None
    input_high: float | None = None
    rows_sum_to_one: bool | None = None
    """every row of the input sums to one and lies in 0..1"""
    target_low: float | None = None
    target_high: float | None = None
    target_integral: bool | None = None
    """every target is a whole number"""
    ignored: float | None = None
    """share of targets equal to ignore_index"""
    classes: int | None = None
    """width of the class dimension, for classification losses"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class GraphFact(Fact):
    """The operators between the loss and the last parametrised layer, nearest to the loss first.

    `nodes` holds {"op": "SoftmaxBackward0", "file", "line", "depth", "shape"}; depth is the distance from the root;
    `file`, `line`, `shape` (of the operator's output, or None) where known. The walk stops at operators that use a
    parameter directly; these are listed too, with "parameters": [names]. "inputs" holds the positions in `nodes` of
    the operators whose output this one takes (next_functions); without it only an unbranched graph can be read.
    """

    kind: ClassVar[str] = "graph"
    root: str
    """the root operator"""
    loss_shape: list[int]
    nodes: list[dict[str, Any]]
    operators: dict[str, int]
    """how often each operator occurs in the whole graph"""
    file: str | None = None
    line: int | None = None
    truncated: bool = False
    opaque: bool = False
    """the graph runs through a compiled region whose inside cannot be seen"""


@dataclass(frozen=True)
class LossDivisionFact(Fact):
    """What the losses of a step were divided by before their backward passes. Recorded losses are undivided."""

    kind: ClassVar[str] = "loss_division"
    divisor: float
    """1 where they are not divided"""
    backwards: int
    """backward passes in a step, in most steps so far"""


@dataclass(frozen=True)
class TokenTargetsFact(Fact):
    """Token ids that a model was given, against the ids that its loss wanted for the same sequences."""

    kind: ClassVar[str] = "token_targets"
    input_shape: list[int]
    target_shape: list[int]
    same: float
    """share of targets equal to the input at their own position, where the next one differs"""
    following: float
    """share of targets equal to the next input"""
    causal: int = 0
    """attention operators over the sequence that see nothing ahead"""
    ahead: int = 0
    """those that do"""
    both_ways: list[str] = field(default_factory=list)
    """recurrent modules that run in both directions"""
    by_position: bool | None = None
    """outputs hang on inputs along the sequence, not through one code for all of it; None where it cannot be seen"""
    single: bool = True
    """these ids are all that the model was given beside the targets"""
    decoder: bool = False
    """of several embedded sequences, the one that most is the targets; `following` is that which most is the targets
    one place later"""
    ignored: float = 0.0
    """share of negative targets, which the loss skips"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class SpikeFact(Fact):
    """The batch of a training step whose loss stood far above those before it."""

    kind: ClassVar[str] = "spike"
    loss: float
    usual: float
    noise: float
    input_shape: list[int] | None = None
    input_size: float | None = None
    """root mean square"""
    input_high: float | None = None
    """largest absolute value"""
    sample_sizes: list[float] = field(default_factory=list)
    """root mean square of the largest samples, largest first"""
    samples: list[int] = field(default_factory=list)
    """their indices in the batch"""
    sample_typical: float | None = None
    """median root mean square of the samples"""
    target_high: float | None = None
    target_typical: float | None = None
    """median absolute target of the batch"""
    target_samples: list[int] = field(default_factory=list)
    target_integral: bool | None = None
