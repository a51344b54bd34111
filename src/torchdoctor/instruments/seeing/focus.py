"""What a saliency map says in a sentence: the border, a corner, one column, one channel, one token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchdoctor.instruments.seeing.samples import Array
from torchdoctor.plots.saliency_maps import picture_map
from torchdoctor.plots.sample_kinds import IMAGE, SERIES, TABLE, TOKENS, channels_axis, curves_of

BORDER = 0.06
"""Of the shorter side: where frames, padding and stamps are, and seldom what a picture shows."""
BESIDE = 3.0
"""Times its share of the area that a border or corner must hold of the saliency to be named."""
MUCH = 0.3
"""And of all saliency."""
CORNER = 4
"""A corner is a quarter of each side: watermarks and stamps fit in."""
MOST = 0.5
"""Of the saliency, that one column, channel or token carries to be named alone."""


@dataclass(frozen=True)
class Focus:
    """Shares of the saliency."""

    text: str
    shares: dict[str, float]
    """by name: columns, channels or tokens, or places of a picture; the largest first"""


def find_focus(saliency: Array, kind: str, names: Sequence[str], padded: Array | None) -> Focus:
    size = np.abs(np.nan_to_num(np.asarray(saliency, np.float64)))
    if not size.sum() > 0:
        return Focus("", {})
    if kind == IMAGE:
        return _of_picture(size)
    if kind == SERIES:
        return _of_curves(curves_of(size))
    return _of_parts(size.ravel(), kind, names, padded)


def _of_parts(size: Array, kind: str, names: Sequence[str], padded: Array | None) -> Focus:
    share = size / size.sum()
    order = np.argsort(-share, kind="stable")
    word = "column" if kind == TABLE else "token"
    known = [f"{word} {i} ({names[i]})" if i < len(names) else f"{word} {i}" for i in range(len(share))]
    shares = {known[i]: float(share[i]) for i in order[:10]}
    if kind == TOKENS and padded is not None and len(padded) == len(share) and share[padded].sum() > 0.01:
        return Focus(f"{share[padded].sum():.0%} of the saliency lies on padding", shares)
    if len(share) == 1:
        return Focus(f"{known[0]} carries all of the saliency", shares)
    if share[order[0]] > MOST:
        return Focus(f"{known[order[0]]} carries {share[order[0]]:.0%} of the saliency", shares)
    half = int(np.searchsorted(np.cumsum(share[order]), MOST)) + 1
    first = ", ".join(known[i] for i in order[: min(half, 3)])
    few = f"{half} of {len(share)} {word}s carry half of the saliency, {first}{' ...' if half > 3 else ''} first"
    return Focus(few, shares)


def _of_curves(size_CT: Array) -> Focus:
    by_channel, by_step = size_CT.sum(1) / size_CT.sum(), size_CT.sum(0) / size_CT.sum()
    shares = {f"channel {i}": float(by_channel[i]) for i in np.argsort(-by_channel, kind="stable")[:10]}
    steps = len(by_step)
    last = max(1, round(steps * 0.1))
    ends = {f"the last {last} of {steps} steps": by_step[-last:], f"the first {last} of {steps} steps": by_step[:last]}
    shares |= {name: float(part.sum()) for name, part in ends.items()}
    for name, part in ends.items():
        if part.sum() > MOST and steps > 1:
            return Focus(f"{name[:1].upper()}{name[1:]} carry {part.sum():.0%} of the saliency", shares)
    if len(by_channel) > 1 and by_channel.max() > 1 - MOST / len(by_channel):
        return Focus(f"Channel {by_channel.argmax()} carries {by_channel.max():.0%} of the saliency", shares)
    order = np.argsort(-by_step, kind="stable")
    half = int(np.searchsorted(np.cumsum(by_step[order]), MOST)) + 1
    peak = int(by_step.argmax())
    return Focus(f"Half of the saliency lies in {half} of {steps} steps, most at step {peak}", shares)


def _of_picture(size: Array) -> Focus:
    heat = picture_map(size)
    heat = heat / (heat.sum() or 1.0)
    rows, columns = heat.shape
    wide = max(1, round(BORDER * min(rows, columns)))
    inner = heat[wide : rows - wide, wide : columns - wide]
    border, area = 1.0 - inner.sum(), 1.0 - inner.size / heat.size
    high, broad = max(1, rows // CORNER), max(1, columns // CORNER)
    corners = {
        "upper left": heat[:high, :broad],
        "upper right": heat[:high, -broad:],
        "lower left": heat[-high:, :broad],
        "lower right": heat[-high:, -broad:],
    }
    name, corner = max(corners.items(), key=lambda item: item[1].sum())
    shares = {"border": float(border), **{f"{k} corner": float(v.sum()) for k, v in corners.items()}, **_channels(size)}
    order = np.sort(heat.ravel())[::-1]
    half = (int(np.searchsorted(np.cumsum(order), MOST)) + 1) / heat.size
    told = [(k, v) for k, v in shares.items() if k.startswith("channel") and v > 1 - MOST / 3]
    if corner.sum() > MUCH and corner.sum() > BESIDE * corner.size / heat.size:
        text = (
            f"{corner.sum():.0%} of the saliency lies in the {name} corner ({corner.size / heat.size:.0%} of the area)"
        )
    elif border > MUCH and border > min(BESIDE * area, (1 + area) / 2):
        text = f"{border:.0%} of the saliency lies in the outer {_pixels(wide)} ({area:.0%} of the area)"
    elif told:
        text = f"{told[0][0][:1].upper()}{told[0][0][1:]} carries {told[0][1]:.0%} of the saliency"
    else:
        row, column = np.unravel_index(int(heat.argmax()), heat.shape)
        text = f"Half of the saliency lies in {half:.0%} of the pixels, most at row {row}, column {column}"
    return Focus(text, shares)


def _pixels(wide: int) -> str:
    return "pixel" if wide == 1 else f"{wide} pixels"


def _channels(size: Array) -> dict[str, float]:
    axis = channels_axis(size)
    if axis is None or size.shape[axis] == 1:
        return {}
    by_channel = np.moveaxis(size, axis, 0).reshape(size.shape[axis], -1).sum(1) / size.sum()
    return {f"channel {i}": float(v) for i, v in enumerate(by_channel)}
