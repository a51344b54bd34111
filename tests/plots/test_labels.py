"""Names of layers on an axis: no two alike, whatever a library calls them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import plots, signals
from torchdoctor.plots.labels import ROOM, label
from torchdoctor.plots.thinning import ROWS


def t5(blocks: int = 6) -> list[str]:
    found = ["shared.weight"]
    for side, kinds in (("encoder", ["SelfAttention"]), ("decoder", ["SelfAttention", "EncDecAttention"])):
        for block in range(blocks):
            for at, kind in enumerate(kinds):
                found += [f"{side}.block.{block}.layer.{at}.{kind}.{part}.weight" for part in "qkvo"]
            dense = f"{side}.block.{block}.layer.{len(kinds)}.DenseReluDense"
            found += [f"{dense}.wi.weight", f"{dense}.wo.weight"]
    return found


def bert(layers: int = 12, before: str = "") -> list[str]:
    ends = [f"attention.self.{part}" for part in ("query", "key", "value")]
    ends += ["attention.output.dense", "intermediate.dense", "output.dense"]
    return [f"{before}encoder.layer.{i}.{end}.weight" for i in range(layers) for end in ends]


@pytest.mark.parametrize("names", [t5(), bert(), t5(24), bert(48), bert(12, "model.text_model.wrapped.bert.")])
def test_labels_are_short_and_unlike(names: list[str]) -> None:
    found = label(names)
    assert len(set(found)) == len(names) and max(map(len, found)) <= ROOM + 4
    assert all(short[-8:] == name[-8:] for short, name in zip(found, names, strict=True)), "the end tells most"


def test_what_fits_stays_and_a_name_alone_keeps_its_modules() -> None:
    assert label(["a.b.weight", "a.c.weight"]) == ["a.b.weight", "a.c.weight"]
    assert label(["model." * 9 + "fc.weight"])[0].endswith("model.fc.weight")


def test_names_that_nobody_can_tell_apart_are_numbered_in_no_time() -> None:
    names = ["a" * 50_000 + str(i) + "b" * 50_000 for i in range(ROWS)]
    began = time.perf_counter()
    found = label(names)
    assert len(set(found)) == ROWS and max(map(len, found)) < 2 * ROOM
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("names", [t5(), bert(), t5(40)], ids=["t5", "bert", "more layers than rows"])
def test_no_row_of_a_chart_covers_another(names: list[str]) -> None:
    run = RunBuilder(8).parameters(dict.fromkeys(names, (4, 4)))
    run.matrix(signals.GRADIENT_L2, dict.fromkeys(names, 1.0)).matrix(signals.UPDATE_RATIO, dict.fromkeys(names, 1e-3))
    for kind in ("dead", "std"):
        run.matrix(signals.ACTIVATION[kind], dict.fromkeys(names, 0.5))
    drawn = {chart.name: chart for chart in plots.charts(run.build())}
    for name, axis in (("gradient-flow", "y"), ("dead-units", "y"), ("activations", "x")):
        rows = drawn[name].data[0][axis]
        assert len(set(rows)) == len(rows) == min(len(names), len(rows)) <= ROWS, name
    for name in ("gradient-norms", "update-ratio"):
        legend = [trace["name"] for trace in drawn[name].data if trace.get("showlegend", True)]
        assert len(set(legend)) == len(legend) > 5, name
    assert np.shape(drawn["gradient-flow"].data[0]["z"])[0] == len(drawn["gradient-flow"].data[0]["y"])
