"""Training steps run in eval mode: dropout is off, batch normalisation does not learn its statistics.

## What it means
In eval mode dropout passes everything through, and batch normalisation uses its stored statistics instead of the
batch's and stops updating them. Trained like that, the model loses its regularisation, and its normalisation works
with statistics that belong to an earlier (or to no) state of the weights. Validation may drift or look better than
training for no good reason.

## Why it happens
`model.eval()` is called for validation and nothing calls `model.train()` afterwards, so all but the first epoch train
in eval mode. Or `train()` is called once before the epoch loop instead of inside it. Or the model was loaded from a
library that hands it out in eval mode (Hugging Face's `from_pretrained` does).

## How it is detected
Every change of mode of the forward passes that a backward follows is recorded. The finding stands if the root module
is in eval mode on at least a twentieth of the training, and it contains dropout or batch-norm layers that are then
all in eval mode as well. It also stands if batch-norm layers stay in eval mode while the root is in train mode, and
their running statistics are still those of a new layer (mean 0, variance 1): then they normalise nothing. Modes that
flip within one step (an adversarial example made in eval mode) do not count.

## How to fix it
Call `model.train()` at the top of every epoch, right before the loop over training batches, and `model.eval()` right
before the validation loop.

## Known false alarms
Freezing batch normalisation on purpose (`m.eval()` on these modules while the model is in train mode, or norms whose
weights do not require gradients) is not reported. A model that no optimizer trains (frozen backbone, perceptual loss)
may be in any mode. Fine-tuning a whole network in eval mode on purpose would be reported.

## References
Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
Ioffe, Szegedy, "Batch normalization: accelerating deep network training ...", 2015.
PyTorch documentation, torch.nn.Module.train and torch.nn.Module.eval.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import TRAIN, ModesFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.places import call_places, known, receiver
from torchdoctor.rules.procedure.modes import Stretch, is_trained, named, share, stretches
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="T006",
    name="eval-mode-in-training",
    family="procedure",
    needs=(ModesFact,),
    explains=(
        "overfitting",
        "validation-better-than-training",
        "noisy-validation",
        "exploding-gradients",
        "vanishing-gradients",
        "learning-rate-too-low",
        "learning-rate-too-high",
    ),
)

SHARE = 0.05
"""Of the updates. A validation in the middle of an epoch whose remainder then runs in eval mode is above it."""
MIN_UPDATES = 2


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    found = stretches(run, TRAIN)
    fine = bool(found)
    for model, whole in found.items():
        idle = [s for s in whole if s.modes.norm_idle]
        if idle and is_trained(run, model) and share(idle, whole) >= SHARE:
            fine = False
            yield _idle(idle[-1].modes, idle, share(idle, whole))
            continue
        affected = [s for s in whole if _is_eval(s.modes)]
        if not affected or not is_trained(run, model):
            continue
        fine = False
        part = share(affected, whole)
        if part >= SHARE and sum(s.length for s in affected) >= MIN_UPDATES:
            yield _finding(run, model, affected, part)
    modes = [s.modes for whole in found.values() for s in whole]
    silent = any(set(m.norm_eval) - set(m.norm_frozen) or m.dropout_eval or not m.training for m in modes)
    if fine and not silent and any(m.dropout_training or m.norm_training for m in modes):
        yield RuledOut(RULE.name, "training passes ran in train mode throughout")


def _idle(modes: ModesFact, stretches_of_it: list[Stretch], part: float) -> Finding:
    names, count = named(modes.norm_idle), len(modes.norm_idle)
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9,
        proof=Proof.STRUCTURE,
        title=f"{count} batch-norm layer{'s stay' if count > 1 else ' stays'} in eval mode while the model trains",
        summary=f"{names} keep their initial statistics (mean 0, variance 1) and neither use nor learn those of a "
        "batch, so they normalise nothing.",
        where=known(Place(file=modes.file, line=modes.line), *(Place(module=m) for m in modes.norm_idle[:3])),
        first_step=stretches_of_it[0].start,
        last_step=stretches_of_it[-1].end,
        evidence=[
            Evidence(
                f"{part:.0%} of the training passes run them in eval mode, the model in train mode", "modes", part
            ),
            Evidence("their running means are all 0 and their running variances all 1"),
        ],
        fix=Fix(
            "Let these layers follow the model's mode: look for a train() that is overridden, or for eval() on parts "
            "of the model. Statistics that are to stay frozen have to be loaded first.",
            "model.train()\nassert all(m.training for m in model.modules() if isinstance(m, nn.BatchNorm2d))",
        ),
        symptoms=("validation-jumps", "slow-descent"),
    )


def _is_eval(modes: ModesFact) -> bool:
    silenced = {*modes.dropout_eval, *modes.norm_eval} - set(modes.norm_frozen)
    return not modes.training and bool(silenced) and not modes.dropout_training and not modes.norm_training


def _finding(run: Run, model: str, affected: list[Stretch], part: float) -> Finding:
    modes, start = affected[-1].modes, affected[0].start
    norms = [n for n in modes.norm_eval if n not in modes.norm_frozen]
    evidence = [
        Evidence(
            f"{part:.0%} of the updates come from passes in eval mode, from update {start} on", "modes", part, SHARE
        )
    ]
    if modes.dropout_eval:
        evidence.append(Evidence(f"dropout that does nothing: {named(modes.dropout_eval)}"))
    if norms:
        evidence.append(Evidence(f"normalisation whose statistics stand still: {named(norms)}"))
    if start > 0:
        evidence.append(
            Evidence(f"before update {start} training ran in train mode, so eval() was called and not undone")
        )
    where = known(
        *call_places(run, "eval"),
        Place(file=modes.file, line=modes.line),
        *(Place(module=m) for m in [*norms, *modes.dropout_eval][:3]),
    )
    name = receiver(run, "eval", "model")
    since = f"since update {start}" if start else "from the start"
    return RULE.finding(
        severity=Severity.ERROR if norms else Severity.WARNING,
        confidence=0.97,
        proof=Proof.STRUCTURE,
        title=f"{part:.0%} of training runs in eval mode, {since}",
        summary=f"{model} is in eval mode while it is trained, {since}: "
        + ("dropout is switched off" if modes.dropout_eval else "")
        + (" and " if modes.dropout_eval and norms else "")
        + ("batch normalisation neither uses nor learns the batch's statistics" if norms else "")
        + ".",
        where=where,
        first_step=start,
        last_step=affected[-1].end,
        evidence=evidence,
        fix=Fix(
            "Switch back to train mode at the top of every epoch, before the loop over batches.", f"{name}.train()"
        ),
        symptoms=("validation-jumps", "validation-above-training"),
    )
