"""Arrow arrays are the same as pyarrow makes them, without the pandas that it would import for that."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from processes import run_python
from torchdoctor.store.columns import from_numpy, from_values, numbers, vectors

RECORDING = """
import importlib.abc, sys
from pathlib import Path

class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            raise RuntimeError("imported")

sys.meta_path.insert(0, Refusing())
import numpy as np
from torchdoctor import signals
from torchdoctor.facts import HealthFact
from torchdoctor.store.reader import open_run
from torchdoctor.store.writer import Recorder
recorder = Recorder.create(Path("run"), {})
for step in range(200):
    recorder.scalar("loss.train", step, 1.0)
    recorder.matrix(step, ("a", "b"), {"grad.norm": np.ones(2, np.float32)})
    recorder.histogram(step, "grad.histogram", ("a", "b"), np.ones((2, 8)))
recorder.fact(HealthFact(overhead=0.0, budget=0.01), 3)
recorder.close("finished")
run = open_run(Path("run"))
print(recorder.damage, dict(recorder.dropped), run.steps, len(run.scalar(signals.LOSS_TRAIN).values))
"""


@pytest.mark.parametrize(
    "values",
    [
        np.arange(7),
        np.arange(14, dtype=np.float32)[::2],
        np.zeros(0),
        np.array([1.5, np.nan]),
        np.arange(11) % 3 == 0,
    ],
    ids=lambda v: f"{v.dtype} {len(v)}",
)
def test_columns_of_numpy(values: np.ndarray) -> None:
    made = from_numpy(values)
    made.validate(full=True)
    assert made.type == pa.array(values).type
    assert np.array_equal(made.to_numpy(zero_copy_only=False), values, equal_nan=values.dtype == float)
    if values.dtype != bool:
        assert np.array_equal(numbers(made), values, equal_nan=True)
        assert np.array_equal(numbers(made[1:3]), values[1:3], equal_nan=True)


def test_columns_of_values() -> None:
    for values, kind in ((("a", "", "é\0"), pa.utf8()), ((), pa.utf8()), ((3, -1), pa.int32()), ((0.5,), pa.float64())):
        made = from_values(values, kind)
        made.validate(full=True)
        assert made.equals(pa.array(values, kind))
    with pytest.raises(ValueError, match="surrogate"):
        from_values(("\ud800",), pa.utf8())


def test_vectors_of_a_slice() -> None:
    rows = pa.FixedSizeListArray.from_arrays(from_numpy(np.arange(12.0)), 3)
    assert vectors(rows[1:3]).tolist() == [[3, 4, 5], [6, 7, 8]]


def test_a_recording_imports_no_pandas(tmp_path) -> None:
    done = run_python("-c", RECORDING, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("None {} 200 200\n", "")
