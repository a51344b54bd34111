"""Unusual runs: nothing is raised, nothing is warned of, the page gets valid JSON, and what a title says is true."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import plots
from torchdoctor.facts import ModuleFact, PredictionsFact, SamplesFact
from torchdoctor.plots.chart import pack, percent
from torchdoctor.plots.layer import DRAWN as OF_A_LAYER
from torchdoctor.plots.pairs import draw_pairs
from torchdoctor.signals import (
    ACTIVATION,
    CLIP_NORM,
    CLIP_THRESHOLD,
    GRADIENT,
    GRADIENT_GLOBAL_L2,
    GRADIENT_L2,
    LEARNING_RATE,
    LOSS_TRAIN,
    LOSS_VALIDATION,
    MEMORY_DEVICE,
    MEMORY_HOST,
    TIME_BACKWARD,
    TIME_DATA,
    TIME_STEP,
    UPDATE_RATIO,
)

pytestmark = pytest.mark.filterwarnings("error")

N, LONG = 300, 100_000
AT, FAR = np.arange(N), np.arange(LONG)
LAYERS = [f"l{i}.weight" for i in range(4)]
NAN_FROM_100, INF_FROM_100 = np.where(AT < 100, 1.0, np.nan), np.where(AT < 100, 1.0, np.inf)
FALLING = np.linspace(2, 0.1, N)
NOISY = 0.005 * np.random.default_rng(0).normal(size=N)


def builder(steps: int = N) -> RunBuilder:
    return RunBuilder(steps).parameters(dict.fromkeys(LAYERS, (16, 16)))


def layers(*values: Any) -> dict[str, Any]:
    return dict(zip(LAYERS, values if len(values) > 1 else values * len(LAYERS), strict=False))


def once(values: Any, at: int, value: float) -> np.ndarray:
    found = np.array(values, np.float64)
    found[at] = value
    return found


def everything(values: Any, steps: int = N) -> RunBuilder:
    """The same values as every signal."""
    run = builder(steps).fact(ModuleFact("a", "ReLU")).fact(ModuleFact("b", "ReLU"))
    for signal in (LOSS_TRAIN, GRADIENT_GLOBAL_L2, CLIP_NORM, CLIP_THRESHOLD, MEMORY_HOST, TIME_STEP, TIME_DATA):
        run.scalar(signal, values)
    run.scalar(LEARNING_RATE, values, "0.0").scalar(LOSS_VALIDATION, [values[0], values[-1]], steps=[0, steps - 1])
    for signal in (GRADIENT_L2, UPDATE_RATIO, GRADIENT["nonfinite"]):
        run.matrix(signal, layers(values))
    for kind in ("dead", "saturated", "std", "nonfinite"):
        run.matrix(ACTIVATION[kind], {"a": values, "b": 0.0})
    return run


def classes(support: list[int], correct: list[int], predicted: list[int]) -> RunBuilder:
    return builder().fact(PredictionsFact("validation", len(support), sum(support), support, correct, predicted))


def samples(loss: float = 1.0, losses: tuple[float, ...] = (), **more: Any) -> RunBuilder:
    worst = [{"index": i, "loss": value} for i, value in enumerate(losses)]
    return builder().fact(SamplesFact("validation", "classes", 100, loss, 2, worst=worst, **more))


def scalar(signal: Any, values: Any, key: str = "", steps: int = N) -> RunBuilder:
    return builder(steps).scalar(signal, values, key)


def clip(norms: Any, steps: int = N) -> RunBuilder:
    return builder(steps).scalar(CLIP_NORM, norms).scalar(CLIP_THRESHOLD, 1.0)


def validated(values: list[float]) -> RunBuilder:
    steps = [50 * i for i in range(1, len(values) + 1)]
    return scalar(LOSS_TRAIN, FALLING).scalar(LOSS_VALIDATION, values, steps=steps)


CASES: list[tuple[Callable[[], RunBuilder], str, str, str]] = [
    # loss
    (lambda: everything(np.array([3.0, 2.0, 1.0]), 3), "loss", "from 3 to 1", "nan"),
    (lambda: everything(np.array([3.0]), 1), "loss", "from 3 to 3", "nan"),
    (lambda: everything(NAN_FROM_100), "loss", "breaks at step 100", "falling"),
    (lambda: everything(INF_FROM_100), "loss", "breaks at step 100", "falling"),
    (
        lambda: scalar(LOSS_TRAIN, once(FALLING, 100, np.nan)),
        "loss",
        "falling, from 1.99 to 0.11, NaN or Inf at step 100",
        "from step",
    ),
    (
        lambda: scalar(LOSS_TRAIN, once(NAN_FROM_100, 50, np.nan)),
        "loss",
        "breaks at step 100 (NaN or Inf), and was so at 1",
        "",
    ),
    (
        lambda: scalar(LOSS_TRAIN, once(np.linspace(2, 1, LONG), 50_000, np.nan), steps=LONG),
        "loss",
        "falling, from 1.99 to 1.01",
        "breaks",
    ),
    (lambda: scalar(LOSS_TRAIN, np.nan), "loss", "never a finite number", "from"),
    (lambda: scalar(LOSS_TRAIN, np.linspace(-1, -50, N)), "loss", "falling, from -1.25 to -49.8", "nan"),
    (
        lambda: scalar(LOSS_TRAIN, once(NOISY + 2.35, 1, 8768.0)),
        "loss",
        "flat, about 2.35, 1 spike (8,768 at step 1)",
        "from",
    ),
    (lambda: scalar(LOSS_TRAIN, once(NOISY + 0.7, 0, 0.94)), "loss", "flat, about 0.7", "0.94 to"),
    (
        lambda: scalar(LOSS_TRAIN, np.append([2.35, 8768, 5288, 2005, 977, 220], 2.35 + NOISY[6:])),
        "loss",
        "flat, about 2.35, after 3,646 in the first steps, 1 spike (8,768 at step 1)",
        "from",
    ),
    (
        lambda: scalar(LOSS_TRAIN, 0.1 * np.random.default_rng(0).lognormal(0, 0.5, N)),
        "loss",
        "flat, about 0.0962 (mostly 0.0478 to 0.222)",
        "from",
    ),
    (
        lambda: scalar(LOSS_TRAIN, once(once(1 + FALLING + NOISY, 150, 9.0), 200, 5.0)),
        "loss",
        "falling, from 2.99 to 1.11, 2 spikes (the highest 9 at step 150)",
        "up to",
    ),
    (
        lambda: scalar(LOSS_TRAIN, np.where(AT < 100, np.exp(0.2 * AT), np.nan)),
        "loss",
        "breaks at step 100 (NaN or Inf), up to 4.0e8 at step 99",
        "",
    ),
    (lambda: scalar(LOSS_TRAIN, np.linspace(-1, -50, N)), "loss", "to -49.8", "up to"),
    (lambda: scalar(LOSS_TRAIN, np.geomspace(1e300, 1e298, N)), "loss", "falling", "NaN"),
    (lambda: scalar(LOSS_TRAIN, FALLING, "D").scalar(LOSS_TRAIN, FALLING[::-1], "G"), "loss", "loss G: rising", "more"),
    (lambda: validated([1.0]), "loss", "validation loss 1 at step 50", "best"),
    (lambda: validated([1.0, 0.5, np.nan]), "loss", "best at the end (0.5), NaN or Inf from step 150 on", ""),
    (
        lambda: validated([1.0, np.nan, 0.5, 0.7]),
        "loss",
        "best at step 150 (0.5), then 0.7, NaN or Inf at step 100",
        "",
    ),
    (lambda: validated([1.0, 0.5, 0.500001]), "loss", "best at the end (0.5)", "then"),
    (lambda: validated([np.nan, np.nan]), "loss", "validation loss was never a finite number", "best"),
    (lambda: builder().scalar(LOSS_VALIDATION, [1.0], steps=[10]), "loss", "Validation loss 1 at step 10", ""),
    # gradients by layer
    (lambda: everything(np.zeros(N)), "gradient-flow", "No gradient reaches 4 of 4 layers", "l0"),
    (lambda: everything(INF_FROM_100), "gradient-flow", "not finite", "reach"),
    (
        lambda: builder().matrix(GRADIENT_L2, layers(1.0, 1e-6, 1e-6, 1.0)),
        "gradient-flow",
        "1.0e6-fold between layers: least in l1.weight",
        "reach all",
    ),
    (
        lambda: builder().matrix(GRADIENT_L2, layers(1.0, 1e-6, 1e-6, 100.0)),
        "gradient-flow",
        "1.0e8-fold between layers",
        "on the way",
    ),
    (
        lambda: builder().matrix(GRADIENT_L2, layers(np.inf, 1.0, 1.0, 1.0)),
        "gradient-flow",
        "No finite gradient in 1 of 4 layers (l0.weight)",
        "factor",
    ),
    (
        lambda: builder().matrix(GRADIENT_L2, layers(np.nan, 1.0, 1.0, 0.0)),
        "gradient-flow",
        "1 of 4 layers (l0.weight), and none reaches 1 of 4 layers (l3.weight)",
        "factor",
    ),
    (
        lambda: builder().matrix(GRADIENT_L2, layers(1.0)).matrix(GRADIENT["nonfinite"], layers(0.0, 3.0, 0.0, 0.0)),
        "gradient-flow",
        "No finite gradient in 1 of 4 layers (l1.weight)",
        "reach all",
    ),
    # updates
    (
        lambda: builder().matrix(UPDATE_RATIO, layers(1e-3, 10.0, 1e-3, 1e-9)),
        "update-ratio",
        "more than usual in 1 of 4 layers (l1.weight), less than usual in 1 of 4 layers (l3.weight)",
        "as usual",
    ),
    (lambda: builder().matrix(UPDATE_RATIO, layers(1e-3)), "update-ratio", "as usual", "more"),
    (
        lambda: builder().matrix(UPDATE_RATIO, layers(1e-3, np.inf, 1e-3, 1e-3)),
        "update-ratio",
        "no finite number in 1 of 4 layers (l1.weight)",
        "as usual",
    ),
    # the norm and clipping
    (
        lambda: scalar(GRADIENT_GLOBAL_L2, np.where(AT < 200, 1.0, 0.0)),
        "gradient-norm",
        "and is 0 from step 200 on",
        "NaN",
    ),
    (lambda: scalar(GRADIENT_GLOBAL_L2, NAN_FROM_100), "gradient-norm", "and is NaN or Inf from step 100 on", "is 0"),
    (
        lambda: scalar(GRADIENT_GLOBAL_L2, once(np.ones(N), 7, np.inf)),
        "gradient-norm",
        "and is NaN or Inf at step 7",
        " on",
    ),
    (
        lambda: scalar(GRADIENT_GLOBAL_L2, once(np.ones(LONG), 777, 1e6), steps=LONG),
        "gradient-norm",
        "is about 1, up to 1.0e6 at about step",
        "",
    ),
    (
        lambda: scalar(GRADIENT_GLOBAL_L2, once(np.geomspace(0.6, 0.01, N), 150, 2567)),
        "gradient-norm",
        "falls from 0.584 to 0.0103, up to 2,567 at step 150",
        "",
    ),
    (
        lambda: scalar(GRADIENT_GLOBAL_L2, np.where(AT < 100, 1.0, 0.0)).matrix(
            GRADIENT["nonfinite"], layers(np.where(AT < 100, 0.0, 7.0))
        ),
        "gradient-norm",
        "and is NaN or Inf from step 100 on",
        "is 0",
    ),
    (lambda: clip(5.0), "gradient-norm", "acts in 100% of the steps", "about 100%"),
    (lambda: clip(0.5), "gradient-norm", "acts in 0% of the steps", "less"),
    (lambda: clip(once(np.full(N, 0.5), 5, 5.0)), "gradient-norm", "acts in less than 1% of the steps", "0%"),
    (lambda: clip(np.where(FAR % 100 == 0, 100.0, 0.5), LONG), "gradient-norm", "acts in 1% of the steps", "64%"),
    (lambda: clip(INF_FROM_100), "gradient-norm", "acts in 67% of the steps", "nan"),
    # the learning rate
    (lambda: scalar(LEARNING_RATE, 0.0, "0.0"), "learning-rate", "stays at 0", "runs"),
    (
        lambda: scalar(LEARNING_RATE, NAN_FROM_100, "0.0"),
        "learning-rate",
        "stays at 1, and is NaN or Inf from step 100 on",
        "way",
    ),
    (lambda: scalar(LEARNING_RATE, np.nan, "0.0"), "learning-rate", "never a finite number", "nan"),
    (
        lambda: scalar(LEARNING_RATE, 0.1, "0.0").scalar(LEARNING_RATE, FALLING, "1.0"),
        "learning-rate",
        "group 0.0 stays at 0.1; of group 1.0 runs from 2 to 0.1",
        "",
    ),
    (
        lambda: scalar(LEARNING_RATE, 0.1, "0.0").scalar(LEARNING_RATE, 0.1, "0.1"),
        "learning-rate",
        "The learning rate stays at 0.1",
        "group",
    ),
    (
        lambda: scalar(LEARNING_RATE, once(np.linspace(0.1, 0, LONG), 50_001, 0.3), "0.0", LONG),
        "learning-rate",
        "from 0.1 to 0, by way of 0.3 (about step 5",
        "e-5",
    ),
    # activations
    (
        lambda: builder().matrix(ACTIVATION["std"], {"a": 0.0, "b": 1.0}),
        "activations",
        "a puts out one and the same number",
        "even",
    ),
    (
        lambda: builder().matrix(ACTIVATION["std"], {"a": 1.0, "b": 1e-4}),
        "activations",
        "10,000-fold between layers: least in b",
        "even",
    ),
    (lambda: everything(np.full(N, 0.3)), "activations", "The output of a is not finite", "even"),
    (
        lambda: builder().matrix(ACTIVATION["dead"], {"a": 0.001, "b": 0.0}),
        "dead-units",
        "a: less than 1% of its units",
        " 0%",
    ),
    # predictions
    (lambda: classes([10, 10, 10], [0, 0, 0], [10, 10, 10]), "classes", "no prediction is right", "equally well"),
    (
        lambda: classes([35, 34, 35, 35, 32, 29], [17, 15, 10, 16, 9, 15], [34] * 6),
        "classes",
        "found in 28% to 52% of their samples; they have so few that chance explains it",
        "equally",
    ),
    (
        lambda: classes([3500, 3500, 3500], [1000, 1400, 1500], [3500] * 3),
        "classes",
        "Classes are found in 29% (class 0) to 43% (class 2) of their samples",
        "equally",
    ),
    (
        lambda: classes([100, 100, 100], [80, 83, 86], [100] * 3),
        "classes",
        "All 3 classes are found about equally well (80% to 86% of their samples)",
        "chance",
    ),
    (lambda: classes([10, 10], [10, 10], [10, 10]), "classes", "All 2 classes are found equally well (100%)", "about"),
    (lambda: classes([4, 4, 400], [2, 4, 300], [4, 4, 400]), "classes", "chance explains it", "Class 0 is"),
    (lambda: classes([990, 10], [985, 1], [990, 10]), "classes", "the classes on average in 55%", "together"),
    (
        lambda: samples(bins=[[50, 0.55, 0.85], [50, 0.95, 0.65]], ece=0.3),
        "calibration",
        "at times too high and at times too low",
        "believed",
    ),
    (lambda: samples(bins=[[50, 0.55, 0.56], [50, 0.95, 0.94]], ece=0.01), "calibration", "can be believed", "off"),
    (lambda: samples(losses=(9.0, np.nan)), "worst", "The loss of 1 of 100 samples is NaN or Inf", "nan"),
    (lambda: samples(-1.0, (-0.5, -0.6)), "worst", "a loss of -0.5 down to -0.6", "%"),
    (lambda: samples(np.nan, (3.0, 2.0)), "worst", "a loss of 3 down to 2", "%"),
    (lambda: samples(1.0, (9.0, 1.0)), "worst", "carry 10% of the loss", "nan"),
    # costs
    (lambda: builder(3).scalar(MEMORY_HOST, [1e9, 1e9, 1e9]), "memory", "stays level (now 1,000 MB)", "nan"),
    (lambda: builder(2).scalar(MEMORY_HOST, [1e9, 2e9]), "memory", "grows by 1,000 MB (now 2,000 MB)", "nan"),
    (lambda: scalar(MEMORY_HOST, np.linspace(4e9, 1e9, N)), "memory", "falls by 2,258 MB (now 1,000 MB)", "level"),
    (lambda: scalar(MEMORY_HOST, once(np.full(N, 1e9), 150, 3e10)), "memory", "peak of 30,000 MB at step 150", "grows"),
    (
        lambda: scalar(MEMORY_DEVICE, once(np.full(LONG, 1e9), 60_000, 5e10), steps=LONG),
        "memory",
        "peak of 50,000 MB at about step 60",
        "grows",
    ),
    (lambda: scalar(MEMORY_DEVICE, np.linspace(1e5, 3e5, N)), "memory", "grows by 0.151 MB (now 0.3 MB)", " 0 MB"),
    (
        lambda: scalar(TIME_STEP, once(np.full(N, 0.1), 5, 0.0)).scalar(TIME_BACKWARD, 0.08),
        "time",
        "100 ms, most of it backward (80%)",
        "inf",
    ),
]


@pytest.mark.parametrize(("make", "name", "said", "unsaid"), CASES, ids=[f"{c[1]}: {c[2]}" for c in CASES])
def test_what_titles_say_of_unusual_runs(make: Callable[[], RunBuilder], name: str, said: str, unsaid: str) -> None:
    run = make().build()
    drawn = {chart.name: chart for chart in plots.charts(run)}
    json.dumps([chart.to_json() for chart in drawn.values()], allow_nan=False)
    title = drawn[name].title
    assert said in title
    assert not unsaid or unsaid not in title, title
    assert not any(word in chart.title for chart in drawn.values() for word in ("nan", "inf%", "inf ")), title


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, 1e300, 1e-300])
@pytest.mark.parametrize("steps", [1, 2, 3, 9, N])
@pytest.mark.parametrize("begin", [0, 1, 200])
def test_nothing_is_raised_and_nothing_warned_of(value: float, steps: int, begin: int) -> None:
    with np.errstate(over="ignore"):  # columns are recorded as float32
        run = everything(np.where(np.arange(steps) < begin, 1.0, value), steps).build()
    drawn = [*plots.charts(run), *draw_pairs(run, run, ("a", "b"))]
    drawn += [chart for draw in OF_A_LAYER.values() for layer in ("l0", "a") if (chart := draw(run, layer)) is not None]
    json.dumps([chart.to_json() for chart in drawn], allow_nan=False)
    assert not any("nan" in chart.title for chart in drawn)


def test_one_class_and_steps_without_a_time_have_no_chart() -> None:
    assert not plots.charts(classes([10], [10], [10]).build())
    assert not plots.charts(scalar(TIME_STEP, 0.0).scalar(TIME_BACKWARD, 1e-4).build())
    assert not plots.charts(scalar(MEMORY_HOST, np.nan).build())


def test_where_a_loss_is_no_number_is_marked_once_or_from_there_on() -> None:
    (chart,) = plots.charts(scalar(LOSS_TRAIN, once(FALLING, 100, np.nan)).build())
    marks = {trace["name"]: list(trace["x"]) for trace in chart.data if trace["mode"] == "markers"}
    assert marks == {"NaN or Inf": [100]}
    smoothed = next(trace["y"] for trace in chart.data if "smoothed" in trace["name"])
    assert np.isnan(smoothed).sum() == 1, "one NaN blanks one point"


def test_extremes_of_merged_rates_are_drawn() -> None:
    (chart,) = plots.charts(scalar(LEARNING_RATE, once(np.full(LONG, 0.1), 20_001, 0.3), "0.0", LONG).build())
    assert max(float(np.max(trace["y"])) for trace in chart.data) == pytest.approx(0.3)


def test_two_runs_of_which_one_broke() -> None:
    runs = [scalar(LOSS_TRAIN, values).build() for values in (FALLING, NAN_FROM_100)]
    assert draw_pairs(*runs, ("a", "b"))[0].title.endswith("a 0.11, b NaN")


def test_huge_numbers_stay_numbers() -> None:
    large, usual = pack(np.array([1e300, np.inf])), pack(np.array([1e30, np.nan]))
    assert large["dtype"] == "f8" and usual["dtype"] == "f4"
    assert pack(np.array([2**40]))["dtype"] == "f8" and pack(np.array([2**20]))["dtype"] == "i4"


def test_a_share_is_none_or_all_only_if_it_is() -> None:
    assert [percent(v) for v in (0.0, 1e-9, 0.5, 0.9999, 1.0)] == ["0%", "less than 1%", "50%", "more than 99%", "100%"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.linspace(10, 40, N), "The gradient's norm grows from 10.2 to 39.8"),
        (np.random.default_rng(0).lognormal(0, 0.7, N), "The gradient's norm is about"),
        (np.where(AT < N // 2, 1.0, 1.5), "The gradient's norm is about"),
    ],
)
def test_a_norm_that_goes_one_way_all_along_is_told_so(values: np.ndarray, said: str) -> None:
    (chart,) = plots.charts(scalar(GRADIENT_GLOBAL_L2, values).build())
    assert chart.title.startswith(said)
