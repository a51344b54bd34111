"""Gradients and weights: norms on many steps, all statistics on fewer, histograms rarely."""

from __future__ import annotations

import math
from dataclasses import replace
from time import thread_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals, stats
from torchdoctor.attach.ceiling import HISTOGRAMS, NORMS, STATISTICS, units_of
from torchdoctor.attach.guard import contained
from torchdoctor.facts import ParameterFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.ownership import library_of_parameters

HISTOGRAM_GROWTH = 2.0
"""Histograms are taken at steps that double."""
MODELS_DESCRIBED = 32
"""Models whose parameters are described whether they train now or not."""
NONFINITE = signals.STATISTICS.index("nonfinite")
SPREAD_STEPS = frozenset((0, 1, 2, 5, 12, 20))
"""Early steps at which the spread between units is measured; symmetric units show at once."""


class TensorProbe:
    """Reads p.grad and p of what an optimizer holds, at the moment of its update."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._histogram_at = 1.0
        self._columns: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {}
        self._described: dict[str, ParameterFact] = {}
        self._turn = 0
        """part of the parameters that is measured next, where all of them are too many for one step"""
        self._unmeasured: dict[str, frozenset[str]] = {}
        """of each optimizer, parameters with gradients that cannot be measured: their NaN is not the gradient's own"""

    def chosen(self, key: str, optimizer: Optimizer) -> tuple[list[Tensor], tuple[str, ...]]:
        """The parameters to measure, with their names."""
        held = [p for g in optimizer.param_groups for p in g["params"]]
        identity = tuple(map(id, held))
        known = self._columns.get(key)
        if known is None or known[0] != identity:
            names = tuple(self._context.names.name_of(p) or "" for p in held)
            known = self._columns[key] = (identity, names)
        pairs = [(p, n) for p, n in zip(held, known[1], strict=True) if n and self._context.names.chosen(n)]
        return [p for p, _ in pairs], tuple(n for _, n in pairs)

    def forget_columns(self) -> None:
        """Parameters without a name may have got one: a model was found."""
        self._columns.clear()

    def forget_names(self) -> None:
        """Parameters were renamed."""
        self.forget_columns()
        current = {name for name, _ in self._context.names.parameters()}
        for name in [n for n in self._described if n not in current]:
            self._context.record.fact(replace(self._described.pop(name), renamed=True), self._context.step, name)

    @contained("tensors: look_norms")
    def look_norms(self, key: str, optimizer: Optimizer, many: bool, scale: float = 1.0) -> None:
        """L2 norms of gradients by parameter, and their total."""
        parameters, names = self.chosen(key, optimizer)
        units = units_of(parameters)
        if not self._context.ceiling.fits(NORMS, units):
            return
        start = thread_time()
        self._look_norms(key, parameters, names, many, scale)
        self._context.ceiling.learn(NORMS, units, thread_time() - start)

    def _look_norms(self, key: str, parameters: list[Tensor], names: tuple[str, ...], many: bool, scale: float) -> None:
        pairs = [(p.grad, n) for p, n in zip(parameters, names, strict=True) if p.grad is not None]
        if not pairs:
            return
        step, record = self._context.step, self._context.record
        columns = tuple(n for _, n in pairs)
        total_key = key if many else ""

        def arrived(norms: NDArray[Any]) -> None:
            norms = norms.astype(np.float32) / scale
            record.matrix(step, columns, {signals.GRADIENT_L2.name: norms})
            if unmeasured := self._unmeasured.get(key):
                norms = norms[[name not in unmeasured for name in columns]]
            record.scalar(signals.GRADIENT_GLOBAL_L2.name, step, total(norms), total_key)

        self._context.read(stats.norms([g for g, _ in pairs]), arrived)

    @contained("tensors: look_all")
    def look_all(self, key: str, optimizer: Optimizer, many: bool, scale: float = 1.0) -> None:
        """Every statistic of gradients and weights."""
        every, names = self.chosen(key, optimizer)
        ceiling, units = self._context.ceiling, units_of(every)
        parts = ceiling.parts_of(STATISTICS, units)
        if not every or not 0 < parts <= len(every):
            return
        at, self._turn = self._turn % parts, self._turn + 1
        parameters, names, units = every[at::parts], names[at::parts], units / parts
        start = thread_time()
        self._look_part(key, parameters, names, many, scale, is_whole=parts == 1)
        ceiling.learn(STATISTICS, units, thread_time() - start)
        if (self._context.step >= self._histogram_at or not self._context.step) and ceiling.fits(HISTOGRAMS, units):
            self._histogram_at = max(self._context.step * HISTOGRAM_GROWTH, 1.0)
            start = thread_time()
            self._look_histograms(parameters, names)
            ceiling.learn(HISTOGRAMS, units, thread_time() - start)

    def _look_part(
        self,
        key: str,
        parameters: list[Tensor],
        names: tuple[str, ...],
        many: bool,
        scale: float,
        is_whole: bool,
    ) -> None:
        """Norms of all parameters together are written only if all of them are measured."""
        step, record = self._context.step, self._context.record
        total_key = key if many else ""
        for parameter, name in zip(parameters, names, strict=True):
            reason = stats.unsupported(parameter)
            if reason:
                self._context.unsupported[name] = reason
        graded = [(p.grad, n) for p, n in zip(parameters, names, strict=True) if p.grad is not None]
        if graded:
            columns = tuple(n for _, n in graded)

            def gradients(rows: NDArray[Any]) -> None:
                rows = rescaled(rows, scale)
                record.matrix(step, columns, split(rows, "gradient"))
                self._report_nonfinite("gradient", columns, rows, step)
                unmeasured = np.flatnonzero(np.isnan(rows[:, NONFINITE]))
                self._unmeasured[key] = frozenset(columns[i] for i in unmeasured)
                if is_whole:
                    record.scalar(signals.GRADIENT_GLOBAL_L2.name, step, total(whole_norms(rows)), total_key)

            self._context.read(stats.summarize([g for g, _ in graded]), gradients)

        def weights(rows: NDArray[Any]) -> None:
            record.matrix(step, names, split(rows.astype(np.float32), "weight"))
            self._report_nonfinite("weight", names, rows, step)
            if is_whole:
                record.scalar(signals.WEIGHT_GLOBAL_L2.name, step, total(whole_norms(rows)), total_key)

        self._context.read(stats.summarize([stats.detached(p) for p in parameters]), weights)
        if step in SPREAD_STEPS:
            self._look_spread(parameters, names)

    def _report_nonfinite(self, role: str, columns: tuple[str, ...], rows: NDArray[Any], step: int) -> None:
        counts = rows[:, NONFINITE]
        for i in np.flatnonzero(counts > 0):
            self._context.nonfinite(role, columns[i], int(counts[i]), step)

    def _look_spread(self, parameters: list[Tensor], names: tuple[str, ...]) -> None:
        pairs = [(p, n) for p, n in zip(parameters, names, strict=True) if p.dim() >= 2 and p.grad is not None]
        if not pairs:
            return
        step, record = self._context.step, self._context.record
        columns = tuple(n for _, n in pairs)
        spread = [stats.unit_spread(stats.detached(p)) for p, _ in pairs]
        gradient_spread = [stats.unit_spread(p.grad) for p, _ in pairs if p.grad is not None]

        def arrived(both: NDArray[Any]) -> None:
            both = both.astype(np.float32)
            values = {signals.WEIGHT_UNIT_SPREAD.name: both[0], signals.GRADIENT_UNIT_SPREAD.name: both[1]}
            record.matrix(step, columns, values)

        self._context.read(torch.stack([torch.stack(spread), torch.stack(gradient_spread)]), arrived)

    def _look_histograms(self, parameters: list[Tensor], names: tuple[str, ...]) -> None:
        step, record = self._context.step, self._context.record
        graded = [(p.grad, n) for p, n in zip(parameters, names, strict=True) if p.grad is not None]
        for role, tensors, columns in (
            ("gradient", [g for g, _ in graded], tuple(n for _, n in graded)),
            ("weight", [stats.detached(p) for p in parameters], names),
        ):
            if tensors:
                self._context.read(
                    stats.histograms(tensors),
                    lambda counts, role=role, columns=columns: record.histogram(step, role, columns, counts),
                )

    @contained("tensors: describe")
    def describe(self, orders: dict[str, int]) -> None:
        """Write a fact for every named parameter; `orders` holds their places in the forward pass. Of a search through
        many models, those are described that train now."""
        names = self._context.names
        trained = {id(p) for _, o in names.live_optimizers() for group in o.param_groups for p in group["params"]}
        for number, (model_name, model) in enumerate(names.live_models()):
            if number >= MODELS_DESCRIBED and not any(id(p) in trained for p in model.parameters()):
                continue
            types = {id(m): type(m).__name__ for m in model.modules()}
            owners = {id(p): id(m) for m in model.modules() for p in m._parameters.values() if p is not None}
            libraries = library_of_parameters(model)
            for parameter in model.parameters():
                name = names.name_of(parameter)
                if name is not None:
                    owner = types.get(owners.get(id(parameter), 0), model_name)
                    self._write_fact(parameter, name, owner, orders, libraries.get(id(parameter)))
        described = {id(p) for _, m in self._context.names.live_models() for p in m.parameters()}
        for name, parameter in self._context.names.parameters():
            if id(parameter) not in described:
                self._write_fact(parameter, name, "", orders)

    def _write_fact(
        self, parameter: Tensor, name: str, module_type: str, orders: dict[str, int], library: str | None = None
    ) -> None:
        fact = ParameterFact(
            name=name,
            shape=list(parameter.shape),
            dtype=str(parameter.dtype).removeprefix("torch."),
            device=str(parameter.device),
            module=name.rpartition(".")[0],
            module_type=module_type,
            order=orders.get(name),
            library=library,
        )
        if self._described.get(name) == fact:
            return
        self._described[name] = fact
        self._context.record.fact(fact, self._context.step, name)


