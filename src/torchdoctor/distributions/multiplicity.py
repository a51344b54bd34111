"""Many tests at once: what a small chance is worth when it was looked for in many places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(chances: Sequence[float]) -> list[float]:
    """Adjusted so that none falls below a limit by chance more often than that limit says (Holm 1979)."""
    adjusted, highest = [0.0] * len(chances), 0.0
    for place, i in enumerate(np.argsort(chances, kind="stable")):
        highest = max(highest, min(1.0, (len(chances) - place) * float(chances[i])))
        adjusted[int(i)] = highest
    return adjusted
