"""What every fact is, and the names of the phases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

F = TypeVar("F", bound="Fact")

TRAIN, VALIDATION, UNKNOWN = "train", "validation", "unknown"
"""The phases a forward pass, a loss call or a batch can belong to."""


@dataclass(frozen=True)
class Fact:
    """Base of all facts. `kind` names the class on disk; `subject` tells facts of one kind apart."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls: type[F], data: Mapping[str, Any]) -> F:
        """Build from what a reader found; unknown fields (from a newer minor version) are left out."""
        names = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in names})
