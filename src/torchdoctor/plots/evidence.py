"""Which picture shows what a finding is about."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart

BY_SIGNAL = (
    ("activation.dead", "dead-units"),
    ("activation", "activations"),
    ("gradient.global", "gradient-norm"),
    ("clip", "gradient-norm"),
    ("gradient", "gradient-flow"),
    ("update", "update-ratio"),
    ("weight.", "weight-norms"),
    ("group.lr", "learning-rate"),
    ("scheduler", "learning-rate"),
    ("time", "time"),
    ("rate.", "time"),
    ("memory", "memory"),
    ("graph.", "memory"),
    ("predictions", "classes"),
    ("samples", "calibration"),
    ("accuracy", "loss"),
    ("confidence", "calibration"),
    ("loss", "loss"),
)
"""Beginnings of the names of signals and facts, the longer first."""
BY_NAME = {
    "abnormal-distribution": "weight-distribution",
    "dead-relu": "dead-units",
    "missing-zero-grad": "gradient-norm",
    "unintended-gradient-scale": "gradient-norm",
    "vanishing-gradients": "gradient-flow",
    "exploding-gradients": "gradient-flow",
    "weight-norm-growth": "weight-norms",
    "class-imbalance": "classes",
    "majority-class-collapse": "classes",
    "weak-slice": "classes",
    "miscalibrated": "calibration",
    "noisy-labels": "worst",
    "input-bound": "time",
    "clipping-too-tight": "gradient-norm",
    "scheduler-misuse": "learning-rate",
    "learning-rate-decayed-too-early": "learning-rate",
}
BY_FAMILY = {"throughput": "time", "evaluation": "loss", "hyperparameters": "loss", "procedure": "loss"}


def picture_of(finding: Finding, charts: Mapping[str, Chart]) -> Chart | None:
    """The chart that shows it best, of those there are; the loss where nothing is nearer."""
    wanted = [BY_NAME.get(finding.name)]
    if finding.name == "exploding-gradients" and _ends_unseen(charts.get("gradient-flow")):
        wanted.insert(0, "gradient-norm")
    for evidence in finding.evidence:
        wanted += [chart for start, chart in BY_SIGNAL if (evidence.signal or "").startswith(start)][:1]
    wanted += [BY_FAMILY.get(finding.family), "loss"]
    return next((charts[name] for name in wanted if name in charts), None)


def _ends_unseen(flow: Chart | None) -> bool:
    """Whether the last look has no finite gradient: then the map shows the end of it, and hardly the explosion."""
    return flow is not None and not np.isfinite(flow.data[0]["z"][:, -1]).any()
