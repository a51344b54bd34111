"""A moment of the training loop on the clock: waiting for data, forward, backward, update, validation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.repeats.updating import step
from torchdoctor.instruments.batches import apart

WARM = 3
"""Updates before the clock runs: allocators, autotuning and the optimizer's state come with the first."""
MOST = 200
RARE = 10.0
"""Times the median, beyond which a step tells of an accident."""
LEAST = 5
"""Steps below which the first of a second walk through the loader are waited for."""


@dataclass
class Times:
    """In seconds, one for each step (for an update, each update)."""

    starts: list[float] = field(default_factory=list)
    """from asking the loader for an iterator to its first batch"""
    wait: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    update: list[float] = field(default_factory=list)

    @property
    def waited(self) -> float:
        """A mean: with workers some batches come at once and others after a while."""
        return mean(self.wait)

    @property
    def start(self) -> float:
        """Beyond what another batch takes: workers start, an order is drawn."""
        return max(0.0, mean(self.starts) - self.waited)

    @property
    def data_known(self) -> bool:
        return bool(self.wait)

    def step(self, accumulation: int) -> float:
        """From batch to batch. A mean, since what takes long now and then (others on the machine, the collector) does
        so in the run, too; what took far longer than usual counts as rare."""
        parts = (self.forward, self.backward)
        return self.waited + sum(_limited(part) for part in parts) + _limited(self.update) / max(1, accumulation)


def time_training(bench: Bench, seconds: float) -> Times:
    times = Times()
    warm = bench.train[0]
    for _ in range(WARM):
        _step(bench, warm, Times(), True)
    begun = perf_counter()
    with apart(bench.train_loader):
        while perf_counter() - begun < seconds and len(times.forward) < MOST:
            came = len(times.forward)
            _walk(bench, times, begun, seconds)
            if len(times.forward) == came:
                break
    return times


def _walk(bench: Bench, times: Times, begun: float, seconds: float) -> None:
    """Once through the loader, or until the time is over."""
    size = max(1, bench.accumulation)
    for number, (batch, wait) in enumerate(_batches(bench, times)):
        if wait is not None and number:
            times.wait.append(wait)
        _step(bench, batch, times, (len(times.forward) + 1) % size == 0)
        spent = perf_counter() - begun
        if (spent > seconds and len(times.wait or times.forward) >= LEAST) or len(times.forward) >= MOST:
            return


def time_validation(bench: Bench, seconds: float) -> float | None:
    """A batch of it, its data included; None where there is none."""
    if not bench.validation:
        return None
    modes = [(module, module.training) for module in bench.model.modules()]
    bench.model.eval()
    taken: list[float] = []
    source = bench.validation_loader if bench.validation_loader is not None else bench.validation
    try:
        with torch.set_grad_enabled(_needs_graph(bench)), apart(source):
            begun = at = perf_counter()
            for batch in source:
                bench.subject.loss(batch)
                _wait_for_device(bench)
                now = perf_counter()
                taken.append(now - at)
                at = now
                if now - begun > seconds:
                    break
    finally:
        for module, training in modes:
            module.training = training
    return mean(taken[1:] or taken)


def _needs_graph(bench: Bench) -> bool:
    """The step takes the gradient of what it computes, also in validation: then it fails without a graph alone."""
    try:
        with torch.no_grad():
            bench.subject.loss(bench.validation[0])
    except RuntimeError:
        return True
    return False


def _batches(bench: Bench, times: Times) -> Iterator[tuple[Any, float | None]]:
    """Each with the time that was waited for it; None where there is no loader to wait for."""
    if bench.train_loader is None:
        yield from ((batch, None) for batch in bench.train)
        return
    at = perf_counter()
    first = True
    iterator = iter(bench.train_loader)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        wait = perf_counter() - at
        if first:
            times.starts.append(wait)
            first = False
        yield batch, wait
        at = perf_counter()


def _step(bench: Bench, batch: Any, times: Times, updates: bool) -> None:
    scaler = next((s for s in bench.scalers if s.is_enabled()), None)
    begun = perf_counter()
    loss = bench.subject.loss(batch)
    _wait_for_device(bench)
    times.forward.append(-begun + (begun := perf_counter()))
    (scaler.scale(loss) if scaler is not None else loss).backward()
    _wait_for_device(bench)
    times.backward.append(-begun + (begun := perf_counter()))
    if not updates:
        return
    for optimizer in bench.optimizers:
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            step(optimizer, lambda optimizer=optimizer: _gradients_again(bench, batch, optimizer))
        optimizer.zero_grad()
    if not bench.optimizers:
        bench.model.zero_grad()
    _wait_for_device(bench)
    times.update.append(perf_counter() - begun)


def _gradients_again(bench: Bench, batch: Any, optimizer: Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss = bench.subject.loss(batch)
    loss.backward()
    return loss.detach()


def _wait_for_device(bench: Bench) -> None:
    kind = bench.subject.device.type
    if kind == "cuda":
        torch.cuda.synchronize(bench.subject.device)
    elif kind == "mps":
        torch.mps.synchronize()


def _limited(values: list[float]) -> float:
    most = RARE * middle(values)
    return mean([min(value, most) for value in values])


def middle(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else 0.0
