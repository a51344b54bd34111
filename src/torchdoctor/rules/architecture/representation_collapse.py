"""Features shrink to a point: what comes out does not depend on what goes in.

## What it means
All samples of a batch are turned into (nearly) the same vector. Whatever is learned on top of it can at best predict
the average. In training by agreement of two views (siamese networks, two towers) the loss looks excellent: two equal
outputs agree, and agreeing is all that was asked for.

## Why it happens
- Pairs are pulled together and nothing pushes others apart: no negatives, no variance term, no predictor with a
  stopped gradient.
- Pooling or normalising over the batch's dimension instead of the sequence's; an input that is overwritten.
- Too many rounds of averaging over neighbours in a graph network; attention without residual connections.
- Penalties or weight decay so strong that the best answer is a constant.

## How it is detected
The last layers' inputs and the directions of their outputs are looked at over the samples of a batch: their standard
deviation relative to their root mean square, and the effective number of directions. It is an error if all samples gave
the same from the first look to the last, bit for bit, though the inputs vary and the loss goes nowhere; a warning if,
where the loss compares outputs with one another, the spread fell under 10 % and to less than a fifth of what it was (an
error under 2 %); or if, where the loss is stuck, that of the features fell under 1 %. As other causes leave the same
trace, this diagnosis stands behind any that is proved.

## How to fix it
Add what keeps samples apart: negatives (InfoNCE, triplets), a variance term (VICReg), a predictor with a stopped
gradient (BYOL, SimSiam). In a supervised model follow one batch through the layers and print `x.std(0).mean()`.

## Known false alarms
Outputs with one unit, token ids whose spread is unknown, constant inputs, stacks of three or more sigmoids or tanhs
(where gradients vanish: a diagnosis of its own) and regression targets that are nearly constant themselves are left
out. A last layer started at zero gives a constant at the first look only.

## References
Bardes, Ponce and LeCun, "VICReg" (2022). Jing et al., "Understanding dimensional collapse in contrastive
self-supervised learning" (2022). Oono and Suzuki, "Graph neural networks exponentially lose expressive power for node
classification" (2020). Dong, Cordonnier and Loukas, "Attention is not all you need" (2021).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, GraphFact, LossCallFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.loss_curve import broken_at, loss_curve
from torchdoctor.rules.loss_graph import LossGraph
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import REPRESENTATION_RANK, REPRESENTATION_SPREAD

RULE = Rule(
    code="A014",
    name="representation-collapse",
    family="architecture",
    needs=(REPRESENTATION_SPREAD,),
    explains=(
        "learning-rate-too-low",
        "learning-rate-decayed-too-early",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "majority-class-collapse",
        "metric-disagrees-with-loss",
        "over-regularized",
        "miscalibrated",
    ),
    fallback=True,
)

SAME = 1e-6
"""Relative spread below which rows of float32 are equal but for rounding."""
COLLAPSED = 0.1
"""Spread of directions where the loss compares them: embeddings that tell samples apart give 0.5 to 1."""
GONE = 0.02
STUCK_SPREAD = 0.01
"""Spread relative to the root mean square: fresh networks give 0.1 to 1, trained ones no less."""
FELL = 5.0
"""Times by which the spread must have fallen to have been lost in training."""
INPUTS_VARY = 0.05
MIN_LOOKS, MIN_STEPS = 5, 50
SQUASHING = 3
"""Sigmoid or tanh layers in a row in which signals fade on their own."""
COMPARING = ("cosine_embedding_loss", "triplet_margin_loss", "hinge_embedding_loss", "margin_ranking_loss")
INPUT, OUTPUT = "input", "output of "


@dataclass(frozen=True)
class Layer:
    """One column of the spread over the looks."""

    name: str
    first: float
    end: float
    most: float
    rank: float
    trace: Trace


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    spread = run.matrix(REPRESENTATION_SPREAD)
    until = broken_at(run)
    if until is not None:
        spread = spread.between(0, until - 1)
    layers = [layer for name in spread.columns if (layer := _layer(run, name, spread.column(name)))]
    given = next((layer for layer in layers if layer.name == INPUT), None)
    layers = [layer for layer in layers if layer.name != INPUT]
    if not layers or (given is not None and given.end < INPUTS_VARY):
        return
    compares = _compares_outputs(run)
    said = _identical(run, layers) or (_drawn_together(layers) if compares else _lost(run, layers))
    if said is not None:
        yield said
        return
    least = min(layers, key=lambda layer: layer.end)
    if least.end > 2 * COLLAPSED:
        text = f"{least.name} differ between samples by {least.end:.0%} of their size"
        yield RuledOut(RULE.name, text, REPRESENTATION_SPREAD.name, least.end)


def _layer(run: Run, name: str, trace: Trace) -> Layer | None:
    finite = trace.values[np.isfinite(trace.values)]
    if len(finite) < MIN_LOOKS or run.steps < MIN_STEPS:
        return None
    ranks = run.matrix(REPRESENTATION_RANK)
    rank = ranks.column(name).values if name in ranks.columns else np.zeros(0)
    rank = rank[np.isfinite(rank)]
    quarter = max(2, len(finite) // 4)
    return Layer(
        name,
        float(np.median(finite[:2])),
        float(np.median(finite[-quarter:])),
        float(finite.max()),
        float(rank[-1]) if len(rank) else float("nan"),
        trace,
    )


def _compares_outputs(run: Run) -> bool:
    """The loss sets outputs against each other: one layer's output is in it twice, or a loss of pairs was called."""
    if any(c.function in COMPARING for c in run.facts(LossCallFact)):
        return True
    for fact in run.facts(GraphFact):
        graph = LossGraph(fact)
        uses = Counter(o.parameters[0] for o in graph.operators if o.parameters)
        compared = any(o.name == "MseLoss" and len(graph.inputs(o)) == 2 for o in graph.operators)
        if compared or (max(uses.values(), default=0) >= 2 and not _is_supervised(run)):
            return True
    return False


