"""Looks at batches written down as a recorder would have, so that the readings of the rules hold for them too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdoctor import signals
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome
from torchdoctor.checks.model.looks import Look, looks_of, targets_of
from torchdoctor.checks.model.start import Notes
from torchdoctor.facts import TRAIN, VALIDATION, Fact, ModuleFact
from torchdoctor.findings import Evidence, Finding, RuledOut, Severity
from torchdoctor.probes.batches import BatchProbe, look_at
from torchdoctor.probes.context import Context
from torchdoctor.probes.loss_calls import LossCallProbe, describe, value_statistics
from torchdoctor.probes.membership import measure_spread
from torchdoctor.run import Run


class Record:
    """Facts and signals in memory, and the probes that write them."""

    def __init__(self) -> None:
        self.notes = Notes()
        names: Any = None
        self.context = Context(self.notes, names, lambda tensor, use: use(tensor.detach().cpu().numpy()))
        self._batches, self._calls = BatchProbe(self.context), LossCallProbe(self.context)
        self._steps = 0

    def add(self, fact: Fact) -> None:
        self.notes.fact(fact, self.context.step)

    def look(self, bench: Bench, look: Look, phase: str, step: int) -> None:
        self.context.step = step
        given = main_input(look)
        if given is not None:
            self._write(given, "input", phase)
            marks = measure_spread(given)
            if marks is not None:
                self.notes.scalar(signals.BATCH_SPREAD.name, step, float(marks), phase)
        for target in targets_of(bench, look)[:1]:
            self._write(target, "target", phase)
        for call in look.calls:
            self._calls.write(describe(call, None), value_statistics(call), phase, step)
        if look.loss is not None:
            signal = signals.LOSS_TRAIN if phase == TRAIN else signals.LOSS_VALIDATION
            self.notes.scalar(signal.name, step, look.loss)
        self._steps = max(self._steps, step + 1)

    def run(self, **info: Any) -> Run:
        self._batches.close(self._steps)
        made = self.notes.run(self._steps)
        return Run(info, made.available, made.load, made.seen, made.steps, finished=False)

    def _write(self, tensor: Tensor, role: str, phase: str) -> None:
        seen = look_at(tensor, role, detailed=True)
        if seen is not None:
            self._batches.write(seen, phase, self.context.step)


def record_of(bench: Bench) -> Run:
    """Of the looks at the bench's batches; the same for every check."""
    return bench.once(_write)


def main_input(look: Look) -> Tensor | None:
    """Of what the model was given: the first of its floating-point tensors, else the first."""
    floats = [t for t in look.inputs if t.is_floating_point() and t.dim() > 1]
    return next(iter([*floats, *look.inputs]), None)


def found(said: Any) -> Finding | None:
    """The finding among what a rule says, if there is one."""
    return next((one for one in said if not isinstance(one, RuledOut)), None)


def _write(bench: Bench) -> Run:
    record, looks = Record(), looks_of(bench)
    for order, kind in enumerate(looks.modules):
        record.add(ModuleFact(name=str(order), type=kind, order=order))
    with torch.no_grad():
        for step, look in enumerate(looks.train):
            record.look(bench, look, TRAIN, step)
        for step, look in enumerate(looks.validation):
            record.look(bench, look, VALIDATION, step)
    error = looks.error
    said = {"type": type(error).__name__, "message": str(error)} if error is not None else None
    return record.run(exception=said)


def outcome_of(finding: Finding, severity: Severity | None = None, **figures: Any) -> Outcome:
    """What a rule found, as a check says it: what it means comes before what was seen."""
    first, rest = finding.title[:1], finding.title[1:]
    return Outcome(
        False,
        (first.lower() if rest[:1].islower() or rest[:1] == " " else first) + rest,
        severity or finding.severity,
        finding.name,
        (Evidence(finding.summary), *finding.evidence),
        finding.fix,
        finding.where,
        figures,
    )


def worst_of(*outcomes: Outcome | None) -> Outcome | None:
    """The gravest of those that say something, the first of equals."""
    said = [outcome for outcome in outcomes if outcome is not None]
    return min(said, key=lambda outcome: outcome.severity.rank, default=None)
