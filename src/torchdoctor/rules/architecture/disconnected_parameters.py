"""Trainable parameters that the loss never reaches.

## What it means
These parameters require gradients and an optimizer holds them, but no backward ever gives them one. Either the path
from them to the loss is cut, and a part of the model that should learn stays at its random start; or the part is never
used, and the model is not the one you think it is.

## Why it happens
- `.detach()`, `.data`, `.item()`, `.numpy()` or a `torch.no_grad()` block in the forward pass.
- A tensor rebuilt with `torch.tensor(...)` from another one's values.
- An operation without a derivative (argmax, rounding, comparison) on the way.
- A layer that is created in `__init__` and forgotten in `forward`, or whose result is overwritten.

## How it is detected
By state: after several updates these parameters never had a gradient. If their layers do run, and run before layers
that do learn, the path is cut, and that is an error. If they are a dead end or never run, the finding is a warning, and
information only where they are a small part of the model or known to be left out on purpose (a pooler).

## How to fix it
Follow the tensor from the layer to the loss and look for what is listed above. If the part should stay fixed, say so
with `requires_grad_(False)`; if it is not needed, remove it.

## Known false alarms
Parts that are used later in training (a second stage, rarely chosen experts) are reported until they get their first
gradient. A pretrained part that runs under `no_grad` on purpose is reported as information if its weights were loaded.

## References
PyTorch documentation, "Autograd mechanics" and DistributedDataParallel's find_unused_parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from torchdoctor.facts import WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT_L2

RULE = Rule(
    code="A007",
    name="disconnected-parameters",
    family="architecture",
    needs=(WiringFact,),
    explains=(
        "learning-rate-too-low",
        "vanishing-gradients",
        "underfitting",
        "capacity-too-low",
        "plateau-or-saddle",
        "symmetric-initialization",
    ),
)

MIN_UPDATES = 5
SMALL = 0.05
"""Of the trainable parameters: an unused head or pooler of a library's model is below, a forgotten block above."""
POOLER = "pooler"
"""Part of Hugging Face encoders; unused, and meant to be, wherever the model reads the hidden states."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    wiring = run.last_fact(WiringFact)
    if wiring is None or wiring.updates < MIN_UPDATES:
        return
    trained = set(run.parameters) - {*wiring.frozen, *wiring.unheld, *wiring.unreached}
    backwards = run.phase.backwards if run.phase else 1
    excused = {*wiring.unregistered, *_seen_with_gradient(run)}
    lost = [n for n in wiring.unreached if n not in excused]
    if not lost:
        if wiring.stepped and backwards and not wiring.unreached:
            yield RuledOut(RULE.name, f"the loss reaches all {wiring.stepped} parameters that an optimizer holds")
        return
    if trained and backwards:
        yield _finding(run, wiring, lost, trained)


def _seen_with_gradient(run: Run) -> set[str]:
    """Parameters whose gradient was measured at any look: wiring is read more seldom than gradients are."""
    trace = run.matrix(GRADIENT_L2)
    return {name for i, name in enumerate(trace.columns) if np.isfinite(trace.values[:, i]).any()}


def _finding(run: Run, wiring: WiringFact, lost: list[str], trained: set[str]) -> Finding:
    cut = runs_before(run, lost, trained)
    called = any(n in run.parameters and run.parameters[n].module in run.modules for n in lost)
    meant = wiring.loaded is not None and set(lost) <= set(wiring.loaded)
    share = size_of(run, lost) / max(1, size_of(run, [*lost, *trained]))
    small = share < SMALL or all(POOLER in name.lower() for name in lost)
    if meant or (small and not cut and not wiring.detached_at):
        severity = Severity.INFO
    else:
        severity = Severity.ERROR if cut or wiring.detached_at else Severity.WARNING
    modules = modules_of(lost)
    verb = "gets" if len(modules) == 1 else "get"
    shown = ", ".join(modules[:3]) + (f" and {len(modules) - 3} more" if len(modules) > 3 else "")
    file, _, line = (wiring.detached_at or "").rpartition(":")
    evidence = [
        Evidence(
            f"{len(lost)} parameters, {share:.0%} of trainable weights, got no gradient in {wiring.updates} updates",
            "wiring",
            share,
        ),
        Evidence(
            f"{shown} runs before layers that do learn, so the path from it to the loss is cut"
            if cut
            else f"no gradient of the loss reaches {shown}"
        ),
    ]
    if wiring.detached_at:
        evidence.append(Evidence(f"cut off at {wiring.detached_at}"))
    return RULE.finding(
        severity=severity,
        confidence=0.95 if cut or wiring.detached_at else 0.85,
        proof=Proof.STRUCTURE,
        title=f"{shown} never {verb} a gradient ({share:.0%} of the trainable weights)",
        summary=(
            "The graph between these layers and the loss is cut, so they keep their random start while the rest trains."
            if cut or wiring.detached_at
            else "These layers run, but no gradient comes back to them: what they compute is cut off on its way to the "
            "loss (no_grad, detach, .data, .item(), numpy), or it is not used."
            if called
            else "These layers are in the optimizer but have no part in the loss: forward never calls them."
        ),
        where=known(
            Place(file=file, line=int(line)) if file and line.isdigit() else Place(),
            *(Place(module=run.parameters[n].module if n in run.parameters else None, parameter=n) for n in lost[:4]),
        ),
        evidence=evidence,
        fix=Fix(
            "Find the detach, no_grad, .data, .item() or numpy step after these layers and remove it."
            if cut or wiring.detached_at
            else "If what they compute should count, look for a no_grad, detach, .data, .item() or numpy step around "
            "or after them; if not, remove them from the optimizer."
            if called
            else "Use these layers in forward, or remove them.",
            "assert out.grad_fn is not None  # after each of these layers; the first that fails is the cut"
            if cut or wiring.detached_at or called
            else "print([n for n, p in model.named_parameters() if p.requires_grad and p.grad is None])",
        ),
        symptoms=("flat-from-start",) if cut else (),
    )


def runs_before(run: Run, lost: Sequence[str], trained: set[str]) -> bool:
    """A lost layer is called earlier in the forward pass than every layer that learns."""
    orders = {name: m.order for name, m in run.modules.items() if m.order is not None}
    lost_at = [orders[m] for n in lost if n in run.parameters and (m := run.parameters[n].module) in orders]
    trained_at = [orders[m] for n in trained if (m := run.parameters[n].module) in orders]
    return bool(lost_at and trained_at) and min(lost_at) < min(trained_at)


def size_of(run: Run, names: Sequence[str]) -> int:
    return sum(math.prod(run.parameters[n].shape) for n in names if n in run.parameters)


def modules_of(names: Sequence[str]) -> list[str]:
    """The modules these parameters belong to, each once, in order."""
    return list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
