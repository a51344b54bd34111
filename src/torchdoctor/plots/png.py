"""Pixels as a PNG in a data: URI, which pages, notebooks and Plotly show without a request."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

KINDS = {1: 0, 3: 2, 4: 6}
"""PNG's own numbers for grey, coloured, and coloured pixels that may be clear, by how many numbers a pixel has."""


def picture_uri(pixels: NDArray[np.uint8]) -> str:
    """Of rows x columns (grey), or rows x columns x 3, or x 4 where the last says how opaque it is."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    height, width = pixels.shape[:2]
    kind = KINDS[pixels.shape[2] if pixels.ndim == 3 else 1]
    rows = np.ascontiguousarray(pixels, np.uint8).reshape(height, -1)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
