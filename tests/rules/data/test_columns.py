"""Columns of one value: rounding gives them a spread, which nothing may be divided by."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, detect
from torchdoctor.facts import TRAIN, InputsFact
from torchdoctor.findings import Finding
from torchdoctor.instruments.serving.trained import read_trained
from torchdoctor.rules.data.columns import is_constant, varies
from torchdoctor.rules.data.unnormalized_inputs import look


@pytest.mark.parametrize(
    ("low", "high", "dtype", "constant"),
    [
        (0.37, 0.37, "float32", True),
        (0.37, 0.37 + 6e-8, "float32", True),
        (0.37, 0.371, "float32", False),
        (-1e-9, 1e-9, "float32", False),
        (0.0, 0.0, "float32", True),
        (1.0, 1.0 + 1e-7, "float64", False),
        (100.0, 100.1, "float16", True),
        (3.0, 3.0, "uint8", True),
        (3.0, 4.0, "uint8", False),
        (float("nan"), float("nan"), "float32", False),
        (float("inf"), float("-inf"), "float32", False),
    ],
)
def test_constant_up_to_rounding(low: float, high: float, dtype: str, constant: bool) -> None:
    assert bool(is_constant([low], [high], dtype)[0]) is constant
    assert bool(is_constant([low], [high], f"torch.{dtype}")[0]) is constant


def test_moments_that_rounding_leaves() -> None:
    assert varies([1.0, 1.0, 0.0, 5.0], [1.2e-7, 0.1, 1e-9, float("nan")]).tolist() == [False, True, True, False]


def batches(values_NF: np.ndarray) -> RunBuilder:
    """Looks as a recorder makes them, where single precision gives the first column a standard deviation."""
    builder = RunBuilder(40)
    for step, batch in enumerate(np.array_split(values_NF.astype(np.float32), 8)):
        std = batch.astype(np.float64).std(0)
        std[0] = 1.2e-7 * abs(float(batch[0, 0]))
        builder.fact(
            InputsFact(
                *(TRAIN, "input", list(batch.shape), "float32"),
                *(float(batch.mean()), float(batch.std()), float(batch.min()), float(batch.max())),
                feature_dim=1,
                feature_mean=batch.mean(0).tolist(),
                feature_std=std.tolist(),
                feature_low=batch.min(0).tolist(),
                feature_high=batch.max(0).tolist(),
            ),
            step,
        )
    return builder


def test_no_rule_scales_a_constant_column() -> None:
    values = np.random.default_rng(0).normal(size=(512, 6))
    values[:, 0] = -0.99999
    run = batches(values).build()
    scale = look(run)
    assert scale is not None and scale.spread < 2
    assert read_trained(run).spread[0] == 0
    assert not [f for f in detect(run, "unnormalized-inputs") if isinstance(f, Finding)]
