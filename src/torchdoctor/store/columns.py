"""Arrow arrays from NumPy and back by their buffers, so that pandas is not imported into a training.

`pyarrow.array` and `Array.to_numpy` import it wherever it is installed, which takes half a second and may fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers of one dimension, without copying them where they lie side by side."""
    if values.dtype == np.bool_:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, data])


def from_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Texts or numbers as a column of this type."""
    if kind != pa.utf8():
        return from_numpy(np.array(values, kind.to_pandas_dtype()))
    texts = [text.encode() for text in values]
    ends = np.fromiter(accumulate(map(len, texts), initial=0), np.int32, len(texts) + 1)
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def numbers(array: pa.Array) -> NDArray[Any]:
    """A column of numbers without nulls, without copying."""
    kind = np.dtype(array.type.to_pandas_dtype())
    data = array.buffers()[1] if len(array) else b""
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize if len(array) else 0)


def vectors(array: pa.Array) -> NDArray[Any]:
    """A fixed-size list column without nulls as (rows, size), without copying."""
    size = array.type.list_size
    flat = numbers(array.values)
    return flat[array.offset * size : (array.offset + len(array)) * size].reshape(len(array), size)
