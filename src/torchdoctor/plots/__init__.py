"""Figures of a run. `torchdoctor.plots.loss(run)` and the like give Plotly figures; a run may be named by its folder or
by the doctor that watches it. What is found in it is marked: the run is examined, unless `findings` are given
(`findings=()` marks nothing).
Those of the instruments are here, too: `plots.batches(torchdoctor.preview_batches(train, val))`, `mistakes`,
`attention`, `saliency`, `lr_range` and `landscape` take a result. `dir(torchdoctor.plots)` names all of them.

`charts(run, findings)` draws all that the run has signals for, as plain data: what the report and the live page show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from torchdoctor.errors import UsageError
from torchdoctor.findings import Finding
from torchdoctor.plots.activations import draw_activation_health, draw_dead_units
from torchdoctor.plots.chart import Chart
from torchdoctor.plots.costs import draw_memory, draw_time
from torchdoctor.plots.layers import draw_gradient_flow, draw_gradient_lines, draw_update_ratio
from torchdoctor.plots.losses import draw_loss
from torchdoctor.plots.notebook import View, view
from torchdoctor.plots.outcomes import draw_calibration, draw_classes, draw_confusion, draw_worst
from torchdoctor.plots.rates import draw_gradient_norm, draw_learning_rate
from torchdoctor.plots.results import GIVEN_BY, drawer
from torchdoctor.plots.tensor_values import draw_chosen_tensor, draw_gradients, draw_outputs, draw_weights
from torchdoctor.plots.weights import draw_weight_norms
from torchdoctor.run import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Draw = Callable[[Run, Sequence[Finding]], Chart | None]

DRAWN: dict[str, Draw] = {
    "loss": draw_loss,
    "gradient_flow": draw_gradient_flow,
    "gradient_norms": draw_gradient_lines,
    "gradient_norm": draw_gradient_norm,
    "update_ratio": draw_update_ratio,
    "weight_norms": draw_weight_norms,
    "activation_health": draw_activation_health,
    "dead_units": draw_dead_units,
    "weight_distribution": draw_weights,
    "gradient_distribution": draw_gradients,
    "activation_distribution": draw_outputs,
    "learning_rate": draw_learning_rate,
    "classes": draw_classes,
    "confusion": draw_confusion,
    "calibration": draw_calibration,
    "worst": draw_worst,
    "time": draw_time,
    "memory": draw_memory,
}
"""In the order in which a page shows them; the names are those of the public functions."""


def charts(run: Run, findings: Sequence[Finding] = ()) -> list[Chart]:
    """All for which the run has the signals."""
    drawn = (draw(run, findings) for draw in DRAWN.values())
    return [chart for chart in drawn if chart is not None]


def show(run: Run | str | PathLike[str], findings: Sequence[Finding] | None = None) -> View:
    """A run in a notebook's cell: what is found in it (by examining it, unless given) and its main figures."""
    opened = _opened(run)
    return view(opened, _found(opened) if findings is None else findings)


def distributions(
    run: Run | str | PathLike[str], column: str | None = None, what: str = "weights", *, theme: str = "light"
) -> Figure:
    """How the values of one tensor are spread over the run. `what` is weights, gradients or activations; `column` the
    parameter's name, of activations the layer's; without one it is what changed most."""
    return draw_chosen_tensor(_opened(run), column, what).figure(theme)


def __getattr__(name: str) -> Callable[..., Figure]:
    if name in GIVEN_BY:
        return drawer(name)
    if name not in DRAWN:
        known = ", ".join([*DRAWN, *GIVEN_BY])
        raise AttributeError(f"module 'torchdoctor.plots' has no attribute {name!r}; there are {known}")

    def plot(
        run: Run | str | PathLike[str], findings: Sequence[Finding] | None = None, *, theme: str = "light"
    ) -> Figure:
        opened = _opened(run)
        chart = DRAWN[name](opened, _found(opened) if findings is None else findings)
        if chart is None:
            raise UsageError(f"the run has no signals for {name}: it was too short, or they were not recorded")
        return chart.figure(theme)

    plot.__name__ = plot.__qualname__ = name
    plot.__doc__ = f"{(DRAWN[name].__doc__ or name.replace('_', ' ').capitalize()).strip()} `theme` is light or dark."
    return plot


def __dir__() -> list[str]:
    return sorted([*DRAWN, *GIVEN_BY, "charts", "distributions", "show"])


def _found(run: Run) -> Sequence[Finding]:
    from torchdoctor.engine import examine

    return examine(run).findings


def _opened(run: Any) -> Run:
    """Of a folder, or of a doctor, whose training may still go on."""
    if not isinstance(run, Run) and callable(getattr(run, "run", None)):
        run = run.run()
        if run is None:
            raise UsageError("nothing is recorded yet: the doctor has seen no step of a training")
    if isinstance(run, Run):
        return run
    from torchdoctor.store.reader import open_run

    return open_run(run)
