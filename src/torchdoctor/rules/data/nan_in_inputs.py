"""A batch's inputs hold NaN or Inf.

## What it means
At least one number that goes into the model is NaN or infinite. A linear layer multiplies it with every weight, so
the outputs of that sample are NaN, the loss (a mean over the batch) is NaN, every gradient is NaN, and after one
update every weight is. From then on no batch, however clean, gives anything but NaN.

## Why it happens
- Missing values in a table: an empty CSV cell is read as NaN.
- Standardising a constant column: its standard deviation is zero, and 0/0 is NaN.
- The logarithm of a zero or negative value, or a ratio with a zero below it, while features are made.
- A float16 array that held values above 65504.
- A broken file or sensor: one sample in a hundred thousand is enough.

## How it is detected
The batches that go into the model are examined for NaN and Inf. The finding is an error where the loss was finite
before such a batch and not after it. Where the loss stays finite, what happened on the way decides: if the outputs
of the model's modules held NaN, some batches are wasted or skipped (warning); if nothing behind the batch was
touched, the model replaces or masks the values on purpose (info).

## How to fix it
Find the samples and columns named in the evidence and decide for each column whether to drop the rows, to fill them
in (mean, median, an extra "is missing" column), or to repair what made them. Do it where the data is loaded, once,
and fail loudly if it comes back: `assert torch.isfinite(X).all()`. Clipping gradients or lowering the learning
rate does not help: the NaN is there before the first multiplication.

## Known false alarms
Models that take missing values as NaN and replace them inside `forward` are told of by an info only. Additive
attention masks of -inf are not inputs in this sense.

## References
PyTorch documentation, "torch.isfinite" and "torch.nan_to_num". Little and Rubin, "Statistical Analysis with Missing
Data" (3rd edition, 2019). Sculley et al., "Hidden Technical Debt in Machine Learning Systems" (2015).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.findings import Finding, Fix, Place, Proof, Severity
from torchdoctor.rules.nonfinite import Contamination, Outcome, chain, contamination, listed
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import INPUT_NONFINITE

RULE = Rule(
    code="D001",
    name="nan-in-inputs",
    family="data",
    needs=(INPUT_NONFINITE,),
    explains=(
        "nan-in-targets",
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
    found = contamination(run, "input")
    if found is None:
        return
    if found.outcome is Outcome.FOLLOWED and not found.is_partial:
        return
    yield RULE.finding(
        severity=found.severity,
        confidence=found.confidence,
        title=f"{found.what} in the inputs of {found.when}"
        + (", made between the loader and the first layer" if found.is_between else ""),
        summary=found.consequence("The inputs hold", "The model replaces or masks them, as far as can be seen."),
        fix=repair(found),
        evidence=[*found.evidence(INPUT_NONFINITE.name), *chain(run)],
        proof=Proof.STRUCTURE,
        where=[Place(file=found.file, line=found.line)] if found.file else [],
        first_step=found.step,
        symptoms=found.symptoms,
    )


def repair(found: Contamination) -> Fix:
    if found.severity is Severity.INFO:
        return Fix("If this is intended, nothing. Otherwise clean the inputs where they are loaded.")
    columns = f" (columns {listed(found.features)})" if found.features else ""
    if found.is_between:
        made_by = f": {found.made_by}" if found.made_by is not None else ""
        return Fix(
            "The values became non-finite after the loader handed the batch out and before a layer of the model used "
            "it: in the script, or at the beginning of the model's forward. Check the operations in between and what "
            f"they combine the batch with{made_by}.",
        )
    return Fix(
        f"Drop or fill in the samples with missing values{columns} before training, and find what made them.",
        "keep = torch.isfinite(X).flatten(1).all(dim=1); X, y = X[keep], y[keep]",
    )
