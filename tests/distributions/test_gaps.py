"""Statistics over measurements with gaps: NumPy's numbers without NumPy's warnings."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import torchdoctor
from torchdoctor.distributions import gaps

NAMES = ("nanmedian", "nanmean", "nanstd", "nanmin", "nanmax")
FLOATS = st.sampled_from([np.nan, -1.0, 0.0, 0.5, 3.0])


@pytest.mark.parametrize("name", NAMES)
@given(
    values=hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, min_side=0, max_side=4), elements=FLOATS),
    whole=st.booleans(),
)
def test_numbers_are_those_of_numpy_and_nothing_is_warned_of(name: str, values: Any, whole: bool) -> None:
    axis = None if whole else values.ndim - 1
    theirs: Callable[..., Any] = getattr(np, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = getattr(gaps, name)(values, axis=axis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = theirs(values, axis=axis)
        except ValueError:  # NumPy has no least of nothing
            expected = np.full(np.shape(ours), np.nan)
    np.testing.assert_allclose(ours, expected)


def test_what_runs_in_the_training_process_never_calls_numpy_functions_that_warn() -> None:
    package = Path(torchdoctor.__file__).parent
    files = [p for part in ("rules", "probes", "report", "plots") for p in (package / part).rglob("*.py")]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
                assert any(k.arg == "initial" for k in node.keywords), f"{file}:{node.lineno}: {node.func.attr}"
