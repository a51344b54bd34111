"""What is trained: models, parameters, layers, and what they are wired to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchdoctor.facts.base import Fact


@dataclass(frozen=True)
class ModelFact(Fact):
    """A root module: one that no other module called."""

    kind: ClassVar[str] = "model"
    name: str
    type: str
    parameters: int
    trainable: int
    modules: int
    compiled: bool = False


@dataclass(frozen=True)
class ParameterFact(Fact):
    """One parameter, by the user's own name."""

    kind: ClassVar[str] = "parameter"
    name: str
    shape: list[int]
    dtype: str
    device: str
    module: str
    module_type: str
    order: int | None = None
    """Position in the forward pass, 0 first, from the graph; None if the loss never reached it."""
    renamed: bool = False
    """it goes by another name since a second model was found"""
    library: str | None = None
    """the installed package that defines the class of the module around it; containers are passed over"""


@dataclass(frozen=True)
class ModuleFact(Fact):
    """One module whose output is measured, or an activation function found in the graph."""

    kind: ClassVar[str] = "module"
    name: str
    type: str
    activation: str | None = None
    """relu, leaky_relu, elu, gelu, silu, sigmoid, tanh, softmax ... where it is an activation."""
    order: int | None = None
    units: int | None = None
    inside_compiled: bool = False
    dtype: str | None = None
    """of its output; None in runs that did not record it"""


@dataclass(frozen=True)
class LayersFact(Fact):
    """Layers with weights, and what lies between two of which one takes the other's output and nobody else does.

    `layers` holds {"name" (of the weight), "op", "fan_in", "fan_out", "groups", "kernel", "plain_matrix" (multiplied as
    it is, not transposed as by nn.Linear)}; `links` holds {"above", "below", "ops"}: names of weights and the operators
    between them, nearest to `above` first. Paths that join or part (residuals, gates, attention) make no link.
    """

    kind: ClassVar[str] = "layers"
    layers: list[dict[str, Any]]
    links: list[dict[str, Any]]


@dataclass(frozen=True)
class DropoutFact(Fact):
    """The share that each dropout module of a model drops, by name; those that drop nothing are left out."""

    kind: ClassVar[str] = "dropout"
    model: str
    shares: dict[str, float]


@dataclass(frozen=True)
class WiringFact(Fact):
    """Which parameters are trained, seen after `updates` updates. Lists hold parameter names."""

    kind: ClassVar[str] = "wiring"
    updates: int
    total: int
    frozen: list[str] = field(default_factory=list)
    """do not require gradients"""
    unheld: list[str] = field(default_factory=list)
    """require gradients, and no optimizer that was ever stepped or built holds them"""
    unreached: list[str] = field(default_factory=list)
    """require gradients, held by an optimizer that stepped, and never got a gradient from any backward"""
    used: list[str] = field(default_factory=list)
    """of the unheld: those that got a gradient, so the loss depends on them"""
    unregistered: list[str] = field(default_factory=list)
    """nn.Parameters the loss reached that no module and no optimizer holds (a module in a plain list), by place or
    shape; plain tensors that require gradients (inputs of a gradient penalty, points of a physics loss) do not count"""
    stale: int = 0
    """parameters in an optimizer that belong to no module seen in a forward pass and never got a gradient"""
    unchanged: list[str] = field(default_factory=list)
    """held, and bit-for-bit equal to what they were at the first look"""
    changed_outside: list[str] = field(default_factory=list)
    """changed between the end of one update and the start of the next"""
    frozen_changed: list[str] = field(default_factory=list)
    detached_at: str | None = None
    """file:line of a detach or no_grad block that cuts the unreached off, where it could be seen"""
    loaded: list[str] | None = None
    """of the unheld and unreached: those that load_state_dict filled before the first update (pretrained, so leaving
    them alone may be meant); None where loading was not watched"""
    stepped: int | None = None
    """how many require gradients and are held by an optimizer that stepped; None in runs that did not record it"""
    compared: int | None = None
    """how many of these were compared, before an update and after one"""


@dataclass(frozen=True)
class FrozenFact(Fact):
    """Parameters without gradients as an optimizer is about to step. Written when any of it changes."""

    kind: ClassVar[str] = "frozen"
    optimizer: str
    frozen: list[str]
    fresh: list[str] = field(default_factory=list)
    """of these: weights whose spread is that of torch's own initialisation, to within chance"""
    loaded: list[str] = field(default_factory=list)
    """of these: filled by load_state_dict"""
    trained_before: list[str] = field(default_factory=list)
    """of these: required gradients at an earlier update"""
    groups: list[dict[str, Any]] = field(default_factory=list)
    """of this optimizer: {"parameters", "frozen", "lr"}"""


@dataclass(frozen=True)
class FrozenChangeFact(Fact):
    """Something that does not require gradients, and what training did to it."""

    kind: ClassVar[str] = "frozen_change"
    updates: int
    changed: list[str] = field(default_factory=list)
    """parameters that an optimizer's own step changed"""
    gradients: str | None = None
    """what they had for a gradient then: "zero" or "old" """
    optimizer: str | None = None
    norms: list[str] = field(default_factory=list)
    """normalisation modules behind frozen layers only, frozen themselves, whose running statistics moved"""
    drift: float | None = None
    """largest move of a running mean since it was first seen, in its standard deviations"""
