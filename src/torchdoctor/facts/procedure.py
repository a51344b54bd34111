"""How the loop goes on: optimizers, schedules, clipping, the order of calls, modes, states put in from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchdoctor.facts.base import Fact


@dataclass(frozen=True)
class OptimizerFact(Fact):
    """An optimizer and its groups' hyperparameters (numbers and flags only)."""

    kind: ClassVar[str] = "optimizer"
    key: str
    type: str
    groups: list[dict[str, Any]]
    parameters: int
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class SchedulerFact(Fact):
    kind: ClassVar[str] = "scheduler"
    key: str
    type: str
    optimizer: str | None
    file: str | None = None
    line: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """its numbers: step_size, gamma, T_max, total_steps, milestones ..."""
    calls: int = 0
    """calls of its step() so far, the one at its creation left out"""
    called_at: list[int] = field(default_factory=list)
    """updates that had been made at each of its first calls"""
    last_at: int = 0
    """the same at its last call"""
    nested: bool = False
    """another scheduler steps it"""
    made_file: str | None = None
    made_line: int | None = None


@dataclass(frozen=True)
class ClipFact(Fact):
    kind: ClassVar[str] = "clip"
    how: str
    """norm or value"""
    threshold: float
    norm_type: float | None
    parameters: int
    after_step: bool = False
    """called between the step and the next backward"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class OrderFact(Fact):
    """The calls of one step, in order, run-length encoded: ["zero_grad", "forward", "backward", "clip", "step"]."""

    kind: ClassVar[str] = "order"
    optimizer: str
    calls: list[str]
    closure: bool = False


@dataclass(frozen=True)
class CallSiteFact(Fact):
    """Where the user's code calls something (backward, step, zero_grad, clip, eval, train, scheduler)."""

    kind: ClassVar[str] = "call_site"
    call: str
    file: str
    line: int
    code: str = ""
    library: str | None = None
    """the installed package that makes the call, below that line"""


@dataclass(frozen=True)
class ModesFact(Fact):
    """How forward passes of one phase ran. Written when any of it changes."""

    kind: ClassVar[str] = "modes"
    model: str
    phase: str
    training: bool
    """the root's flag"""
    grad_enabled: bool
    dropout_training: list[str] = field(default_factory=list)
    """dropout modules (p > 0) in train mode"""
    dropout_eval: list[str] = field(default_factory=list)
    norm_training: list[str] = field(default_factory=list)
    """normalisation modules that keep running statistics, in train mode"""
    norm_eval: list[str] = field(default_factory=list)
    norm_frozen: list[str] = field(default_factory=list)
    """of norm_eval: those whose own weight does not require gradients either (frozen on purpose)"""
    norm_idle: list[str] = field(default_factory=list)
    """of norm_eval, in training passes of a model in train mode: those whose running statistics are still those of a
    new module (mean 0, variance 1), so that they normalise nothing"""
    passes: int = 1
    file: str | None = None
    line: int | None = None
    library: str | None = None
    """the installed package that calls the model, below that line"""


@dataclass(frozen=True)
class OverwriteFact(Fact):
    """Parameters that an optimizer goes on with were found other than its last update had left them."""

    kind: ClassVar[str] = "overwrite"
    optimizer: str
    parameters: list[str]
    share: float
    """of the elements that the optimizers hold"""
    restored: list[str] = field(default_factory=list)
    """of them: bit for bit what an earlier update had found or left"""
    restored_step: int | None = None
    """the step of the oldest of these states"""
    copies: dict[str, str] = field(default_factory=dict)
    """of them: bit for bit equal to another parameter, by name"""
    evaluated: bool | None = None
    """the validation in between ran on these very values; None where there was none"""
    kept: float | None = None
    """of the way since the last overwrite (or the start), the share that is still there; None where unknown"""
    how: str | None = None
    """load_state_dict or init, where one of them was called since; None: by other means"""
    within: bool = False
    """between two updates that follow each other, not across the end of an epoch or a load"""
    looks: int = 1
    """how often it was looked at this kind of place, so far"""
    hits: int = 1
    """how often something was found there, so far"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class ResumeFact(Fact):
    """An optimizer made its first update on parameters that load_state_dict had filled just before."""

    kind: ClassVar[str] = "resume"
    optimizer: str
    share: float
    """of its elements that were loaded"""
    empty: bool
    """it had no state"""
    loaded: bool
    """its load_state_dict was called"""
    start: bool
    """the values are those that a training of this process began with or was given before: a new start"""
    saved_optimizer: bool
    """the checkpoint held an optimizer's state, or this process asked an optimizer for it"""
    saved_scheduler: bool
    saved_progress: str | None
    """the checkpoint's entry that counts epochs or steps, such as "epoch = 12" """
    file_written: bool
    """this process writes checkpoints to the same path, or reads them from memory"""
    saved_rates: list[float] = field(default_factory=list)
    """learning rates of the groups in the checkpoint, and of the optimizer that trained before in this process"""
    saved_initial_rates: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    earlier: str | None = None
    """key of the optimizer that trained before in this process"""
    scheduler_loaded: bool = False
    file: str | None = None
    line: int | None = None
