"""Pictures of long runs: few numbers, and none of those that matter lost."""

from __future__ import annotations

import numpy as np
import pytest

from torchdoctor.facts import ModuleFact, ParameterFact
from torchdoctor.plots import charts
from torchdoctor.plots.chart import line
from torchdoctor.plots.thinning import POINTS, ROWS, enclose, farthest, group, pick
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION, GRADIENT_L2, LEARNING_RATE, LOSS_TRAIN


@pytest.mark.parametrize("count", [1, POINTS, POINTS + 1, 2048, 100_003])
def test_lines_keep_ends_extremes_and_order(count: int) -> None:
    values = np.sin(np.arange(count) / 50)
    values[count // 3], values[count // 2] = 40.0, -40.0
    x, y = pick(np.arange(count), values)
    assert len(x) == len(y) <= POINTS + 2 and (np.diff(x) > 0).all()
    assert x[0] == 0 and x[-1] == count - 1 and (y == values[x]).all()
    assert y.max() == values.max() and y.min() == values.min()


def test_gaps_of_a_line_stay_gaps() -> None:
    values = np.ones(5000)
    values[2000], values[3000:] = np.nan, np.inf
    x, y = pick(np.arange(5000), values)
    assert np.isnan(y[x == 2000]).all() and (x == 2000).any()
    assert not np.isfinite(y[x >= 3000]).any() and x[-1] == 4999
    x, y = pick(np.arange(5000), np.full(5000, np.nan))
    assert len(x) <= POINTS + 2 and np.isnan(y).all()


def test_a_band_holds_all_that_it_held() -> None:
    low, high = -np.ones(2001), np.ones(2001)
    low[7], high[2000] = -9.0, 9.0
    x, below, above = enclose(np.arange(2001), low, high)
    assert len(x) == len(below) == len(above) <= POINTS and x[-1] == 2000
    assert below.min() == -9.0 and above[-1] == 9.0


def test_stretches_show_what_is_farthest_from_usual() -> None:
    values = np.ones((1000, 2))
    values[501, 1], values[:, 0] = -7.0, np.nan
    last, shown = farthest(values, values, values, 90)
    assert len(last) == len(shown) <= 90 and last[-1] == 999
    assert (shown[:, 1] == -7.0).sum() == 1 and np.isnan(shown[:, 0]).all()


def test_layers_beyond_the_rows_stand_together() -> None:
    names = [f"layer{i}" for i in range(1000)]
    values = np.ones(1000)
    values[500] = 0.0
    labels, (shown,) = group(names, [values])
    assert len(labels) == len(set(labels)) == len(shown) <= ROWS and labels[0] == "layer0 and 8 more"
    assert (shown == 0.0).sum() == 1
    assert group(names[:5], [values[:5]])[0] == names[:5]


def test_every_chart_of_a_large_run_is_small() -> None:
    steps, columns = np.arange(2048), tuple(f"blocks.{i}.weight" for i in range(600))
    norm = np.ones((2048, 600), np.float32)
    norm[:, 300] = 0.0
    held = {
        LOSS_TRAIN.name: Trace.raw(steps, 1 + np.sin(steps / 90) ** 2),
        LEARNING_RATE.name: Trace.raw(steps, np.linspace(1, 0, 2048)),
        GRADIENT_L2.name: Trace.raw(steps, norm, columns),
        ACTIVATION["std"].name: Trace.raw(steps, norm, tuple(c.rpartition(".")[0] for c in columns)),
        ACTIVATION["dead"].name: Trace.raw(steps, 1 - norm, tuple(c.rpartition(".")[0] for c in columns)),
    }
    layers = [c.rpartition(".")[0] for c in columns]
    facts = [
        ParameterFact(c, [2, 2], "f", "cpu", m, "Linear", i)
        for i, (c, m) in enumerate(zip(columns, layers, strict=True))
    ]
    made = Run.holding(*facts, *(ModuleFact(m, "ReLU") for m in layers))
    run = Run({}, frozenset((n, "") for n in held), lambda name, _: held[name], made.seen)
    drawn = {chart.name: chart for chart in charts(run)}
    assert {"loss", "gradient-flow", "gradient-norms", "learning-rate", "activations", "dead-units"} <= set(drawn)
    for chart in drawn.values():
        assert all(len(trace["x"]) <= POINTS + 2 for trace in chart.data), chart.name
        assert all(np.shape(trace.get("z", 0)) < (ROWS + 1,) for trace in chart.data), chart.name
    none = drawn["gradient-flow"].data[1]["z"]
    assert (none == 1.0).any(axis=1).sum() == 1, "the layer without a gradient"


def test_a_short_line_is_as_it_was() -> None:
    x, y = [1, 2], [3.0, 4.0]
    assert line("a", x, y, "#000000")["x"] is x and line("a", x, y, "#000000")["y"] is y
