"""What a replay may change to see whether the failure goes away: `lr=0.1x`, `clip=1.0`, `fp32`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchdoctor.errors import UsageError

RATE = re.compile(r"lr=(\d+(?:\.\d*)?(?:e[-+]?\d+)?)(x?)", re.IGNORECASE)
CLIP = re.compile(r"clip=(\d+(?:\.\d*)?(?:e[-+]?\d+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class Changes:
    rate: float | None = None
    relative: bool = False
    """the rate is a factor on the script's own"""
    clip: float | None = None
    single: bool = False
    """float32 throughout: autocast is switched off, and models are not cast"""

    @property
    def from_start(self) -> bool:
        """It changes what led to the step, and so has to be there from the first update on."""
        return self.rate is not None or self.clip is not None

    @property
    def words(self) -> str:
        said = []
        if self.rate is not None:
            said.append(f"learning rate {'times ' if self.relative else ''}{self.rate:g}")
        if self.clip is not None:
            said.append(f"gradients clipped to a norm of {self.clip:g}")
        if self.single:
            said.append("float32 throughout")
        return ", ".join(said)


def read_changes(texts: Iterable[str]) -> Changes:
    """As given after --with, in any number."""
    found: dict[str, float | bool] = {}
    for text in texts:
        for part in filter(None, (p.strip() for p in text.split(","))):
            if match := RATE.fullmatch(part):
                found.update(rate=float(match[1]), relative=bool(match[2]))
            elif match := CLIP.fullmatch(part):
                found["clip"] = float(match[1])
            elif part.lower() == "fp32":
                found["single"] = True
            else:
                raise UsageError(f"--with takes lr=0.1x, lr=0.001, clip=1.0 or fp32, not {part!r}")
    return Changes(**found)  # type: ignore[arg-type]
