"""Validation builds an autograd graph that nobody uses.

## What it means
Without `torch.no_grad()` (or `inference_mode`) every validation pass keeps all activations for a backward that never
comes. Results are right, but validation is slower and takes several times the memory; a loss or prediction that is
stored without `.item()` or `.detach()` keeps its whole graph alive, and memory grows until it runs out.

## Why it happens
`model.eval()` is taken to switch gradients off. It does not: modes and gradient recording are independent.

## How it is detected
The gradient mode of the forward passes that were found to be validation is recorded. The finding stands if they ran
with gradients enabled, in most of the validation of a model that has trainable parameters. A single evaluation, at the
end of a script for example, is only worth a remark.

## How to fix it
Put the validation loop under `with torch.no_grad():` or decorate its function with `@torch.no_grad()`.

## Known false alarms
Models that need derivatives to predict (physics-informed networks, forces as the gradient of an energy,
meta-learning) must not switch gradients off; a training loss with second derivatives in its graph is taken as a sign
of these, and nothing is reported.

## References
PyTorch documentation, "Autograd mechanics": locally disabling gradient computation.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import VALIDATION, GraphFact, ModesFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.places import known
from torchdoctor.rules.procedure.modes import Stretch, is_trained, share, stretches, validates, validation_label
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    of_code=True,
    code="T008",
    name="gradients-in-evaluation",
    family="procedure",
    needs=(ModesFact,),
    explains=("memory-growth", "graph-kept-alive"),
)

SHARE = 0.5
"""Of the run between the first validation and its end: now and then a pass with gradients may be meant."""
REPEATED = 2
"""One evaluation of a finished model with gradients on costs nothing worth a warning."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    if not validates(run) or _differentiates_twice(run):
        return
    found = stretches(run, VALIDATION)
    for model, whole in found.items():
        affected = [s for s in whole if s.modes.grad_enabled]
        if affected and is_trained(run, model) and whole[-1].modes.grad_enabled and share(affected, whole) >= SHARE:
            yield _finding(run, model, affected)
    if found and not any(s.modes.grad_enabled for whole in found.values() for s in whole):
        yield RuledOut(RULE.name, "validation passes ran without gradients")


def _differentiates_twice(run: Run) -> bool:
    return any("BackwardBackward" in op for graph in run.facts(GraphFact) for op in graph.operators)


def _finding(run: Run, model: str, affected: list[Stretch]) -> Finding:
    modes, phase = affected[-1].modes, run.phase
    passes = phase.passes_validation if phase else sum(s.modes.passes for s in affected)
    repeated = phase is not None and phase.validations >= REPEATED
    return RULE.finding(
        severity=Severity.WARNING if repeated else Severity.INFO,
        confidence=0.9,
        proof=Proof.STRUCTURE,
        title=f"validation runs without no_grad ({passes} passes build a graph for nothing)",
        summary=f"{model} is validated with gradients enabled: every pass stores what a backward would need, which "
        "costs time and memory and keeps the graph alive wherever a result is stored.",
        where=known(Place(file=modes.file, line=modes.line)),
        first_step=affected[0].start,
        last_step=affected[-1].end,
        evidence=[
            Evidence(
                f"validated {validation_label(run)}, {passes} passes with gradients enabled", "modes", float(passes)
            ),
        ],
        fix=Fix("Switch gradients off around the validation loop.", "with torch.no_grad():"),
        symptoms=("growing-memory",),
    )
