"""Every parameter that is to be trained is in an optimizer, and none twice."""

from __future__ import annotations

from collections import Counter

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.freshness import is_fresh
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.instruments.tables import listed

CHECK = Check(
    name="optimizer-coverage",
    asks="every trainable parameter is in the optimizer, none twice",
    part=PROCEDURE,
    needs_loss=False,
    order=10,
    diagnoses=("parameters-not-optimized",),
)
SHOWN = 4


def perform(bench: Bench) -> Outcome:
    if not bench.optimizers:
        return skipped("no optimizer was handed over")
    held = Counter(id(p) for o in bench.optimizers for group in o.param_groups for p in group["params"])
    trainable = {clean(name): p for name, p in bench.named_parameters().items() if p.requires_grad}
    if not trainable:
        return skipped("no parameter of the model requires gradients")
    missing = [name for name, p in trainable.items() if id(p) not in held]
    twice = [name for name, p in trainable.items() if held[id(p)] > 1]
    if missing:
        return _missing(bench, missing, len(trainable))
    if twice:
        return failed(
            f"{len(twice)} parameters are updated more than once a step: {listed(twice, SHOWN)}",
            None,
            Fix("Let each parameter be in one group of one optimizer."),
            severity=Severity.WARNING,
            twice=len(twice),
        )
    return passed(f"all {len(trainable)} of them", parameters=len(trainable))


def _missing(bench: Bench, names: list[str], count: int) -> Outcome:
    """By the ladder of the rule: to train a head on pretrained layers is common, on random ones it is a mistake."""
    fresh = is_fresh(bench)
    severity = {False: Severity.INFO, None: Severity.WARNING, True: Severity.ERROR}[fresh]
    meant = "; for a head on pretrained layers that may be meant" if fresh is False else ""
    every = Fix(
        "Give the optimizer all parameters, or set requires_grad_(False) on those that are to stay.",
        "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)",
    )
    frozen = Fix("Freeze them, which also saves their gradients.", "module.requires_grad_(False)")
    return failed(
        f"{len(names)} of {count} trainable parameters are in no optimizer: {listed(names, SHOWN)}{meant}",
        "parameters-not-optimized",
        frozen if fresh is False else every,
        severity=severity,
        where=tuple(Place(module=n.rpartition(".")[0] or None, parameter=n) for n in names[:SHOWN]),
        missing=len(names),
    )
