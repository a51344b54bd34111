"""Something is divided by zero.

## What it means
x / 0 is infinite and 0 / 0 is NaN. One such value in a batch makes the loss NaN, and with the next update every
weight.

## Why it happens
- A mean over a mask or selection that is empty in some batch: `(loss * mask).sum() / mask.sum()`,
  `loss[mask].mean()`.
- A vector divided by its length, or values by their standard deviation, where all of them are zero or equal.
- A variance of a single value: the unbiased one divides by n - 1.
- A ratio of two predictions, a harmonic mean or an F-score without any positive.

## How it is detected
When a loss or gradient is not finite, the step is run again in a copy of the process, and every operation is checked:
the cause is the first that made something infinite or NaN of finite numbers, forward or backward. Here it is a
division, an inverse, a negative power, the mean of nothing, a variance of too few values, or a softmax over nothing but
minus infinity. Where that cannot be done (several processes), the graph of the broken loss still holds the divisors.

## How to fix it
Bound the divisor from below: `/ mask.sum().clamp_min(1)`, `/ (std + 1e-6)`; use `F.normalize`, `F.cosine_similarity`
and `nn.LayerNorm`, which do; leave out empty batches. `torch.where` around the quotient is not enough: the gradient
of the entry that was left out is still 0 times infinity.

## Known false alarms
A division by zero without any NaN or Inf in loss, gradients or weights is not told. Where the loss had grown far
above its start before, this is a warning beside the cause. On a GPU the graph is gone when the loss is read;
`torchdoctor replay` helps where it was captured in time.

## References
PyTorch documentation, "torch.nn.functional.normalize", "torch.Tensor.clamp_min". Goodfellow, Bengio and Courville,
"Deep Learning", 2016, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import BirthFact
from torchdoctor.findings import Finding, Fix
from torchdoctor.rules import births
from torchdoctor.rules.numerics.operands import divisor_of, guarded
from torchdoctor.rules.numerics.operations import CONSEQUENCES, Birth, find_birth, tell
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

RULE = Rule(code="N002", name="division-by-zero", family="numerics", needs=(LOSS_TRAIN,), explains=CONSEQUENCES)
SPREADS = ("std", "var", "stdmean", "varmean")


def detect(run: Run) -> Iterator[Finding]:
    birth = find_birth(run, "division")
    if birth is None:
        return
    what, edge, code = _words(birth)
    yield from tell(
        run,
        RULE,
        birth,
        what=what,
        edge=edge,
        fix=Fix("Keep the divisor above zero, or leave out what has none.", code),
        unit="smallest divisor",
    )


def _words(birth: Birth) -> tuple[str, str, str]:
    """What happens, at which edge, and how to write it instead."""
    if isinstance(birth.fact, BirthFact) and births.is_masked_row(birth.fact):
        code = "mask = mask | ~mask.any(dim=-1, keepdim=True)  # True where attention is allowed"
        return "a softmax over nothing", "come from rows in which everything is masked", code
    if birth.operator == "mean":
        return "the mean of nothing", "are over an empty selection", "loss[mask].sum() / mask.sum().clamp_min(1)"
    if birth.operator.replace("_", "") in SPREADS:
        return "the spread of too few values", "are over too few values", "value.std(dim=0, correction=0)"
    if birth.operator == "atan2":
        return "atan2 at the origin", "have both coordinates zero", "torch.atan2(y, x + 1e-8)"
    divisor = divisor_of(birth.source_line)
    code = guarded(divisor, "clamp_min(1e-8)", "{}") if divisor is not None else "value / divisor.clamp_min(1e-8)"
    return "a division by zero", "are divided by zero", code
