"""Whether outputs belong to the next token: of a causal language model they do, and its labels are its input ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.instruments.subject import Subject, fields_of, to_device

CLOSER = 10.0
"""Times by which one of two losses has to lie closer to the one the model gives by itself. They need not be equal: that
one may hold more than the cross-entropy, and half precision rounds."""
FAR = 0.25
"""Share of tokens by which outputs have to name those of their own place more often than the next ones."""


class Shift:
    """Looks at batches until it is asked, then decides once for all of them."""

    def __init__(self, told: bool | None, subject: Subject | None, ignored: int) -> None:
        self._subject, self._ignored = subject, ignored
        self._decided = told if subject is not None else False
        self._copies: list[bool] = []
        self._hits_own = self._hits_next = self._count = 0
        self._by_loss: bool | None = None
        self.note: str | None = None

    def look(self, batch: Any, outputs: Tensor, target: Tensor) -> None:
        if self._decided is not None:
            return
        copies = _is_copied(batch, outputs, target)
        if copies is None:
            return
        self._copies.append(copies)
        if not copies:
            return
        named, known = outputs.argmax(-1), target != self._ignored
        both = known[:, 1:] & known[:, :-1]
        self._hits_own += int((named == target)[:, 1:][both].sum())
        self._hits_next += int((named[:, :-1] == target[:, 1:])[both].sum())
        self._count += int(both.sum())
        if self._by_loss is None:
            self._by_loss = self._ask_model(batch, outputs, target)

    def decide(self) -> None:
        if self._decided is not None:
            return
        self._decided = bool(self._copies) and all(self._copies)
        if not self._decided:
            return
        own, following = (hits / max(1, self._count) for hits in (self._hits_own, self._hits_next))
        if self._by_loss is False:
            self._decided = False
            why = "and so does the model's own loss"
        elif self._by_loss is None and own - following > FAR:
            self._decided = False
            why = f"which they name more often ({own:.0%}) than the next one ({following:.0%})"
        self.note = (
            "labels are the input ids: outputs are compared with the next token; shift=False says otherwise"
            if self._decided
            else f"labels are the input ids, and outputs are compared with the token of their own place, {why}; "
            "shift=True says otherwise"
        )

    def check(self, batch: Any, number: int, outputs: Tensor, target: Tensor) -> None:
        """Of a batch that comes after the decision."""
        if self.note is not None and _is_copied(batch, outputs, target) is False:
            raise UsageError(
                f"batch {number} (counted from 1) does not look like those before it: its labels are not its input "
                "ids; say with shift=True or shift=False whether outputs belong to the next token"
            )

    def apply(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return (outputs[:, :-1], target[:, 1:]) if self._decided else (outputs, target)

    def _ask_model(self, batch: Any, outputs: Tensor, target: Tensor) -> bool | None:
        """A model that gives its loss by itself shows what it compares; None where it gives none, or another one."""
        if self._subject is None or self._subject.step_fn is not None:
            return None
        own = Subject(self._subject.model)
        try:
            # whatever a model raises here, it gives no loss that could tell
            given = float(own.loss(to_device(_named(batch), own.device)))
        except Exception:
            return None
        pairs = ((outputs, target), (outputs[:, :-1], target[:, 1:]))
        off_own, off_next = (abs(given - _cross_entropy(o, t, self._ignored)) for o, t in pairs)
        if off_next * CLOSER < off_own:
            return True
        return False if off_own * CLOSER < off_next else None


def _named(batch: Any) -> dict[str, Any]:
    if isinstance(batch, Mapping):
        return dict(batch)
    return fields_of(batch) if dataclasses.is_dataclass(batch) and not isinstance(batch, type) else {}


def _is_copied(batch: Any, outputs: Tensor, target: Tensor) -> bool | None:
    """Whether the labels are the input ids themselves; None where no label is known."""
    ids = _named(batch).get("input_ids")
    if not isinstance(ids, Tensor) or ids.shape != target.shape:
        return False
    if outputs.dim() != 3 or outputs.shape[:2] != target.shape:
        return False
    known = target >= 0
    return bool((target == ids.to(target.device))[known].all()) if bool(known.any()) else None


def _cross_entropy(outputs: Tensor, target: Tensor, ignored: int) -> float:
    return float(F.cross_entropy(outputs.flatten(0, 1).float(), torch.flatten(target).long(), ignore_index=ignored))
