"""What a sample is, told by its shape and type: a picture, curves over time, token ids, a row of a table, a volume."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

IMAGE, SERIES, TOKENS, TABLE = "image", "series", "tokens", "table"
KINDS = (IMAGE, SERIES, TOKENS, TABLE)
COLOURS = (3, 4)
"""Channels of a picture in colour; a fourth is its opacity."""
FEW_CHANNELS = 8
"""More curves than this in one small frame cannot be told apart, so they are drawn as a picture."""
MOST_CHANNELS = 16
"""Of an array of three axes: a shorter axis holds channels, of a volume none is so short."""
LONG = 96
"""Numbers of one axis: a longer row is a signal over time, not the columns of a table."""
TILES, FRAMES = 9, 4
"""Channels, and frames of a film, that are shown beside each other."""

Array = NDArray[Any]


def kind_of(sample: Array) -> str:
    """One of KINDS; what is nothing else is a row of numbers."""
    if sample.ndim >= 3:
        return IMAGE
    if sample.ndim == 2:
        short, long = sorted(sample.shape)
        return SERIES if short <= FEW_CHANNELS and long > short and sample.dtype.kind in "fiub" else IMAGE
    if sample.ndim == 1 and sample.dtype.kind in "iu" and sample.dtype != np.uint8:
        return TOKENS
    return SERIES if sample.ndim == 1 and sample.size > LONG else TABLE


def channels_axis(sample: Array) -> int | None:
    """Of a picture or of curves; None where there is one channel."""
    if sample.ndim == 2 and kind_of(sample) == SERIES:
        return int(np.argmin(sample.shape))
    if sample.ndim == 3:
        if sample.shape[0] in (1, *COLOURS):
            return 0
        if sample.shape[-1] in (1, *COLOURS):
            return 2
        shortest = int(np.argmin(sample.shape))
        return shortest if sample.shape[shortest] <= MOST_CHANNELS and shortest != 1 else None
    if sample.ndim == 4:  # frames of a film have theirs second; a volume has them first
        return 1 if sample.shape[1] in (1, *COLOURS) and sample.shape[0] not in (1, *COLOURS) else 0
    return None


def curves_of(sample: Array) -> Array:
    """Channels x time."""
    if sample.ndim == 1:
        return sample[None]
    return sample if channels_axis(sample) == 0 else sample.T


def pictures_of(sample: Array) -> list[Array]:
    """What is shown of it, side by side: rows x columns, or rows x columns x 3. A volume gives its middle slice."""
    if sample.ndim <= 2:
        return [np.atleast_2d(sample)]
    if sample.ndim > 4:
        return pictures_of(sample.reshape(-1, *sample.shape[-3:])[0])
    axis = channels_axis(sample)
    if sample.ndim == 4 and axis == 0:
        return pictures_of(sample[:, sample.shape[1] // 2])
    if sample.ndim == 4:
        chosen = np.unique(np.linspace(0, len(sample) - 1, min(len(sample), FRAMES)).round().astype(int))
        return [picture for at in chosen for picture in pictures_of(sample[at])]
    if axis is None:
        return [sample[len(sample) // 2]]
    planes = np.moveaxis(sample, axis, 0)
    if len(planes) in COLOURS:
        return [np.moveaxis(planes[:3], 0, -1)]
    return list(planes[:TILES])


def shown_part(sample: Array) -> str:
    """Where less is shown than there is: what."""
    if sample.ndim == 3 and (axis := channels_axis(sample)) is None:
        return f"slice {len(sample) // 2} of {len(sample)}"
    if sample.ndim == 3 and axis is not None and sample.shape[axis] > TILES:
        return f"channels 0 to {TILES - 1} of {sample.shape[axis]}"
    if sample.ndim == 4:
        axis = channels_axis(sample)
        frames = sample.shape[0 if axis == 1 else 1]
        return (
            f"slice {frames // 2} of {frames}"
            if axis == 0
            else f"{FRAMES} of {frames} frames"
            if frames > FRAMES
            else ""
        )
    return ""
