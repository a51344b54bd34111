"""What was measured in a pass and waits until the loop has decided what the pass was for."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from torchdoctor.attach.loop import Pass
from torchdoctor.attach.places import Place
from torchdoctor.facts import TRAIN, UNKNOWN, VALIDATION, FixedSamplesFact, LossCallFact
from torchdoctor.probes.batches import BatchLook
from torchdoctor.probes.samples import Rows

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

SITES_KEPT = 8


@dataclass
class LossLook:
    """A loss call measured at the call, kept until the phase of its pass is known."""

    fact: LossCallFact
    values: Tensor | None
    counts: Tensor | None
    target: BatchLook | None
    box: list[float]
    samples: int
    site: str
    rows: Rows | None = None
    passed_over: bool = False
    """its samples were not looked at, so that the pass is not whole"""


class PassWriter:
    """Hands each pass's measurements to the probes once its phase is known."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._fixed_at = 0
        self._preferred = False

    def pass_known(self, seen: Pass) -> None:
        """The loop has decided what a pass was for: write what was measured in it."""
        if seen.phase == VALIDATION:
            self._session.clock.validating()
        model: weakref.ref[nn.Module] | None = seen.data.get("model")
        root = model() if model else None
        if root is not None and seen.phase != UNKNOWN:
            self._session.modes.write(
                root,
                seen.model or "model",
                seen.phase,
                seen.data["modes"],
                seen.grad,
                seen.step,
                seen.data.get("place"),
            )
        if seen.phase == UNKNOWN:
            return
        for look in () if seen.data.get("fed") else seen.data.get("inputs", ()):
            self._session.batches.write(look, seen.phase, seen.step)
        self._session.membership.write(seen)
        if seen.phase == VALIDATION and seen.loader and not self._preferred and self._session.loop.backwards:
            self._prefer(seen.loader)
        losses: list[LossLook] = seen.data.get("losses", [])
        for look in losses:
            self._write_loss(look, seen)
        if seen.phase == VALIDATION:
            self._add_validation(seen, losses)
            self._write_fixed_samples(seen)

    def _prefer(self, loader: str) -> None:
        """Validation is the first loader that does not train: many loops check the fit on the training loader first."""
        if self._session.loop.loader_phases.get(loader) != TRAIN:
            self._preferred = True
            for probe in (self._session.validation_loss, self._session.predictions, self._session.samples):
                probe.prefer(loader)

    def _write_loss(self, look: LossLook, seen: Pass) -> None:
        if look.values is not None:
            self._session.loss_calls.write(look.fact, look.values, seen.phase, seen.step)
        if look.counts is not None:
            if seen.phase == TRAIN:
                self._session.predictions.train(look.counts)
            else:
                self._session.predictions.validation(seen.loader or "", look.counts)
        if look.rows is not None:
            if seen.phase == TRAIN:
                self._session.samples.train(look.site, look.rows)
            else:
                self._session.samples.validation(seen.loader or "", look.site, look.rows)
        if look.passed_over and seen.phase == VALIDATION:
            self._session.samples.passed_over(seen.loader or "", look.site)
        if look.target is not None:
            self._session.batches.write(look.target, seen.phase, seen.step)

    def _add_validation(self, seen: Pass, losses: list[LossLook]) -> None:
        """One loss call is the loss; of several, the number the user reads (a line that says loss), or their sum."""
        items: list[tuple[float, Place]] = seen.data.get("items", [])
        if len(losses) == 1 or (losses and not items):
            boxes = [(look.box, look.samples) for look in losses[:1]]
            if len(losses) > 1:
                joined = [look.box for look in losses]
                boxes = [(_SumBox(joined), losses[0].samples)]
            sites = [losses[0].site]
        elif items:
            value, place = items[0]
            boxes, sites = [([value], losses[0].samples if losses else 1)], [str(place)]
        else:
            return
        self._session.validation_loss.add(seen.loader or "", boxes)
        for site in sites:
            if len(self._session.validation_sites) < SITES_KEPT:
                self._session.validation_sites.setdefault(site)

    def _write_fixed_samples(self, seen: Pass) -> None:
        """What the model makes of the first samples of this validation; the first pass of each alone has them."""
        if "fixed" not in seen.data or self._fixed_at == self._session.loop.validations:
            return
        self._fixed_at = self._session.loop.validations
        marks, outputs = seen.data["fixed"]
        kept: list[int] = []
        self._session.deferred.read(marks, lambda values: kept.extend(values.tolist()))
        self._session.deferred.read(
            outputs,
            lambda values: self._session.record.fact(
                FixedSamplesFact(kept, values.tolist()), seen.step, seen.loader or ""
            ),
        )

    def validation_ended(self, step: int) -> None:
        self._session.validation_loss.end(step, self._session.deferred.after)
        self._session.predictions.end_validation(step, self._session.deferred.after)
        self._session.deferred.after(lambda: self._session.membership.flush(step))
        self._session.samples.end_validation(step, self._session.deferred.after)


class _SumBox(list[float]):
    """A box that is full when all its parts are, and holds their sum."""

    def __init__(self, parts: list[list[float]]) -> None:
        super().__init__()
        self._parts = parts

    def __bool__(self) -> bool:
        return all(self._parts)

    def __iter__(self) -> Any:
        return iter([sum(sum(part) for part in self._parts)])
