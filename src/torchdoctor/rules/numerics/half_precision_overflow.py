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
When a loss or gradient is not finite, the step is run again in a copy of the process, and every operation is checked:
the cause is the first that made something infinite or NaN of finite numbers, forward or backward. Here its result is in
float16 and would fit float32. Where that cannot be done (several processes), the graph of the broken loss still holds
what the operations kept. On looks the float16 denominators in the graph are read, too: one that is infinite makes its
quotient zero, and no loss ever shows it. And a warning comes before the overflow where the largest output of a layer in
float16 has grown sixteenfold, stands within two powers of two of 65504, and a steady growth (a line through the
logarithms of the run's second half that explains nine tenths) meets it before the run has gone on for another quarter.
Otherwise the headroom that is left is told as what speaks against this diagnosis.

## How to fix it
Compute that part in float32 (`x.float()` before it, or a block with autocast disabled); use bfloat16, which has
float32's range and needs no scaler; normalise or scale before the sum (divide attention scores by the root of the
width).

## Known false alarms
An intended mask of minus infinity is not counted: what is infinite must come out of an operation. Gradients that
overflow under a scaler which then halves its scale are how it works, and are not told here. A softmax, a norm or a
loss in float16 is no finding by itself: torch's kernels add up in float32 inside, and on a CPU autocast itself leaves
softmax, exponentials and norms in float16; they are told as evidence where something overflowed. Where the loss had
grown far above its start before, this is a warning beside the cause. On a GPU the graph is gone when the
loss is read: there the scaler's scale speaks (loss-scale-collapse), and `torchdoctor replay`.

## References
Micikevicius et al., "Mixed precision training", 2018. PyTorch documentation, "Automatic mixed precision package".
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import BirthFact, OperationFact, PrecisionFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.nonfinite import loss_broke_at
from torchdoctor.rules.numerics import headroom
from torchdoctor.rules.numerics.operations import CONSEQUENCES, Birth, find_birth, tell
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACTIVATION, LOSS_TRAIN

RULE = Rule(
    code="N005",
    name="half-precision-overflow",
    family="numerics",
    needs=(LOSS_TRAIN,),
    explains=(*CONSEQUENCES, "half-precision-underflow"),
)
MOSTLY = 0.5
"""Where so many values were set to zero by it the layer as a whole is dead."""
NAMES = {
    "Div": "a denominator",
    "Reciprocal": "a denominator",
    "Rsqrt": "what rsqrt is taken of",
    "LinalgVectorNorm": "a norm",
    "Norm": "a norm",
}


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    birth = find_birth(run, "half")
    if birth is not None and (birth.checked or not birth.backward):
        yield from _tell_birth(run, birth)
    elif loss_broke_at(run) is None:
        yield from _tell_swallowed(run) or _tell_headroom(run)


def _tell_birth(run: Run, birth: Birth) -> Iterator[Finding]:
    yield from tell(
        run,
        RULE,
        birth,
        what="float16 overflows",
        edge="are beyond 65504, the end of float16",
        fix=_fix(run, birth.fact),
        unit="largest value that still fits",
        more=[*headroom.describe(run, birth.step), *headroom.delicate(run, "float16")],
    )


def _fix(run: Run, fact: OperationFact | BirthFact | None) -> Fix:
    text = "Compute this part in float32, or use bfloat16, which has float32's range."
    precision = run.last_fact(PrecisionFact)
    if isinstance(fact, BirthFact) and fact.operator == "_to_copy":
        return Fix("Leave these values in float32, or cast to bfloat16, which has float32's range.", ".bfloat16()")
    if precision is not None and precision.asked:
        return Fix(text, f'with torch.autocast("{precision.device}", dtype=torch.bfloat16):')
    return Fix(text, "model = model.to(torch.bfloat16)  # or: x = x.float() before this line")


def _tell_swallowed(run: Run) -> list[Finding]:
    """An infinite denominator: what was divided by it is zero, and the loss stays finite."""
    facts = [(s, f) for s, f in run.facts_at(OperationFact) if f.trouble == "half" and f.over and not f.born]
    if not facts:
        return []
    step, fact = facts[0]
    latest = [f for _, f in facts if (f.operator, f.line) == (fact.operator, fact.line)][-1]
    worst = max(f.count / max(f.total, 1) for _, f in facts)
    name = NAMES.get(fact.operator, fact.operator.lower())
    line = f" at line {fact.line}" if fact.line else ""
    evidence = [
        Evidence(
            f"step {step}: {fact.count} of {fact.total} values of {name}{line} are beyond 65504, the end of float16",
            "operation",
            step,
        ),
        Evidence("what is divided by an infinite value is zero: the loss stays finite and hides it"),
    ]
    if latest.count > fact.count:
        evidence.append(Evidence(f"later {latest.count} of {latest.total} of them", "operation", float(latest.count)))
    return [
        RULE.finding(
            severity=Severity.ERROR if worst >= MOSTLY else Severity.WARNING,
            confidence=0.93,
            title=f"float16 overflows from step {step} on ({name}{line}), and a division hides it",
            summary=f"In at least {worst:.0%} of its values {name} is infinite in float16. What is divided by it "
            "becomes zero, so no NaN shows, and nothing is learned from these samples.",
            fix=_fix(run, fact),
            evidence=[*evidence, *headroom.describe(run), *headroom.delicate(run, "float16")],
            proof=Proof.STRUCTURE,
            where=known(Place(module=fact.module, file=fact.file, line=fact.line)),
            first_step=step,
            symptoms=("flat-after-drop",) if step > 1 else ("flat-from-start",),
        )
    ]


def _tell_headroom(run: Run) -> Iterator[Finding | RuledOut]:
    layers = headroom.of_outputs(run)
    if not layers:
        return
    closing = [(met, h) for h in layers if (met := h.meets(run.steps)) is not None]
    if not closing:
        text = f"outputs in float16 keep {layers[0].last:.1f} powers of two to 65504 (least in {layers[0].name})"
        yield RuledOut(RULE.name, text, ACTIVATION["absmax"].name, layers[0].last)
        return
    met, nearest = min(closing, key=lambda item: item[0])
    yield RULE.finding(
        severity=Severity.WARNING,
        confidence=0.8,
        title=f"outputs of layer {nearest.name} grow to the end of float16: {nearest.last:.1f} powers of two are left",
        summary=f"They were {2 ** (nearest.first - nearest.last):,.0f} times smaller at the start, and at this pace "
        f"are beyond 65504 at about step {met:,}: then they are infinite.",
        fix=Fix(
            "Find why they grow (a missing normalisation, a rate too high, no weight decay), or use bfloat16, which "
            "has float32's range.",
            _fix(run, None).code,
        ),
        evidence=[*headroom.describe(run), *headroom.delicate(run, "float16")],
        proof=Proof.STATISTICS,
        where=[Place(module=nearest.name)],
        first_step=int(nearest.steps[len(nearest.steps) // 2]),
        symptoms=("nan-later",),
    )
