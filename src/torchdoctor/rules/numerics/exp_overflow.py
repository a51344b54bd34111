"""An exponential overflows.

## What it means
exp(x) is infinite from x = 88.7 on in float32 and bfloat16, and from 11.1 on in float16. A softmax written by hand
then divides infinity by infinity, and the loss is NaN.

## Why it happens
- A softmax, log-sum-exp, softplus or sigmoid written out with exp.
- Scores over a small temperature: a cosine of 1 over 0.01 is 100.
- Attention scores that are not divided by the root of their width.
- A log-variance or log-rate that nothing bounds.

## How it is detected
When a loss or gradient is not finite, the step is run again in a copy of the process, and every operation is checked:
the cause is the first that made something infinite or NaN of finite numbers, forward or backward. Here it is an exp.
Where that cannot be done (several processes), the graph of the broken loss still holds the results of the exponentials.

## How to fix it
`torch.softmax`, `torch.logsumexp`, `F.softplus`, `F.cross_entropy` on raw scores: they subtract the largest score
first. Bound a log-variance before exp: `log_var.clamp(max=10)`.

## Known false alarms
An infinite exp that does no harm (1 / (1 + exp(x)) is a plain 0) is not told while loss, gradients and weights are
finite. Where the loss had grown far above its start before, this is a warning beside the cause. On a GPU the graph is
gone when the loss is read; `torchdoctor replay` helps where it was captured in time.

## References
PyTorch documentation, "torch.logsumexp". Goodfellow, Bengio and Courville, "Deep Learning", 2016, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.findings import Finding, Fix
from torchdoctor.rules.numerics.operations import CONSEQUENCES, find_birth, tell
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

RULE = Rule(code="N004", name="exp-overflow", family="numerics", needs=(LOSS_TRAIN,), explains=CONSEQUENCES)


def detect(run: Run) -> Iterator[Finding]:
    birth = find_birth(run, "exp")
    if birth is None:
        return
    yield from tell(
        run,
        RULE,
        birth,
        what="an exponential overflows",
        edge="are beyond what the type can hold",
        fix=Fix(
            "Use torch.softmax, torch.logsumexp or F.softplus, which subtract the largest score first; bound what is "
            "exponentiated by itself.",
            "torch.softmax(scores, dim=-1)  # or torch.logsumexp(scores, dim=-1) for log(exp(scores).sum(-1))",
        ),
        unit="largest result",
    )
