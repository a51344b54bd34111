"""A value is beyond what float16 can hold.

## What it means
float16 ends at 65504. A sum, square or product beyond that is infinite, and the next subtraction or division makes
NaN of it. A gradient scaler cannot help: it lowers its scale again and again, but the overflow is in the forward
pass.

## Why it happens
- Sums over many elements (energies, dot products of wide vectors, attention scores) computed in float16.
- Squares: 256 times 256 is already too large, so a norm or variance by hand overflows early.
- Activations that grow from layer to layer without normalisation, or a model cast to half as a whole.

## How it is detected
When a loss is not finite, its graph still holds what the operations kept. If the first thing that is infinite or NaN,
in the order of the forward pass, is a float16 tensor (or was computed from one), while everything before it is
finite, the format was too small.

## How to fix it
Compute that part in float32 (`x.float()` before it, or a block with autocast disabled); use bfloat16, which has
float32's range; normalise or scale before the sum (divide attention scores by the root of the width).

## Known false alarms
An intended mask of minus infinity is not counted: what is infinite must come out of an operation. Where the loss had
grown far above its start before, this is a warning beside the cause. On a GPU the graph is gone when the loss is
read, so nothing is said there but by the scaler's scale (loss-scale-collapse).

## References
Micikevicius et al., "Mixed precision training", 2018. PyTorch documentation, "Automatic mixed precision package".
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.findings import Finding, Fix
from torchdoctor.rules.numerics.operations import CONSEQUENCES, find_birth, tell
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

RULE = Rule(code="N005", name="half-precision-overflow", family="numerics", needs=(LOSS_TRAIN,), explains=CONSEQUENCES)


def detect(run: Run) -> Iterator[Finding]:
    birth = find_birth(run, "half")
    if birth is None or (birth.backward and not birth.checked):
        return
    yield from tell(
        run,
        RULE,
        birth,
        what="float16 overflows",
        edge="are beyond 65504, the end of float16",
        fix=Fix(
            "Compute this part in float32, or use bfloat16, which has the same range.",
            "with torch.autocast(device_type, dtype=torch.bfloat16):",
        ),
        unit="largest value that still fits",
    )
