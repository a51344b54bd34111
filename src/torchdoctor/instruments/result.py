"""What every instrument gives: a result to print, to plot, to show in a notebook and to keep."""

from __future__ import annotations

import dataclasses
import html
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdoctor.errors import UsageError
from torchdoctor.plots.offline import to_html

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Result(ABC):
    """Base of dataclasses. `str()` is the text for a terminal."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def plot(self) -> Figure:
        """The picture, as a Plotly figure."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; a number that is not finite is None."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        """Text and picture, with Plotly's own script in it: every cell shows it alone, whichever was run before, in an
        exported page and without a network, too. That takes some megabytes; `print(result)` takes none."""
        text = f"<pre>{html.escape(str(self))}</pre>"
        try:
            figure = self.plot()
        except UsageError:
            return text
        return text + to_html(figure, whole_page=False)


def plain(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, Result):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    return str(value)
