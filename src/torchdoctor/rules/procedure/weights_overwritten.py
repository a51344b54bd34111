"""The weights are overwritten while the optimizer trains them.

## What it means
Between the end of one update and the start of the next, something else writes into the parameters and throws away what
was learned: every epoch starts again from the same weights, or part of the model never keeps its updates. The
optimizer's own state (momentum, second moments) goes on as if nothing had happened.

## Why it happens
- An initialisation (`model.apply(init_weights)`, `reset_parameters()`) stands inside the epoch loop.
- A state that was kept once ("best weights") is loaded after every epoch and never kept anew.
- Averaged weights are swapped in for the evaluation and not swapped out again, or copied into the model now and then.
- Weights are tied by copying one tensor into the other after every update, instead of sharing one parameter.

## How it is detected
By state: fingerprints of what the optimizers hold are taken after an update, and at the ends of epochs, and again when
the next update begins. A change alone is no fault. It is one if, time and again and under the same optimizer, the
values found are bit for bit those of one earlier state; if most of the model was given to an initialiser; if the values
are those that the validation in between was run with and the ones trained are gone; if, time and again, three quarters
and more of the way that most of the model has gone since the last time are taken back (an average of the weights that
is copied into the model); or if a tensor is each time an exact copy of another parameter.

## How to fix it
Initialise before the loop. Keep a new copy whenever the score improves, and restore it once, after the loop. Put the
trained weights back after the evaluation. Tie by assigning the parameter itself:
`model.head.weight = model.embedding.weight`, before the optimizer is built.

## Known false alarms
Weight clipping, projections, pruning masks, noise, lookahead, averaging over workers and manual updates change weights
without bringing an old state back and are not reported. Neither are networks that no optimizer holds (targets,
teachers, averages), swaps that are undone before the next update, and restarts with an optimizer of their own (folds,
tasks, rounds). Rolling back to the best weights now and then does not come back to one state at every epoch, and where
the rate is lowered each time it is meant. Small vectors that a projection pins to its bound are not counted.

## References
PyTorch documentation, "Saving and Loading Models" (state_dict returns references); Press and Wolf, "Using the Output
Embedding to Improve Language Models" (2017), on tying.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from torchdoctor.facts import OverwriteFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE

RULE = Rule(
    code="T017",
    name="weights-overwritten",
    family="procedure",
    needs=(OverwriteFact,),
    explains=(
        "underfitting",
        "overfitting",
        "capacity-too-low",
        "plateau-or-saddle",
        "learning-rate-too-low",
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "learning-rate-decayed-too-early",
        "not-shuffled",
        "stale-evaluation",
        "resume-without-state",
        "noisy-validation",
        "validation-better-than-training",
        "bad-initialization-scale",
        "missing-warmup",
        "outlier-batch",
        "majority-class-collapse",
        "no-parameter-update",
        "weak-slice",
        "miscalibrated",
    ),
)

LEAST_TIMES = 2
"""Once may be a rollback or a deliberate restart."""
TIMES_LATE = 3
"""Back to a state other than the first: a rollback to the best weights may hit the same ones twice."""
SHARE_OF_EPOCHS = 0.6
"""Of the looks across epochs: a rollback to the best weights leaves the epochs alone that improve."""
MOST = 0.5
"""Of the elements that optimizers hold: a reset of one layer (as in reinforcement learning) is a method."""
TAKEN_BACK = 0.25
"""Of the way that is left: lookahead keeps a half, projections and noise nearly all of it. Where nothing is left, it is
no average but the same state once more, as a rollback to the best weights brings it back."""
PINNED_ELEMENTS = 64
"""Smaller tensors can come back to the same values by a projection alone."""


@dataclass(frozen=True)
class Kind:
    """One way in which weights are lost, with its repair."""

    facts: Sequence[OverwriteFact]
    severity: Severity
    confidence: float
    title: str
    text: str
    evidence: str
    fix: str
    code: str
    parameters: tuple[str, ...] = ()


def detect(run: Run) -> Iterator[Finding]:
    seen = run.facts_at(OverwriteFact)
    facts = [fact for _, fact in seen]
    kind = (
        _initialised(facts)
        or _restored(run, facts)
        or _evaluated(facts)
        or _averaged(facts)
        or _tied(run, facts)
        or _pinned(run, facts)
    )
    if kind is not None:
        steps = [step for step, fact in seen if fact in kind.facts]
        yield _finding(run, kind, min(steps), max(steps))


def _initialised(facts: Sequence[OverwriteFact]) -> Kind | None:
    again = [f for f in facts if f.how == "init" and f.share >= MOST]
    if len(again) < LEAST_TIMES:
        return None
    share = max(f.share for f in again)
    return Kind(
        again,
        Severity.ERROR,
        0.97,
        f"the weights are initialised anew during training ({len(again)} times)",
        "An initialiser runs over parameters that are being trained, so what was learned is thrown away and training "
        "begins again, with the optimizer's old state.",
        f"{len(again)} times an initialiser wrote into {share:.0%} of what the optimizer holds",
        "Initialise once, before the loop.",
        "model.apply(init_weights)  # once, before the first epoch",
    )


def _restored(run: Run, facts: Sequence[OverwriteFact]) -> Kind | None:
    whole = [
        f
        for f in facts
        if f.share >= MOST and not f.copies and _size(run, f.restored) >= MOST * _size(run, f.parameters)
    ]
    if not whole:
        return None
    step, _ = Counter(f.restored_step for f in whole).most_common(1)[0]
    same = [f for f in whole if f.restored_step == step]
    least = LEAST_TIMES if step == 0 else TIMES_LATE
    last = same[-1]
    if len(same) < least or (not last.within and last.hits < SHARE_OF_EPOCHS * last.looks):
        return None
    if step and _rate_falls(run, same):
        return None
    by = f" by {last.how}" if last.how else ""
    return Kind(
        same,
        Severity.ERROR,
        0.97,
        f"training is thrown back to the weights of step {step}, {len(same)} times so far",
        f"The same old weights are put back{by} again and again while the optimizer goes on, so nothing that is "
        "learned in between stays.",
        f"{len(same)} times the weights found by an update were bit for bit those of step {step}",
        "Keep a new copy of the weights whenever the score improves, and load it once, when training is over.",
        "best_state = copy.deepcopy(model.state_dict())  # whenever the score improves",
    )


def _rate_falls(run: Run, facts: Sequence[OverwriteFact]) -> bool:
    """Each time the rate is lower than the time before: back to the best weights, to go on in smaller steps."""
    steps = [step for step, f in run.facts_at(OverwriteFact) if f in facts]
    keys = [key for key in run.keys(LEARNING_RATE) if key.partition(".")[0] == facts[0].optimizer]
    trace = run.scalar(LEARNING_RATE, keys[0]) if keys else None
    if trace is None or not len(trace):
        return False
    rates = [float(trace.values[max(0, int(np.searchsorted(trace.steps, step, "right")) - 1)]) for step in steps]
    return all(after < before for before, after in pairwise(rates))


def _evaluated(facts: Sequence[OverwriteFact]) -> Kind | None:
    kept = [f for f in facts if f.evaluated and f.share >= MOST and not f.restored]
    if len(kept) < LEAST_TIMES or kept[-1].hits < SHARE_OF_EPOCHS * kept[-1].looks:
        return None
    return Kind(
        kept,
        Severity.WARNING,
        0.85,
        f"weights swapped in for the evaluation stay there when training goes on ({len(kept)} times)",
        "Other weights (an average, a checkpoint) are put into the model for validation and the trained ones are not "
        "put back, so the optimizer goes on from weights that it never reached.",
        f"{len(kept)} times the update after a validation found the weights that were validated, not those it had left",
        "Keep the trained weights before the swap and put them back after the evaluation.",
        "trained = copy.deepcopy(model.state_dict())  # before the swap\n"
        "model.load_state_dict(trained)  # after the evaluation",
    )


def _averaged(facts: Sequence[OverwriteFact]) -> Kind | None:
    back = [f for f in facts if f.share >= MOST and not f.restored and f.kept is not None and 0 < f.kept <= TAKEN_BACK]
    other = [f for f in facts if f.share >= MOST and f.kept is not None and f.kept > TAKEN_BACK]
    if len(back) < LEAST_TIMES or len(back) < len(other):
        return None
    last = back[-1]
    if last.how and not last.within and last.hits < SHARE_OF_EPOCHS * last.looks:
        return None
    share = sorted(f.kept for f in back if f.kept is not None)[len(back) // 2]
    return Kind(
        back,
        Severity.WARNING,
        0.85,
        f"most of what was learned is taken back {len(back)} times: other weights are copied into the model",
        "Something other than the optimizer (an average of the weights, an old copy) writes into the parameters now "
        "and then, and most of the way that training has gone since the last time is lost.",
        f"{len(back)} times an update found only {max(share, 0.0):.0%} of the way that the ones before it had gone",
        "Keep the average in a model of its own and use it for evaluation only.",
        "ema = torch.optim.swa_utils.AveragedModel(model)  # evaluate ema, train model",
    )


def _tied(run: Run, facts: Sequence[OverwriteFact]) -> Kind | None:
    pairs = Counter((n, other) for f in facts for n, other in f.copies.items() if _large(run, n))
    if not pairs:
        return None
    (name, other), times = pairs.most_common(1)[0]
    if times < LEAST_TIMES:
        return None
    return Kind(
        [f for f in facts if name in f.copies],
        Severity.WARNING,
        0.9,
        f"{name} is overwritten with a copy of {other} after every update",
        f"{name} gets gradients and updates of its own, and each of them is thrown away: the tensor is tied by copying "
        "instead of by sharing, so half of the gradient is lost and the optimizer's state is wrong.",
        f"{times} times {name} was found bit for bit equal to {other}, and not as its update had left it",
        "Share one parameter between both modules, before the optimizer is built.",
        f"model.{name} = model.{other}",
        (name,),
    )


def _pinned(run: Run, facts: Sequence[OverwriteFact]) -> Kind | None:
    within = [f for f in facts if f.within]
    counts = Counter(n for f in within for n in f.restored if _large(run, n))
    pinned = tuple(n for n, times in counts.items() if times >= LEAST_TIMES)
    if not pinned:
        return None
    named = ", ".join(pinned[:3]) + (f" and {len(pinned) - 3} more" if len(pinned) > 3 else "")
    return Kind(
        [f for f in within if set(pinned) & set(f.restored)],
        Severity.WARNING,
        0.85,
        f"every update of {named} is undone before the next one",
        "The optimizer moves these weights and something puts the old values back each time, so they never train.",
        f"{max(counts.values())} times {pinned[0]} was found bit for bit as it had been before its update",
        "Leave them to the optimizer, or freeze them in earnest: then no gradient is computed for nothing.",
        f"model.{pinned[0]}.requires_grad_(False)  # if they are meant to stay",
        pinned[:8],
    )


def _large(run: Run, name: str) -> bool:
    return _size(run, [name]) >= PINNED_ELEMENTS


def _size(run: Run, names: Sequence[str]) -> int:
    return sum(math.prod(run.parameters[n].shape) for n in names if n in run.parameters)


def _finding(run: Run, kind: Kind, first: int, last: int) -> Finding:
    evidence = [Evidence(kind.evidence, value=float(len(kind.facts)), threshold=float(LEAST_TIMES))]
    loss = loss_curve(run)
    if loss is not None and len(loss.curve):
        evidence.append(Evidence(f"the training loss ends around {loss.end:.3g}", spark=loss.spark))
    places = [Place(file=f.file, line=f.line) for f in kind.facts]
    return RULE.finding(
        severity=kind.severity,
        confidence=kind.confidence,
        proof=Proof.STRUCTURE,
        title=kind.title,
        summary=kind.text,
        where=known(*places[-1:], *(Place(parameter=p) for p in kind.parameters)),
        first_step=first,
        last_step=last,
        evidence=evidence,
        fix=Fix(kind.fix, kind.code),
        symptoms=("sawtooth", "loss-jump-at-resume") if len(kind.parameters) == 0 else (),
    )
