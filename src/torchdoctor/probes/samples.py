"""Predictions sample by sample, where a loss call shows both: losses, ranks, confidence, what samples are like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.facts import TEMPERATURES, TRAIN, VALIDATION
from torchdoctor.probes.context import Context
from torchdoctor.probes.loss_calls import LossCall
from torchdoctor.probes.predictions import CLASSES_LIMIT, scores_of
from torchdoctor.probes.slices import CLASSES, MULTILABEL, REGRESSION, Samples, summarise

ROWS_A_CALL = 4096
ELEMENTS_A_CALL = 1_000_000
RESCALED_ELEMENTS = 10_000
"""Rows of one call, and elements, beyond which every so many are looked at."""
ROWS_A_PASS = 20_000
"""Rows of one validation pass that are kept until it ends."""
SITES_A_PASS = 4
FEATURES_SLICED = 32
"""A table of at most so many columns is sliced by each of them, a wider one (pixels in a row) by their mean and
spread."""
OVERALL = ("mean of the inputs", "spread of the inputs")
WINDOW_LOOKS, WINDOW_ROWS = 20, 160
"""A window of training looks ends with either: the model changes, and early errors say little about later ones."""
SQUARED, ABSOLUTE = ("mse_loss",), ("l1_loss", "smooth_l1_loss", "huber_loss")
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
NUMBERS = 5
"""loss, label, predicted, confidence, rank of the label; of a regression: loss, target, prediction, error, squared
error of repeating the input's last value (NaN where there is none); of many labels: loss, and the shares of them that
are true, named, both, and 1 where all targets are 0 or 1"""


@dataclass
class Rows:
    """What one loss call shows, still on its device: (N, NUMBERS + attributes)."""

    task: str
    values: Tensor
    classes: int | None
    attributes: tuple[str, ...]
    rescaled: Tensor | None
    whole: bool


@contained("samples: observe")
def observe(call: LossCall, inputs: Tensor | None, *, closely: bool) -> Rows | None:
    """The rows of one call; with `closely` also what its samples are like and how it would score rescaled."""
    scores, labels, probabilities = scores_of(call)
    if scores is not None and labels is not None:
        if not 1 < scores.shape[-1] <= CLASSES_LIMIT:
            return None
        return _classes(call, scores, labels, probabilities, inputs if closely else None, closely)
    if call.function in (*SQUARED, *ABSOLUTE, *BINARY):
        return _numbers(call, inputs, closely)
    return None


def _classes(
    call: LossCall, scores: Tensor, labels: Tensor, probabilities: bool, inputs: Tensor | None, closely: bool
) -> Rows:
    count, classes = scores.shape
    stride = max(-(-count // ROWS_A_CALL), -(-scores.numel() // ELEMENTS_A_CALL))
    if stride > 1:
        scores, labels = scores[::stride], labels[::stride]
    logs = scores.float().clamp_min(1e-12).log() if probabilities else scores.float()
    known = (labels >= 0) & (labels < classes)
    at = labels.clamp(0, classes - 1)
    picked = logs.gather(-1, at.unsqueeze(-1))
    total = logs.logsumexp(-1)
    best, predicted = logs.max(-1)
    rank = (logs > picked).sum(-1)
    label = torch.where(known, at, torch.full_like(at, -1))
    columns = [total - picked.squeeze(-1), label, predicted, (best - total).exp(), rank]
    values = torch.stack([c.float() for c in columns], 1)
    single = call.input.dim() in (1, 2) and count == call.samples and (inputs is None or len(inputs) == count)
    names, extra = describe_inputs(inputs, count) if single and inputs is not None else ((), None)
    if extra is not None:
        values = torch.cat([values, extra[::stride].to(values.device)], 1)
    rescaled = _rescaled(logs, at, known) if closely else None
    return Rows(CLASSES, values, classes, names, rescaled, single and stride == 1)


def _rescaled(logs: Tensor, at: Tensor, known: Tensor) -> Tensor:
    """Number of rows, and their summed loss at every temperature; of many rows every so many."""
    stride = max(1, -(-logs.numel() // RESCALED_ELEMENTS))
    logs, at, known = logs[::stride], at[::stride].unsqueeze(-1), known[::stride]
    picked = logs.gather(-1, at).squeeze(-1)
    cold_T = _coldness(logs.device)
    loss_TN = (logs * cold_T[:, None, None]).logsumexp(-1) - picked * cold_T[:, None]
    sums_T = torch.where(known, loss_TN, torch.zeros_like(loss_TN)).sum(1)
    return torch.cat([known.sum().float().unsqueeze(0), sums_T])


@cache
def _coldness(device: torch.device) -> Tensor:
    return torch.tensor([1 / t for t in TEMPERATURES], device=device)


def _numbers(call: LossCall, inputs: Tensor | None, closely: bool) -> Rows | None:
    source, target = call.input.detach(), call.target
    if target is None or target.shape != source.shape or source.dim() == 0 or not source.numel():
        return None
    rows = source.shape[0]
    stride = max(1, -(-rows // ROWS_A_CALL), -(-source.numel() // ELEMENTS_A_CALL))
    source = source[::stride].reshape(-(-rows // stride), -1).float()
    shape = target.shape
    target = target.detach()[::stride].reshape(source.shape).float()
    error = source - target
    if call.function in BINARY:
        how = torch.nn.functional.binary_cross_entropy_with_logits
        source = source.clamp(1e-7, 1 - 1e-7).logit() if call.function == BINARY[0] else source
        loss, task = how(source, target, reduction="none").mean(1), MULTILABEL
    else:
        loss, task = error.square().mean(1), REGRESSION
    if task == MULTILABEL:
        named, true = source > 0, target > 0.5
        hard = ((target == 0) | (target == 1)).all(1)
        shares = [c.float().mean(1) for c in (true, named, named & true)]
        columns = [loss, *shares, hard.float()]
    else:
        columns = [loss, target.mean(1), source.mean(1), error.abs().mean(1), _repeated(inputs, target, shape, stride)]
    values = torch.stack(columns, 1)
    names, extra = describe_inputs(inputs, rows) if closely and inputs is not None else ((), None)
    if extra is not None:
        values = torch.cat([values, extra[::stride].to(values.device)], 1)
    return Rows(task, values, None, names, None, stride == 1 and source.shape[1] == 1)


def _repeated(inputs: Tensor | None, target: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """Squared error of naming the last value of the input window (of the series that does it best) again, for each step
    of the horizon; where the target is the input one step on, of naming what is seen at each step."""
    unknown = torch.full_like(target[:, 0], float("nan"))
    if inputs is None or inputs.dim() not in (2, 3) or len(inputs) != shape[0] or _is_token(inputs):
        return unknown
    if inputs.device != target.device:
        return unknown
    seen = inputs.detach()[::stride].float()
    seen = seen.unsqueeze(-1) if seen.dim() == 2 else seen
    steps, series = seen.shape[1:]
    if target.shape[1] == seen[0].numel() and steps > 1:
        ahead = target.reshape(seen.shape)
        return torch.where((ahead[:, :-1] == seen[:, 1:]).all(), (seen - ahead).square().mean((1, 2)), unknown)
    if len(shape) == 3 and shape[-1] == series > 1:
        return (seen[:, -1:] - target.reshape(-1, *shape[1:])).square().mean((1, 2))
    if (len(shape) == 3 and shape[-1] > 1) or target.shape[1] > steps:
        return unknown
    errors = (seen[:, -1].unsqueeze(1) - target.unsqueeze(-1)).square().mean(1)
    return errors.index_select(1, errors.mean(0).argmin().reshape(1)).squeeze(1)


def describe_inputs(inputs: Tensor, count: int) -> tuple[tuple[str, ...], Tensor | None]:
    """What each sample is like: brightness and contrast of a picture, length of a sequence, columns of a table."""
    inputs = inputs.detach()
    if inputs.dim() < 2 or inputs.shape[0] != count or inputs.is_complex():
        return (), None
    if inputs.dim() == 4 and not _is_token(inputs):
        flat = inputs.reshape(count, -1).float()
        return ("brightness", "contrast"), torch.stack([flat.mean(1), flat.std(1)], 1)
    if _is_token(inputs) and inputs.dim() == 2:
        return ("length",), _length(inputs == _padding(inputs))
    flat = inputs.reshape(count, -1).float()
    if inputs.dim() == 3:
        length = _length((inputs == 0).all(-1))
        return ("length", *OVERALL), torch.cat([length, flat.mean(1, keepdim=True), flat.std(1, keepdim=True)], 1)
    if inputs.dim() == 2 and inputs.shape[1] <= FEATURES_SLICED:
        return tuple(f"feature {i}" for i in range(inputs.shape[1])), flat
    if inputs.dim() == 2 and not _is_token(inputs):
        return OVERALL, torch.stack([flat.mean(1), flat.std(1)], 1)
    return (), None


def _is_token(inputs: Tensor) -> bool:
    return inputs.dtype in (torch.int64, torch.int32, torch.int16)


def _padding(inputs: Tensor) -> Tensor:
    """The token of the longest constant end of any row."""
    ends = (inputs == inputs[:, -1:]).flip(1).long().cumprod(1).sum(1)
    return inputs[:, -1].gather(0, ends.argmax().unsqueeze(0))


def _length(padded: Tensor) -> Tensor:
    """Positions before the padding at the end of each row."""
    kept = padded.flip(1).long().cumprod(1).sum(1)
    return (padded.shape[1] - kept).float().unsqueeze(1)


class SamplesProbe:
    """Collects rows: over each validation pass, and over windows of training looks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._passes: dict[tuple[str, str, str], Samples] = {}
        self._train: dict[tuple[str, str], Samples] = {}
        self._first_loader: str | None = None

    @contained("samples: train")
    def train(self, site: str, rows: Rows) -> None:
        step = self._context.step
        kept = self._kept(self._train, (site, rows.task), rows)
        if kept is None:
            return

        def arrived(array: NDArray[Any]) -> None:
            kept.add(array)
            kept.rows += len(array)
            if kept.batches >= WINDOW_LOOKS or kept.rows >= WINDOW_ROWS:
                self.flush_train(step)

        self._context.read(rows.values, arrived)

    def prefer(self, loader: str) -> None:
        """The loader whose passes are the validation; others are kept apart."""
        self._first_loader = loader

    @contained("samples: validation")
    def validation(self, loader: str, site: str, rows: Rows) -> None:
        if self._first_loader is None:
            self._first_loader = loader
        kept = self._kept(self._passes, (loader, site, rows.task), rows)
        if kept is None:
            return
        if kept.rows > ROWS_A_PASS:
            kept.whole = False
            return
        kept.rows += len(rows.values)
        self._context.read(rows.values, kept.add)
        if rows.rescaled is not None:
            self._context.read(rows.rescaled, kept.add_rescaled)

    def passed_over(self, loader: str, site: str) -> None:
        """A batch of the pass was not looked at."""
        for (kept_loader, kept_site, _), kept in self._passes.items():
            if (kept_loader, kept_site) == (loader, site):
                kept.whole = False

    def _kept(self, among: dict[Any, Samples], key: Any, rows: Rows) -> Samples | None:
        kept = among.get(key)
        if kept is None and len(among) < SITES_A_PASS:
            kept = among[key] = Samples(rows.task, rows.classes, rows.attributes)
        if kept is None or (kept.task, kept.classes) != (rows.task, rows.classes):
            return None
        kept.whole &= rows.whole
        return kept

    @contained("samples: flush_train")
    def flush_train(self, step: int) -> None:
        windows, self._train = self._train, {}
        for (site, task), kept in windows.items():
            fact = summarise(kept, TRAIN, site)
            if fact is not None:
                self._context.record.fact(fact, step, f"{TRAIN}/{site}/{task}")

    @contained("samples: end_validation")
    def end_validation(self, step: int, later: Callable[[Callable[[], None]], None]) -> None:
        passes, self._passes = self._passes, {}

        def write() -> None:
            for (loader, site, task), kept in passes.items():
                fact = summarise(kept, VALIDATION, site)
                if fact is not None and loader == self._first_loader:
                    self._context.record.fact(fact, step, f"{VALIDATION}/{site}/{task}")

        later(write)


