"""What a model gets in use. Never recorded: `torchdoctor skew` hands it to the rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchdoctor.facts.base import Fact


@dataclass(frozen=True)
class SkewFact(Fact):
    """How samples from use differ from what this run was trained on, feature by feature."""

    kind: ClassVar[str] = "skew"
    source: str
    samples: int
    """from use"""
    trained: int
    """different training samples that were looked at"""
    unit: str
    """what a feature is: column, channel, feature, or value where all are taken together"""
    names: list[str] = field(default_factory=list)
    distance: list[float] = field(default_factory=list)
    """population stability index of normal distributions with these means and spreads"""
    chance: list[float] = field(default_factory=list)
    """how likely samples from the same distribution differ so much, of each feature for itself"""
    trained_mean: list[float] = field(default_factory=list)
    trained_std: list[float] = field(default_factory=list)
    used_mean: list[float] = field(default_factory=list)
    used_std: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    """share of samples outside of the range seen in training"""
    outside_chance: list[float] = field(default_factory=list)
    tokens: float | None = None
    """total variation between the token ids of both, beyond chance"""
    mismatches: list[dict[str, str]] = field(default_factory=list)
    """{"kind", "text", "fix"}: what does not fit whatever the values are: shape, type, missing values, unknown ids"""
    explanation: dict[str, str] | None = None
    """{"kind", "text", "fix"}: one change of the samples that makes them fit"""