def rescaled(rows: NDArray[Any], scale: float) -> NDArray[np.float32]:
    """Statistics of gradients that still carry a scaler's factor, without it."""
    rows = rows.astype(np.float32)
    if scale != 1.0:
        sized = [i for i, name in enumerate(signals.STATISTICS) if name in ("l2", "mean", "std", "absmax", "absmean")]
        rows[:, sized] /= scale
    return rows


def split(rows_TK: NDArray[np.float32], role: str) -> dict[str, NDArray[np.float32]]:
    return {f"{role}.{name}": rows_TK[:, k] for k, name in enumerate(signals.STATISTICS)}


def whole_norms(rows_TK: NDArray[Any]) -> NDArray[Any]:
    """Of the tensors that were measured: NaN where an element is not finite, since `l2` is over the others alone."""
    counts = rows_TK[:, NONFINITE]
    empty = (counts == 0) & np.isnan(rows_TK[:, 0])
    norms = np.where(counts > 0, np.nan, np.where(empty, 0.0, rows_TK[:, 0]))
    return norms[~np.isnan(counts)]


def total(norms_T: NDArray[Any]) -> float:
    """The norm of all of them together. NaN or Inf where one of them is, and NaN where there is none: not 0, which
    would say that there is no gradient."""
    if not len(norms_T):
        return math.nan
    if np.isinf(norms_T).any():
        return math.inf
    return float(np.sqrt((norms_T.astype(np.float64) ** 2).sum()))