def as_rows(predictions: NDArray[Any], targets: NDArray[Any]) -> tuple[str, int | None, NDArray[np.float64]]:
    """What `doctor.log_predictions` was given: class scores against labels, labels against labels, or numbers."""
    targets = targets.reshape(len(targets), -1)[:, 0] if targets.ndim > 1 else targets
    if predictions.ndim == 2 and predictions.shape[1] > 1:
        return _rows_of_scores(predictions.astype(np.float64), targets.astype(np.int64))
    flat = predictions.reshape(-1)
    whole = np.issubdtype(targets.dtype, np.integer) or targets.dtype == bool
    if whole and (np.issubdtype(flat.dtype, np.integer) or flat.dtype == bool):
        wrong = (flat != targets).astype(np.float64)
        columns = [wrong, targets, flat, np.full(len(flat), np.nan), wrong]
        return CLASSES, int(max(flat.max(), targets.max())) + 1, np.stack([np.asarray(c, float) for c in columns], 1)
    if whole and flat.min() >= 0 and flat.max() <= 1 and targets.max() <= 1:
        return _rows_of_scores(np.stack([1 - flat, flat], 1).astype(np.float64), targets.astype(np.int64))
    error = flat.astype(np.float64) - targets.astype(np.float64)
    columns = [np.square(error), targets, flat, np.abs(error), np.zeros(len(flat))]
    return REGRESSION, None, np.stack([np.asarray(c, float) for c in columns], 1)


def _rows_of_scores(scores: NDArray[Any], labels: NDArray[Any]) -> tuple[str, int | None, NDArray[np.float64]]:
    likely = scores.min() >= 0 and bool(np.allclose(scores.sum(1), 1, atol=1e-3))
    logs = np.log(np.maximum(scores, 1e-12)) if likely else scores
    total = np.logaddexp.reduce(logs, axis=1)
    picked = logs[np.arange(len(logs)), np.clip(labels, 0, logs.shape[1] - 1)]
    columns = [total - picked, labels, logs.argmax(1), np.exp(logs.max(1) - total), (logs > picked[:, None]).sum(1)]
    return CLASSES, logs.shape[1], np.stack([np.asarray(c, float) for c in columns], 1)
