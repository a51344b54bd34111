"""A batch's targets hold NaN or Inf.

## What it means
At least one target (label, regression value, mask) is NaN or infinite. The inputs and the model may be perfectly
fine: the loss compares a finite prediction with NaN, becomes NaN itself, and one update later so are the weights.

## Why it happens
- Missing labels: empty cells, a join that found no partner, a test split without labels that was loaded for training.
- A target transform outside its domain: the logarithm of a price of zero, a ratio with a zero below it, scaling by
  the standard deviation of a constant.
- Rolling windows, lags and returns of a time series: the first rows have no predecessor.
- Multi-task data in which not every sample has every label, and the mask was forgotten for one of the losses.

## How it is detected
The targets that reach the loss, and those that come with the batch, are examined for NaN and Inf. The finding is an
error where the loss was finite before such a batch and not after it; an info where the loss never notices (the
missing labels are masked out, which is the right way to train on them).

## How to fix it
Drop the rows without a label, or mask them out of the loss: `known = torch.isfinite(y)` and take the mean over
`loss[known]` only. Multiplying by a zero mask is not enough, since 0 * NaN is NaN, and so is the gradient through
`torch.where` when its unused branch is NaN.

## Known false alarms
Masked multi-task training is told of by an info. A target that is made from the model's own output (bootstrapping,
distillation) becomes NaN after the model does: then the loss was NaN first, every sample is bad, and this finding
stays silent.

## References
PyTorch documentation, "torch.isfinite"; PyTorch autograd notes on masked NaN gradients ("torch.where"). Breck et
al., "Data Validation for Machine Learning" (2019).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.findings import Finding, Fix, Place, Proof, Severity
from torchdoctor.rules.nonfinite import Contamination, Outcome, chain, contamination
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import TARGET_NONFINITE

RULE = Rule(
    code="D002",
    name="nan-in-targets",
    family="data",
    needs=(TARGET_NONFINITE,),
    explains=(
        "nonfinite-parameters",
        "learning-rate-too-high",
        "exploding-gradients",
        "vanishing-gradients",
        "bad-initialization-scale",
        "dead-relu",
        "saturated-activations",
        "no-parameter-update",
        "unnormalized-inputs",
    ),
)


def detect(run: Run) -> Iterator[Finding]:
    found = contamination(run, "target")
    if found is None or (found.outcome is Outcome.FOLLOWED and not found.is_partial):
        return
    yield RULE.finding(
        severity=found.severity,
        confidence=found.confidence,
        title=f"{found.what} in the targets of {found.when}",
        summary=found.consequence("The targets hold", "They are masked out of the loss, as far as can be seen."),
        fix=repair(found),
        evidence=[*found.evidence(TARGET_NONFINITE.name), *chain(run)],
        proof=Proof.STRUCTURE,
        where=[Place(file=found.file, line=found.line)] if found.file else [],
        first_step=found.step,
        symptoms=found.symptoms,
    )


def repair(found: Contamination) -> Fix:
    if found.severity is Severity.INFO:
        return Fix("If missing targets are masked on purpose, nothing. Otherwise drop the samples without a target.")
    return Fix(
        "Drop the samples whose target is missing, or leave them out of the loss with a mask, before it is averaged.",
        "keep = torch.isfinite(y).reshape(len(y), -1).all(dim=1); X, y = X[keep], y[keep]",
    )
