"""Mixed precision was asked for and is not in effect, or only in parts.

## What it means
The script speaks of autocast or scales its loss, but the matrix products of its model are made in float32 all the same.
Nothing is wrong with the result; the speed and the memory that mixed precision was to bring are not there.

## Why it happens
- The forward pass stands outside the `with torch.autocast(...)` block, which holds the loss only.
- The block is for another device than the model's (`"cuda"` while the model is on the CPU): torch switches it off.
- A gradient scaler is used and the autocast block was forgotten, or has `enabled=False`.
- Inputs are float64: autocast leaves them alone.

## How it is detected
On the first steps and now and then later, the blocks that a training step enters are noted, and the graph behind its
loss is walked: every matrix product and convolution tells in which type it was made. A warning is given where none of
them is in a lower type although it was asked for, or fewer than half.

## How to fix it
Put the forward pass and the loss inside the block, backward outside:
`with torch.autocast(device.type, dtype=torch.bfloat16): loss = criterion(model(x), y)`. bfloat16 needs no scaler.

## Known false alarms
Blocks that the script itself switches off (`enabled=False`, as for a machine without the device) do not ask for
anything. Parts kept in float32 by an inner block with `enabled=False` are a choice, and then nothing is said unless
all products are in float32.

## References
PyTorch documentation, "Automatic Mixed Precision package - torch.amp".
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import PrecisionFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(code="T018", name="autocast-not-applied", family="procedure", needs=(PrecisionFact,), explains=())

LOWER = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
LEAST_SHARE = 0.5
"""Autocast takes every matrix product; a loss by hand or one odd layer leaves some, never half of them."""
LEAST_PRODUCTS = 2
"""A single product may be one of the loss."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    facts = [(step, f) for step, f in run.facts_at(PrecisionFact) if sum(f.products.values()) >= LEAST_PRODUCTS]
    asked = [(step, f) for step, f in facts if f.asked or f.scaler]
    if not asked:
        return
    poor = [(step, f) for step, f in asked if _share(f) < LEAST_SHARE and not _is_chosen(f)]
    if len(poor) > len(asked) / 2:
        yield _finding(run, poor[0][0], poor[-1][1])
    elif not poor:
        text = f"{_share(asked[-1][1]):.0%} of the matrix products were made in the lower precision that was asked for"
        yield RuledOut(RULE.name, text, value=_share(asked[-1][1]))


def _share(fact: PrecisionFact) -> float:
    return sum(n for kind, n in fact.products.items() if kind in LOWER) / sum(fact.products.values())


def _is_chosen(fact: PrecisionFact) -> bool:
    """The script itself keeps it off, for a part or (without a scaler that asks for it) for all."""
    return fact.switched_off and (_share(fact) > 0 or not (fact.asked or fact.scaler))


def _finding(run: Run, step: int, fact: PrecisionFact) -> Finding:
    total = sum(fact.products.values())
    lower = round(_share(fact) * total)
    elsewhere = [d for d in fact.asked if d != fact.device]
    dtype = "torch.bfloat16"
    code = f'with torch.autocast("{fact.device}", dtype={dtype}):\n    loss = criterion(model(x), y)'
    if lower:
        title = f"autocast reaches {lower} of {total} matrix products only"
        text = "Part of the forward pass stands outside the autocast block."
    elif elsewhere and len(elsewhere) == len(fact.asked):
        title = f"autocast is for {elsewhere[0]}, the model is on {fact.device}: all {total} products are in float32"
        text = "The block is for another device than the one that computes, so it does nothing."
    elif fact.asked:
        title = f"autocast is entered, but all {total} matrix products of the model are made outside it"
        text = "The forward pass does not run inside the autocast block."
    else:
        title = f"the loss is scaled for half precision, but all {total} matrix products are in float32"
        text = "A gradient scaler is at work without autocast: there is nothing that it protects."
    counts = ", ".join(f"{n} in {kind}" for kind, n in sorted(fact.products.items()))
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9 if not lower else 0.75,
        proof=Proof.STRUCTURE,
        title=title,
        summary=f"{text} Training runs at the speed and with the memory of full precision.",
        where=known(Place(file=fact.file, line=fact.line)),
        first_step=step,
        last_step=run.steps,
        evidence=[
            Evidence(f"matrix products and convolutions in the graph of the loss: {counts}", value=_share(fact)),
            Evidence(
                f"asked for: {'autocast on ' + ', '.join(fact.asked) if fact.asked else 'no autocast'}"
                + (", with a gradient scaler" if fact.scaler else ""),
                value=LEAST_SHARE,
            ),
        ],
        fix=Fix("Put the forward pass and the loss inside an autocast block for the device that computes.", code),
        symptoms=("slow-steps",),
    )
