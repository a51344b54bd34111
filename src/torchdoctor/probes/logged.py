"""Predictions that the user hands over with `doctor.log_predictions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.facts import VALIDATION, PredictionsFact
from torchdoctor.probes.context import Recorder
from torchdoctor.probes.samples import as_rows
from torchdoctor.probes.slices import CLASSES, Samples, summarise

CLASSES_LIMIT = 1000


def record_predictions(record: Recorder, step: int, predictions: Any, targets: Any, groups: Any) -> None:
    given, wanted = _array("predictions", predictions), _array("targets", targets)
    if not len(wanted) or len(given) != len(wanted):
        raise UsageError(
            f"log_predictions got {len(given)} predictions for {len(wanted)} targets; it needs one target for each"
        )
    task, classes, rows = as_rows(given, wanted)
    samples = Samples(task, classes, groups=_groups(groups, len(wanted)))
    samples.add(rows)
    fact = summarise(samples, VALIDATION, "log_predictions", logged=True)
    if fact is None:
        return
    record.fact(fact, step, f"{VALIDATION}/logged")
    if task == CLASSES and classes is not None and classes <= CLASSES_LIMIT:
        label, guess = rows[:, 1].astype(int), rows[:, 2].astype(int)
        counts = [np.bincount(v, minlength=classes).tolist() for v in (label, label[label == guess], guess)]
        record.fact(PredictionsFact(VALIDATION, classes, len(rows), *counts), step, f"{VALIDATION}/logged")


def _array(name: str, values: Any) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().to("cpu")
        values = values.float().numpy() if values.is_floating_point() else values.numpy()
    array = np.asarray(values)
    if array.ndim == 0 or array.ndim > 2 or not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise UsageError(
            f"log_predictions takes {name} as numbers of shape (N,) or (N, C), not {array.dtype} of shape {array.shape}"
        )
    return array


def _groups(groups: Any, count: int) -> dict[str, list[Any]]:
    named: Mapping[str, Any] = groups if isinstance(groups, Mapping) else {} if groups is None else {"group": groups}
    found = {}
    for name, values in named.items():
        found[str(name)] = values.tolist() if hasattr(values, "tolist") else list(values)
        if len(found[str(name)]) != count:
            raise UsageError(
                f"log_predictions got {len(found[str(name)])} values of group {name!r} for {count} samples"
            )
    return found
