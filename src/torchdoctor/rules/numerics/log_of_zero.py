"""A logarithm is taken of zero, or of less.

## What it means
The log of zero is minus infinity, and its gradient is infinite, too. One such value in a batch makes the loss
infinite, or NaN where it is multiplied by zero (p log p), and one step later every weight is NaN.

## Why it happens
- A probability underflows: `torch.log(torch.softmax(x, -1))` gives exact zeros for scores about 100 apart.
- Probabilities that are zero by construction: sparse gates, masked attention, hard assignments, one-hot targets.
- A rate, scale or distance that ends in a ReLU or an absolute value, and so may be exactly zero.

## How it is detected
When a loss or gradient is not finite, the step is run again in a copy of the process, and every operation is checked:
the cause is the first that made something infinite or NaN of finite numbers, forward or backward. Here it is a log of
zero or less, or the gradient of one. Where that cannot be done (several processes), the graph of the broken loss still
holds what went into each operation, and is walked in the order of the forward pass. Where the loss stayed finite (the
bad entries were masked out afterwards) and gradients or weights then became NaN, a log that had been seen with such an
input is named, less surely.

## How to fix it
Use the form that never leaves the log domain: `F.log_softmax`, `F.logsigmoid`, `F.cross_entropy` on raw scores,
`torch.special.xlogy` for p log p; else `torch.log(x.clamp_min(1e-8))`. Masking the result is not enough: the gradient
of the masked entry is still 0 times infinity.

## Known false alarms
A log of zero that does no harm is not told: without a NaN or Inf in loss, gradients or weights there is no finding.
Where the loss had grown far above its start before, numbers were out of range anyway, and this is a warning beside
the cause. On a GPU the graph is gone when the loss is read; `torchdoctor replay` helps where it was captured in time.

## References
PyTorch documentation, "torch.special.xlogy", "torch.nn.functional.log_softmax". Goodfellow, Bengio and Courville,
"Deep Learning", 2016, section 4.1 (overflow and underflow).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.findings import Finding, Fix
from torchdoctor.rules.numerics.operands import argument_of, guarded
from torchdoctor.rules.numerics.operations import CONSEQUENCES, Birth, find_birth, tell
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

RULE = Rule(code="N001", name="log-of-zero", family="numerics", needs=(LOSS_TRAIN,), explains=CONSEQUENCES)


def detect(run: Run) -> Iterator[Finding]:
    birth = find_birth(run, "log")
    if birth is None:
        return
    below = birth.value is not None and birth.value < 0
    yield from tell(
        run,
        RULE,
        birth,
        what="the log of a negative number" if below else "the log of zero",
        edge="are zero or less" if below else "are exactly zero",
        fix=Fix(
            "Stay in the log domain (log_softmax, logsigmoid, cross_entropy on raw scores, xlogy for p log p), or keep "
            "what goes into the log above zero.",
            _code(birth),
        ),
    )


def _code(birth: Birth) -> str:
    quantity = argument_of(birth.source_line, "log", "log2", "log10")
    if quantity is None:
        return "torch.log(value.clamp_min(1e-8))"
    return guarded(quantity, "clamp_min(1e-8)", "torch.log({})")