def _is_supervised(run: Run) -> bool:
    return any(c.phase == TRAIN and c.function not in COMPARING for c in run.facts(LossCallFact))


def _identical(run: Run, layers: list[Layer]) -> Finding | None:
    """Every sample gave the same at every look."""
    loss = loss_curve(run)
    same = [layer for layer in layers if layer.most <= SAME and not layer.name.startswith(OUTPUT)]
    squashing = sum(m.activation in ("sigmoid", "tanh") for m in run.modules.values())
    if not same or squashing >= SQUASHING or (loss is not None and not loss.stuck):
        return None
    return _finding(
        same,
        Severity.ERROR,
        0.93,
        "all samples give the same output, whatever the input",
        "From the first look on every sample of a batch is turned into the same vector, though the inputs differ. "
        "Something on the way mixes or replaces the samples: pooling or normalising over the batch, or a constant.",
        Fix(
            "Pool over the sequence or the points, not over the batch; follow one batch through the layers to find "
            "where samples become equal.",
            "print(hidden.std(0).mean())  # after each layer: where it becomes 0 the samples are lost",
        ),
        ("stuck-at-chance", "flat-from-start"),
        Proof.STRUCTURE,
    )


def _drawn_together(layers: list[Layer]) -> Finding | None:
    gone = [layer for layer in layers if layer.end < COLLAPSED and layer.first > FELL * layer.end]
    outputs = [layer for layer in gone if layer.name.startswith(OUTPUT)]
    if not outputs:
        return None
    return _finding(
        outputs,
        Severity.ERROR if outputs[0].end < GONE else Severity.WARNING,
        0.92,
        "the embeddings have collapsed to a point",
        "The loss only asks outputs to agree, and the model has found the easy answer: the same output for every "
        "sample. A low loss says nothing here.",
        Fix(
            "Keep different samples apart: negatives (InfoNCE), a variance term, or a predictor with a stopped "
            "gradient.",
            "loss = loss + F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()  # keeps every direction of z spread out",
        ),
        ("too-good-too-soon",),
    )


def _lost(run: Run, layers: list[Layer]) -> Finding | None:
    """Where a supervised loss goes nowhere: features that no longer tell samples apart."""
    loss, targets = loss_curve(run), baseline.targets(run)
    features = [layer for layer in layers if not layer.name.startswith(OUTPUT) and layer.end < STUCK_SPREAD]
    squashing = sum(m.activation in ("sigmoid", "tanh") for m in run.modules.values())
    if loss is None or not loss.stuck or not features or squashing >= SQUASHING or not _is_supervised(run):
        return None
    if targets is not None and targets.std < STUCK_SPREAD * max(abs(targets.mean), 1e-12):
        return None
    return _finding(
        features,
        Severity.WARNING,
        0.65,
        "the last features hardly differ between samples, and the loss is stuck",
        "What the last layer gets is nearly the same for every sample, so it can only predict the average.",
        Fix(
            "Follow one batch through the layers and look where the samples become alike; residual connections, "
            "normalisation or fewer layers keep them apart.",
            "print(hidden.std(0).mean())  # after each layer",
        ),
        ("stuck-at-chance",),
    )


def _finding(
    layers: list[Layer],
    severity: Severity,
    confidence: float,
    title: str,
    summary: str,
    fix: Fix,
    symptoms: tuple[str, ...],
    proof: Proof = Proof.STATISTICS,
) -> Finding:
    worst = min(layers, key=lambda layer: layer.end)
    finite = worst.trace.values[np.isfinite(worst.trace.values)]
    onset = np.flatnonzero(np.isfinite(worst.trace.values) & (worst.trace.values < COLLAPSED))
    return RULE.finding(
        severity=severity,
        confidence=confidence,
        proof=proof,
        title=title,
        summary=summary,
        where=[Place(module=layer.name.rpartition(" ")[2]) for layer in layers[:3]],
        first_step=int(worst.trace.steps[onset[0]]) if len(onset) else None,
        evidence=[
            Evidence(
                f"{worst.name}: differences between samples are {curves.figure(worst.end)} of their size, "
                f"{curves.figure(worst.first)} at the start",
                REPRESENTATION_SPREAD.name,
                worst.end,
                COLLAPSED,
                curves.spark(finite),
            ),
            Evidence(f"they vary along {worst.rank:.1f} directions", REPRESENTATION_RANK.name, worst.rank),
        ],
        fix=fix,
        symptoms=symptoms,
    )
