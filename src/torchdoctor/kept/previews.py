"""Some samples of a captured batch as pictures: those that a finding points at, and a few others beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchdoctor.errors import CaptureError
from torchdoctor.kept.batches import Leaf, batches_of, has_inputs, is_of_the_step, labels_in, leaves_of, samples_in
from torchdoctor.plots.chart import Chart
from torchdoctor.plots.samples import Group, draw_samples
from torchdoctor.report.text import count, listed, size
from torchdoctor.store.captured import Capture
from torchdoctor.store.elements import to_numpy

MARKED, OTHERS = 6, 6
"""Samples that are shown of those that are pointed at, and of the others: a row each."""
MOST_BYTES = 48_000_000
"""That are read for one preview, however large the batch is."""


def draw_preview(capture: Capture, marked: Sequence[int], name: str) -> Chart:
    """`marked`: indices in the batch. CaptureError where there is nothing that can be drawn; it says why."""
    batches = batches_of(capture)
    if not batches:
        raise CaptureError("the batch is not in this capture")
    if not has_inputs(capture):
        raise CaptureError("no loader gives the step's inputs, so they were not seen; a replay makes them again")
    leaves = leaves_of(capture, batches[-1])
    samples = samples_in(leaves)
    if samples is None:
        raise CaptureError("the batch has no tensor with an entry a sample")
    held, row = samples.entry.shape[0], (samples.entry.stop - samples.entry.start) // samples.entry.shape[0]
    if row > MOST_BYTES or not row:
        raise CaptureError(f"a sample has {size(row)}: not drawn")
    places = [i for i in marked if 0 <= i < held][:MARKED] if is_of_the_step(capture) else []
    others = [i for i in range(min(held, OTHERS + MARKED)) if i not in places][:OTHERS]
    most = max(1, MOST_BYTES // row)
    groups = [("where it broke", places[:most]), ("others", others[: most - len(places[:most])])]
    if not places:
        groups = [(f"the batch's first {len(others)}" if held > len(others) else "the batch", others[:most])]
    labels = labels_in(leaves, samples)
    drawn = [_group(capture, samples, labels, heading, rows) for heading, rows in groups if rows]
    return draw_samples(name, _title(capture, samples, places), drawn)


def _group(capture: Capture, samples: Leaf, labels: Leaf | None, heading: str, rows: list[int]) -> Group:
    values: Any = to_numpy(capture.read_rows(samples.name, rows))
    told: Any = to_numpy(capture.read_rows(labels.name, rows)).reshape(-1) if labels is not None else [None] * len(rows)
    captions = [
        f"#{row}" + (f"\nlabel {int(label)}" if label is not None else "")
        for row, label in zip(rows, told, strict=True)
    ]
    return Group(heading, [np.asarray(value) for value in values], captions)


def _title(capture: Capture, samples: Leaf, places: list[int]) -> str:
    held = f"{count(samples.entry.shape[0], 'sample')} in the batch of step {capture.step:,}"
    if not places:
        return held
    named = listed([str(i) for i in places], most=MARKED)
    return f"{held}; the first value that is not finite is in {'sample' if len(places) == 1 else 'samples'} {named}"
