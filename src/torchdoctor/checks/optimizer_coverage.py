"""Every parameter that is to be trained is in an optimizer, and none twice."""

from __future__ import annotations

from collections import Counter

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, skipped
from torchdoctor.findings import Fix, Place, Severity

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
    trainable = {name: p for name, p in bench.named_parameters().items() if p.requires_grad}
    missing = [name for name, p in trainable.items() if id(p) not in held]
    twice = [name for name, p in trainable.items() if held[id(p)] > 1]
    if missing:
        return failed(
            f"{len(missing)} of {len(trainable)} trainable parameters are in no optimizer: {_listed(missing)}",
            "parameters-not-optimized",
            Fix(
                "Give the optimizer all parameters, or set requires_grad_(False) on those that are to stay.",
                "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)",
            ),
            where=tuple(Place(module=n.rpartition(".")[0] or None, parameter=n) for n in missing[:SHOWN]),
            missing=len(missing),
        )
    if twice:
        return failed(
            f"{len(twice)} parameters are updated more than once a step: {_listed(twice)}",
            None,
            Fix("Let each parameter be in one group of one optimizer."),
            severity=Severity.WARNING,
            twice=len(twice),
        )
    return passed(f"all {len(trainable)} of them", parameters=len(trainable))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
