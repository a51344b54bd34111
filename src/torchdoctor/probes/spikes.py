"""The batch behind a loss that stands far above those before it: how large its samples and targets are, and which."""

from __future__ import annotations

import torch
from torch import Tensor

from torchdoctor import stats
from torchdoctor.attach.guard import contained
from torchdoctor.facts import SpikeFact
from torchdoctor.probes.context import Context

SETTLING = 10
"""Losses before which nothing is called high."""
MEMORY = 0.1
"""Weight of the newest loss in the running mean and deviation."""
HIGH = 6.0
"""Mean absolute changes (over the root of two) above the running mean: 4.8 standard deviations of normal noise."""
FACTOR = 1.5
LOOKS = 32
SAMPLES = 8


class LossWatch:
    """Running mean of the training loss and its change from step to step; a few float operations a step."""

    __slots__ = ("before", "count", "deviation", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.before = 0.0
        self.deviation = 0.0

    def note(self, value: float) -> bool:
        """Whether this loss stands far above the others; only then it is not counted among them."""
        count = self.count
        if count == 0:
            self.mean = self.before = value
        mean = self.mean
        away = value - mean
        if count >= SETTLING and away > HIGH * self.deviation and value > FACTOR * abs(mean):
            return True
        self.count = count + 1
        weight = MEMORY if count > 20 else 1.0 / (count + 1)
        change = value - self.before
        self.before = value
        self.mean = mean + weight * away
        self.deviation += weight * (0.7 * (change if change > 0 else -change) - self.deviation)
        return False

    def get_used(self) -> None:
        """A high loss has been looked at: what stays high is no spike."""
        self.mean += MEMORY * HIGH * self.deviation
        self.deviation += MEMORY * HIGH * self.deviation


class SpikeProbe:
    """Describes the batch of a step with a high loss, for the first few of them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._looks = 0

    @property
    def done(self) -> bool:
        return self._looks >= LOOKS

    @contained("spikes: examine")
    def examine(self, step: int, loss: float, watch: LossWatch, inputs: list[Tensor], targets: list[Tensor]) -> None:
        """Tensors on a device are not looked at: their step is over when the loss is known."""
        self._looks += 1
        usual, noise = watch.mean, watch.deviation
        fact: dict[str, object] = {}
        first = next((t for t in inputs if t.is_floating_point() and t.dim() and t.numel()), None)
        if first is not None and first.is_cpu and stats.unsupported(first) is None:
            fact.update(_describe_inputs(first.detach()))
        target = next((t for t in targets if t.dim() and t.numel()), None)
        if target is not None and target.is_cpu and stats.unsupported(target) is None:
            fact.update(_describe_targets(target.detach()))
        self._context.record.fact(SpikeFact(loss=loss, usual=usual, noise=noise, **fact), step)  # type: ignore[arg-type]


def _describe_inputs(tensor: Tensor) -> dict[str, object]:
    rows = tensor.reshape(tensor.shape[0], -1).float()
    size_N = rows.square().mean(1).sqrt()
    largest = torch.topk(size_N, min(SAMPLES, len(size_N)))
    return {
        "input_shape": list(tensor.shape),
        "input_size": float(rows.square().mean().sqrt()),
        "input_high": float(rows.abs().max()),
        "sample_sizes": largest.values.tolist(),
        "samples": largest.indices.tolist(),
        "sample_typical": float(size_N.median()),
    }


def _describe_targets(target: Tensor) -> dict[str, object]:
    rows = target.reshape(target.shape[0], -1).abs().float()
    size_N = rows.amax(1)
    largest = torch.topk(size_N, min(SAMPLES, len(size_N)))
    return {
        "target_high": float(size_N.max()),
        "target_typical": float(rows.median()),
        "target_samples": largest.indices.tolist(),
        "target_integral": not target.is_floating_point() or bool((target == target.round()).all()),
    }
