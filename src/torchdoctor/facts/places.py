"""Where in the landscape of its loss a model stands. Never recorded: `torchdoctor.sharpness` hands it to the rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchdoctor.facts.base import Fact

FLAT, SADDLE = "flat", "saddle"


@dataclass(frozen=True)
class LandscapeFact(Fact):
    """The slope and the ends of the Hessian's spectrum at the model's weights."""

    kind: ClassVar[str] = "landscape"
    place: str
    """flat, saddle, minimum, maximum or slope"""
    text: str
    loss: float
    gradient_norm: float
    gain: float
    """by which the best single step along the gradient lowers the loss, at most"""
    largest: float
    smallest: float
    """eigenvalues"""
    floor: float | None = None
    """the least that this loss can be; None where that is not known"""
    guess: float | None = None
    """the loss of one answer for all samples"""
