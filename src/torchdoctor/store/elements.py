"""A captured tensor's bytes as numpy numbers, without torch: numpy has no bfloat16 and no float8."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from torchdoctor.store.captured import Raw

PLAIN = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "C64": "<c8",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
"""Elements that numpy has, by safetensors' words."""


def to_numpy(raw: Raw) -> NDArray[np.generic]:
    """The same numbers; half precision as float32, and of complex ones their magnitude."""
    if raw.dtype == "BF16":
        values = (raw.data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    elif raw.dtype == "F8_E5M2":  # the upper half of a float16
        values = (raw.data.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    elif raw.dtype == "F8_E4M3":
        values = float8_values()[raw.data]
    else:
        values = raw.data.view(PLAIN[raw.dtype])
        values = np.abs(values) if raw.dtype == "C64" else values.astype(np.float32) if raw.dtype == "F16" else values
    return values.reshape(raw.shape)


@cache
def float8_values() -> NDArray[np.float32]:
    """What each byte of float8 with four bits of exponent stands for; it has no infinity, and two NaN."""
    byte = np.arange(256)
    exponent, fraction = (byte >> 3) & 15, (byte & 7) / 8.0
    size = np.where(exponent == 0, 2.0**-6 * fraction, 2.0 ** (exponent - 7.0) * (1 + fraction))
    values = np.where(byte & 128, -size, size)
    values[(byte & 127) == 127] = np.nan
    return values.astype(np.float32)
