"""Outputs and targets batch by batch, brought down to what can be judged: on the device first, so that little moves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.forms import (
    BINARY,
    DECISIONS,
    LOGITS,
    MULTILABEL,
    PROBABILITIES,
    REGRESSION,
    TOKENS,
    Form,
    is_yes_or_no,
)

LEAST_PROBABILITY = 1e-12
LEAST_LOG = -100.0
"""A class that is ruled out counts as this unlikely, so that one such sample does not make the whole loss infinite."""
ELEMENTS_KEPT = 4_000_000
"""Tokens or pixels that are kept one by one; of more, every so many."""
NUMBERS_KEPT = 1 << 22
"""Scores that are kept (16 MB); of more rows, every so many. 400,000 rows of 10 classes place an AUROC to 0.001."""


class Table:
    """Columns of equal length that hold no more than so many numbers: then every second row goes, again and again."""

    def __init__(self, most: int) -> None:
        self.most, self.stride, self.seen, self.rows = most, 1, 0, 0
        self._columns: dict[str, list[NDArray[Any]]] = {}

    def pick(self, count: int, width: int = 1) -> slice:
        """Which of the next rows are wanted; ask before they are copied from a device."""
        while count * width > self.stride * self.most and count > self.stride:
            self._halve()
        first = -self.seen % self.stride
        self.seen += count
        return slice(first, None, self.stride)

    def add(self, **columns: NDArray[Any]) -> None:
        for name, values in columns.items():
            self._columns.setdefault(name, []).append(values)
        self.rows += len(next(iter(columns.values())))
        while sum(a.size for parts in self._columns.values() for a in parts) > self.most and self.rows > 1:
            self._halve()

    def _halve(self) -> None:
        self.stride *= 2
        whole = {name: np.concatenate(parts)[::2] for name, parts in self._columns.items()}
        self._columns = {name: [values] for name, values in whole.items()}
        self.rows = len(next(iter(whole.values()), ()))

    def last(self, name: str) -> NDArray[Any]:
        """As it was added last."""
        return self._columns[name][-1]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.concatenate(self._columns[name]) if name in self._columns else np.zeros(0)


@dataclass(frozen=True)
class Worst:
    """A sample of large loss."""

    index: int
    loss: float
    target: Any
    prediction: Any
    confidence: float | None = None
    position: int = 0
    """in the order of the loader: an index may be drawn more than once"""


@dataclass
class Predictions:
    """All that was predicted."""

    form: Form
    threshold: float = 0.5
    ignore_index: int = -100
    worst_kept: int = 10
    elements: Table = field(default_factory=lambda: Table(3 * ELEMENTS_KEPT))
    """label, predicted, rank of the true class: of each decision for one of many classes"""
    scores: Table = field(default_factory=lambda: Table(NUMBERS_KEPT))
    """rows of scores with their targets"""
    samples: Table = field(default_factory=lambda: Table(1 << 62))
    """loss, own_loss (of the task, not of the user), right (of numbers the absolute error), count: of every sample"""
    label_counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, 0)))
    """of several labels a sample: how often each is true, how often named, and how often both, in all rows"""
    worst: list[Worst] = field(default_factory=list)
    read: int = 0
    ignored: int = 0
    nonfinite: int = 0

    def add(self, outputs: Tensor, target: Tensor, losses: Tensor | None, indices: NDArray[np.int64]) -> None:
        """One batch; `losses` by sample, where the user's loss function gives them."""
        if outputs.shape[0] != target.shape[0]:
            raise UsageError(f"a batch has {outputs.shape[0]} outputs and {target.shape[0]} targets")
        if self.form.names_classes:
            self._add_classes(outputs, target, losses, indices)
        elif self.form.task == MULTILABEL:
            self._add_labels(outputs, target, losses, indices)
        else:
            self._add_numbers(outputs, target, losses, indices)
        self.read += target.shape[0]

    # -- one of many ------------------------------------------------------------------

    def _add_classes(self, outputs: Tensor, target: Tensor, losses: Tensor | None, indices: NDArray[np.int64]) -> None:
        count = target.shape[0]
        logs_EC, label_E, predicted_E = self._read_classes(outputs, target)
        owner_E = torch.arange(count, device=label_E.device).repeat_interleave(len(label_E) // count)
        known_E = label_E != self.ignore_index
        finite_E = torch.ones_like(known_E) if logs_EC is None else ~logs_EC.isnan().any(1)
        self.ignored += int((~known_E).sum())
        self.nonfinite += int((known_E & ~finite_E).sum())
        keep = known_E & finite_E
        label_E, predicted_E, owner_E = label_E[keep], predicted_E[keep], owner_E[keep]
        self._check_labels(label_E)
        right_E = (label_E == predicted_E).double()
        if logs_EC is not None:
            logs_EC = logs_EC[keep].clamp(min=LEAST_LOG)
            picked_E = logs_EC.gather(1, label_E[:, None])[:, 0]
            loss_E, rank_E = -picked_E.double(), (logs_EC > picked_E[:, None]).sum(1)
            confidence_E = logs_EC.gather(1, predicted_E[:, None])[:, 0].exp()
            rows = self.scores.pick(len(label_E), self.form.width)
            part = _numpy(logs_EC[rows]), _numpy(label_E[rows]), _numpy(owner_E[rows]) + self.read
            self.scores.add(scores=part[0], label=part[1], sample=part[2])
        else:
            loss_E, rank_E = 1 - right_E, (1 - right_E).long()
            confidence_E = torch.full_like(right_E, math.nan)
        rows = self.elements.pick(len(label_E))
        self.elements.add(
            label=_numpy(label_E[rows]),
            predicted=_numpy(predicted_E[rows]),
            rank=_numpy(rank_E[rows].int()),
        )
        self._add_samples(owner_E, right_E, loss_E, losses, count)
        details = {"target": label_E, "prediction": predicted_E, "confidence": confidence_E}
        self._keep_worst(indices, {} if self.form.task == TOKENS else details, owner_E)

    def _read_classes(self, outputs: Tensor, target: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Log-probabilities, labels and predictions of each element."""
        form = self.form
        if form.soft:
            target = torch.where(target.isnan().any(1), self.ignore_index, target.argmax(1))
        label_E = target.reshape(-1).long()
        if form.scores == DECISIONS:
            return None, label_E, outputs.reshape(-1).long()
        if form.class_dim is None:
            scores_E = outputs.reshape(-1).float()
            if form.scores == LOGITS:
                logs_EC = torch.stack([F.logsigmoid(-scores_E), F.logsigmoid(scores_E)], 1)
            else:
                logs_EC = torch.stack([1 - scores_E, scores_E], 1).clamp(min=LEAST_PROBABILITY).log()
        else:
            scores_EC = outputs.movedim(form.class_dim, -1).reshape(-1, form.width).float()
            if form.scores == LOGITS:
                logs_EC = scores_EC.log_softmax(1)
            elif form.scores == PROBABILITIES:
                logs_EC = scores_EC.clamp(min=LEAST_PROBABILITY).log()
            else:
                logs_EC = scores_EC
        if len(logs_EC) != len(label_E):
            raise UsageError(f"a batch has {len(logs_EC)} scores and {len(label_E)} targets, unlike the first one")
        by_threshold = form.width == 2 and (form.class_dim is None or form.task == BINARY)
        predicted_E = (logs_EC[:, 1] >= math.log(self.threshold)).long() if by_threshold else logs_EC.argmax(1)
        return logs_EC, label_E, predicted_E

    def _check_labels(self, label_E: Tensor) -> None:
        if not label_E.numel():
            return
        low, high = int(label_E.min()), int(label_E.max())
        if self.form.scores != DECISIONS and (low < 0 or high >= self.form.width):
            raise UsageError(
                f"labels go from {low} to {high}, the outputs have {self.form.width} classes (0 to "
                f"{self.form.width - 1}); ignore_index=... leaves one value out"
            )
        if low < 0:
            raise UsageError(f"labels go down to {low}; ignore_index=... leaves one value out")

    # -- any number of labels ---------------------------------------------------------

    def _add_labels(self, outputs: Tensor, target: Tensor, losses: Tensor | None, indices: NDArray[np.int64]) -> None:
        form, count = self.form, target.shape[0]
        scores_NK, target_NK = outputs.reshape(count, -1).float(), target.reshape(count, -1)
        if not is_yes_or_no(target_NK):
            raise UsageError("targets of a multilabel task are 0 or 1; task='regression' reads them as numbers")
        true_NK = target_NK > 0.5
        if form.scores == LOGITS:
            logit_NK = scores_NK.clamp(LEAST_LOG, -LEAST_LOG)
        else:
            logit_NK = scores_NK.clamp(LEAST_PROBABILITY, 1 - 1e-7).logit()
        finite_N = ~logit_NK.isnan().any(1)
        self.nonfinite += int((~finite_N).sum())
        owner_N = torch.arange(count, device=scores_NK.device)[finite_N]
        logit_NK, true_NK = logit_NK[finite_N], true_NK[finite_N]
        named_NK = logit_NK >= math.log(self.threshold / (1 - self.threshold))
        loss_N = F.binary_cross_entropy_with_logits(logit_NK, true_NK.float(), reduction="none").mean(1).double()
        right_N = (named_NK == true_NK).double()
        counts = torch.stack([a.sum(0) for a in (true_NK, named_NK, true_NK & named_NK)])
        self.label_counts = _numpy(counts) + (self.label_counts if self.label_counts.size else 0.0)
        rows = self.scores.pick(len(logit_NK), form.width)
        self.scores.add(scores=_numpy(logit_NK[rows]), label=_numpy(true_NK[rows]))
        owner_E = owner_N.repeat_interleave(form.width)
        self._add_samples(owner_E, right_N.reshape(-1), loss_N.repeat_interleave(form.width), losses, count)
        self._keep_worst(indices, {"target": true_NK, "prediction": named_NK}, owner_N)

    # -- numbers ----------------------------------------------------------------------

    def _add_numbers(self, outputs: Tensor, target: Tensor, losses: Tensor | None, indices: NDArray[np.int64]) -> None:
        count = target.shape[0]
        predicted_ND, target_ND = outputs.reshape(count, -1).double(), target.reshape(count, -1).double()
        if predicted_ND.shape != target_ND.shape:
            raise UsageError(f"a batch has outputs of shape {tuple(outputs.shape)}, targets {tuple(target.shape)}")
        finite_N = (predicted_ND.isfinite() & target_ND.isfinite()).all(1)
        self.nonfinite += int((~finite_N).sum())
        owner_N = torch.arange(count, device=target_ND.device)[finite_N]
        predicted_ND, target_ND = predicted_ND[finite_N], target_ND[finite_N]
        error_ND = predicted_ND - target_ND
        rows = self.scores.pick(len(error_ND), max(2, self.form.width))
        self.scores.add(scores=_numpy(predicted_ND[rows]), label=_numpy(target_ND[rows]))
        far_N = error_ND.abs().mean(1)
        self._add_samples(owner_N, far_N, error_ND.square().mean(1), losses, count)
        single = self.form.width == 1
        details = {"target": target_ND[:, 0], "prediction": predicted_ND[:, 0]} if single else {}
        self._keep_worst(indices, details, owner_N)

    # -- samples ----------------------------------------------------------------------

    def _add_samples(self, owner_E: Tensor, right_E: Tensor, loss_E: Tensor, losses: Tensor | None, count: int) -> None:
        """Sums of the elements of each sample; a sample without any has count 0 and a loss of NaN."""
        owner = _numpy(owner_E)
        counted = np.bincount(owner, minlength=count).astype(np.float64)
        right = np.bincount(owner, _numpy(right_E), minlength=count)
        summed = np.bincount(owner, _numpy(loss_E), minlength=count)
        own = np.where(counted > 0, summed / np.maximum(counted, 1), np.nan)
        given = own if losses is None else np.where(counted > 0, _numpy(losses.double()), np.nan)
        self.samples.add(loss=given, own_loss=own, right=right, count=counted)

    def _keep_worst(self, indices: NDArray[np.int64], details: dict[str, Tensor], owner_N: Tensor) -> None:
        if not self.worst_kept:
            return
        loss_N = self.samples.last("loss")
        worst = np.argsort(np.nan_to_num(-loss_N, nan=math.inf), kind="stable")[: self.worst_kept]
        place = np.searchsorted(_numpy(owner_N), np.arange(len(loss_N)))
        floor = self.worst[-1].loss if len(self.worst) >= self.worst_kept else -math.inf
        for n in worst.tolist():
            if math.isnan(loss_N[n]) or loss_N[n] <= floor:
                continue
            said = {k: _value(v[int(place[n])]) for k, v in details.items()} if details else self._describe(n)
            confidence = said.pop("confidence", None)
            known = int(indices[n]), float(loss_N[n])
            self.worst.append(Worst(*known, said["target"], said["prediction"], confidence, self.read + n))
        self.worst = sorted(self.worst, key=lambda w: -w.loss)[: self.worst_kept]

    def _describe(self, n: int) -> dict[str, Any]:
        if self.form.task == REGRESSION:
            return {"target": None, "prediction": None}
        right, count = (self.samples.last(c)[n] for c in ("right", "count"))
        return {"target": None, "prediction": f"{right:.0f} of {count:.0f} right"}


def _numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()


def _value(tensor: Tensor) -> Any:
    """A number, or the places of a row that are set."""
    if tensor.dim():
        return tensor.nonzero()[:, 0].tolist()
    value = tensor.item()
    return None if isinstance(value, float) and math.isnan(value) else value
