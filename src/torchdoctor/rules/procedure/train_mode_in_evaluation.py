"""Validation runs in train mode: dropout is active, batch normalisation learns from validation data.

## What it means
In train mode dropout throws away part of the model at random, so validation numbers are too low and change from run to
run. Batch normalisation normalises each validation batch by itself and, worse, mixes the validation data into the
running statistics that the model will use later: a leak, and a number that depends on how validation was batched.

## Why it happens
`model.eval()` is missing before the validation loop. `torch.no_grad()` alone does not do it: that only stops gradients
from being recorded.

## How it is detected
The modes of the forward passes that were found to be validation (no backward follows, and a loss or accuracy is taken,
or they come in phases apart from training) are recorded. The finding stands if such passes ran with the root in train
mode and with active dropout or batch-norm layers, in most of the validation of that model.

## How to fix it
Call `model.eval()` before the validation loop and `model.train()` when training goes on.

## Known false alarms
Monte Carlo dropout that switches single dropout modules on while the model is in eval mode is not reported; done by
`model.train()` on a model without batch-norm it cannot be told from the fault. Recomputing batch-norm statistics after
weight averaging (`update_bn`) is not reported as long as the model is then evaluated in eval mode.

## References
PyTorch documentation, "Autograd mechanics": evaluation mode and no-grad mode are independent.
Gal, Ghahramani, "Dropout as a Bayesian approximation", 2016 (the deliberate use).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import VALIDATION, ModesFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.places import call_site, known
from torchdoctor.rules.procedure.modes import Stretch, is_trained, named, share, stretches, validates, validation_label
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    of_code=True,
    code="T007",
    name="train-mode-in-evaluation",
    family="procedure",
    needs=(ModesFact,),
    explains=("noisy-validation", "overfitting", "train-validation-mismatch", "batchnorm-small-batch"),
)

SHARE = 0.5
"""Of the run between this model's first validation and its end; a recalibration of batch-norm is far below."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    if not validates(run):
        return
    found = stretches(run, VALIDATION)
    for model, whole in found.items():
        affected = [s for s in whole if _is_training(s.modes)]
        if affected and is_trained(run, model) and _is_training(whole[-1].modes) and share(affected, whole) >= SHARE:
            yield _finding(run, model, affected)
    if found and not any(s.modes.training or _is_training(s.modes) for whole in found.values() for s in whole):
        yield RuledOut(RULE.name, "validation passes ran in eval mode")


def _is_training(modes: ModesFact) -> bool:
    return modes.training and bool(modes.dropout_training or modes.norm_training)


def _finding(run: Run, model: str, affected: list[Stretch]) -> Finding:
    modes = affected[-1].modes
    norms, dropouts = modes.norm_training, modes.dropout_training
    evidence = [
        Evidence(f"the model was validated {validation_label(run)} with its training flag set", "modes", 1.0, 0.0),
        Evidence(
            "gradients are switched off there, which does not change the mode"
            if not modes.grad_enabled
            else "gradients are not switched off there either"
        ),
    ]
    if dropouts:
        evidence.append(Evidence(f"dropout active in validation: {named(dropouts)}"))
    if norms:
        evidence.append(Evidence(f"running statistics updated by validation data: {named(norms)}"))
    site = call_site(run, "train")
    name = site.code.split(".train(")[0].strip() if site and ".train(" in site.code else "model"
    return RULE.finding(
        severity=Severity.ERROR if norms else Severity.WARNING,
        confidence=0.95,
        proof=Proof.STRUCTURE,
        title="validation runs in train mode: "
        + " and ".join(
            [f"{len(dropouts)} dropout layer{'s' * (len(dropouts) != 1)} active"] * bool(dropouts)
            + [f"{len(norms)} batch-norm layer{'s' * (len(norms) != 1)} fed with validation data"] * bool(norms)
        ),
        summary=f"{model} is still in train mode when it is validated, so the reported numbers are not those of the "
        "finished model" + (", and validation data leaks into its running statistics." if norms else "."),
        where=known(Place(file=modes.file, line=modes.line), *(Place(module=m) for m in [*norms, *dropouts][:3])),
        first_step=affected[0].start,
        last_step=affected[-1].end,
        evidence=evidence,
        fix=Fix("Switch to eval mode before validating, and back afterwards.", f"{name}.eval()"),
        symptoms=("validation-jumps", "validation-flat"),
    )
