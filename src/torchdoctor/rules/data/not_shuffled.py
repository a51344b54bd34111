"""Training batches come ordered by class or by target.

## What it means
Each batch holds samples of one or a few classes (or of one range of the target), and the next batches hold others.
Gradient descent assumes that a batch is a fair sample of the whole. Here every batch pulls the model towards "always
answer this class", the next one pulls it away again, and what was learned is forgotten before it comes back. The loss
has the shape of a saw: it falls within a class and jumps at the next; batch-norm statistics follow the last class.

## Why it happens
- `DataLoader(..., shuffle=False)`, the default, on a dataset that is stored class by class (folders of images, sorted
  tables, concatenated files).
- Batches cut by slicing, `X[i:i + n]`, without a new permutation in every epoch.
- A sampler or an iterable dataset that reads shard after shard, with a shuffle buffer smaller than a shard.
- The table was sorted by the target while it was prepared.

## How it is detected
For classes: the entropy of the labels inside each batch is compared with what random batches of the same size would
have, drawn from the labels seen over the whole run. Under random order the mean over the batches is normal with
known spread; the finding needs a mean entropy that is 6 standard errors and 40 % below expectation, which chance
gives less than once in 10^8 runs, and, where no unshuffled loader is on record, neighbouring batches that resemble
each other: over all looks, or over those a few steps apart, since far ones belong to different epochs. For regression:
the batch means of the target scatter more than random batches allow, and rise or fall steadily through an epoch. For
labels of 0 and 1 given as numbers: they scatter more, and batches a few steps apart resemble each other. Only training
batches count: validation needs no shuffling. Dense targets (tokens, pixels) and regression on sequences are not
judged.

## How to fix it
`DataLoader(dataset, batch_size=..., shuffle=True)`. Without a loader, draw `torch.randperm(len(X))` anew in every
epoch. For an iterable dataset shuffle the shards and use a buffer that spans several of them.

## Known false alarms
Continual learning and curricula, where the order is the experiment. Samplers that put few classes into each batch on
purpose (metric learning) are recognised by classes that do not persist from batch to batch.

## References
Bengio, "Practical Recommendations for Gradient-Based Training of Deep Architectures" (2012), section 3.1. Bottou,
"Curiously Fast Convergence of some Stochastic Gradient Descent Algorithms" (2009). McCloskey and Cohen, "Catastrophic
Interference in Connectionist Networks" (1989).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.facts import TRAIN, InputsFact, LabelsFact, LoaderFact
from torchdoctor.findings import Evidence, Finding, Fix, Proof, RuledOut, Severity
from torchdoctor.rules import baseline, curves, outcomes
from torchdoctor.rules.curves import Floats, figure
from torchdoctor.rules.data.membership import is_acting
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import (
    BATCH_SIZE,
    INPUT_MEAN,
    LABEL_CLASSES,
    LABEL_ENTROPY,
    LOSS_TRAIN,
    TARGET_MEAN,
    TARGET_STD,
)

RULE = Rule(
    code="D007",
    name="not-shuffled",
    family="data",
    needs=(TARGET_MEAN,),
    explains=(
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "majority-class-collapse",
        "overfitting",
        "exploding-gradients",
        "dead-relu",
        "saturated-activations",
        "validation-better-than-training",
        "noisy-labels",
        "weak-slice",
    ),
)

LEAST_LOOKS = 8
SIGMAS = 6.0
"""One-sided error rate of a normal statistic below -6: 1e-9."""
ENTROPY_SHARE = 0.6
"""Batches must also lack 40 % of the entropy: a significant but small lack does no harm."""
RESEMBLANCE = 0.5
"""Correlation of neighbouring batches' mean label; of shuffled batches it is 0."""
NEAR, LEAST_PAIRS = 5, 8
"""Steps between looks that still count as neighbours, and how many of such pairs are needed."""
APART = 0.25
"""Mean squared difference of neighbours over twice the variance (von Neumann's ratio): 1 in random order. Ten batches
of one of two classes each have it below a quarter by chance once in a hundred runs."""
SIMULATED_BATCHES = 2000
WIDEST = 1000
"""Outputs up to which their number is told as the number of classes."""
EXCESS_VARIANCE = 8.0
"""Variance of batch means over that of random batches; with 20 batches chance gives 8 less than once in 10^9."""
MONOTONE = 0.9
"""Rank correlation of a sorted target with the position in its epoch; 1 if sorted, 1e-7 likely by chance of 20."""
RETURN = 0.5
"""How far a sorted target falls back at the end of an epoch, as a share of its rise: all of it, but for chance."""
LONGEST_EPOCH = 2000
RECURRENT = ("RNN", "LSTM", "GRU", "Transformer", "Attention", "Conv1d", "TCN")


@dataclass(frozen=True)
class Order:
    """How the batches compare with random ones."""

    expected: float
    observed: float
    sigmas: float
    looks: int
    classes: int
    per_batch: float


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    order = label_order(run)
    if order is not None:
        yield from judge_labels(run, order)
    elif not run.has(LABEL_ENTROPY):
        yield from judge_targets(run)


def label_order(run: Run) -> Order | None:
    """Entropy of labels within batches against that of random batches; None where labels are no classes."""
    entropies = run.scalar(LABEL_ENTROPY, TRAIN)
    values = entropies.values[np.isfinite(entropies.values)]
    facts = [f for f in run.facts(LabelsFact) if f.phase == TRAIN]
    counts = Counter[str]()
    for fact in facts:
        counts.update(fact.counts)
    batches = sum(f.batches for f in facts)
    sizes = run.scalar(BATCH_SIZE, TRAIN).values
    if len(values) < LEAST_LOOKS or not batches or len(counts) < 2:
        return None
    labels = round(counts.total() / batches)
    if labels < 2 or (len(sizes) and labels > 1.5 * float(np.median(sizes))):
        return None
    shares = np.array(list(counts.values()), np.float64) / counts.total()
    expected, spread = random_entropy(shares, labels)
    spread = max(spread, 1e-6)
    observed = float(values.mean())
    sigmas = (observed - expected) / (spread / math.sqrt(len(values)))
    present = run.scalar(LABEL_CLASSES, TRAIN).values
    width = max((c.classes or 0 for c in baseline.loss_calls(run)), default=0)
    classes = width if 0 < width <= WIDEST else len(counts)
    return Order(expected, observed, sigmas, len(values), classes, float(np.median(present)) if len(present) else 0)


def random_entropy(shares: Floats, size: int) -> tuple[float, float]:
    """Mean and standard deviation of the label entropy of random batches of that size, by simulation."""
    counts = np.random.default_rng(0).multinomial(size, shares / shares.sum(), SIMULATED_BATCHES) / size
    with np.errstate(divide="ignore", invalid="ignore"):
        entropies = -np.where(counts > 0, counts * np.log(counts), 0.0).sum(axis=1)
    return float(entropies.mean()), float(entropies.std())


def judge_labels(run: Run, order: Order) -> Iterator[Finding | RuledOut]:
    loader = train_loader(run)
    if order.sigmas > -SIGMAS or order.observed > ENTROPY_SHARE * order.expected:
        if loader is not None and loader.shuffled is False:
            text = (
                f"the training loader does not shuffle, but its batches are mixed: label entropy {order.observed:.2f}"
            )
            yield RuledOut(
                RULE.name, f"{text}, random batches have {order.expected:.2f}", LABEL_ENTROPY.name, order.observed
            )
        return
    if loader is not None and loader.shuffled:
        return
    unshuffled = loader is not None and loader.shuffled is False
    if not unshuffled and (not resemble(run.scalar(TARGET_MEAN, TRAIN)) or len(run.optimizers) > 1):
        return
    loss = run.scalar(LOSS_TRAIN)
    yield RULE.finding(
        severity=Severity.WARNING,
        confidence=0.97 if unshuffled else 0.85,
        title=f"Training batches hold {order.per_batch:.0f} of {order.classes} classes each: the data is not shuffled",
        summary=(
            f"The labels inside a batch have an entropy of {order.observed:.2f}, random batches would have "
            f"{order.expected:.2f}. The samples come ordered by class, so each batch undoes what the last one taught."
        ),
        fix=_fix(loader),
        evidence=[
            Evidence(
                f"label entropy of a batch {order.observed:.2f} against {order.expected:.2f} expected of random "
                f"batches ({order.looks} batches, {-order.sigmas:.0f} standard errors below)",
                LABEL_ENTROPY.name,
                order.observed,
                ENTROPY_SHARE * order.expected,
                curves.spark(run.scalar(TARGET_MEAN, TRAIN).values),
            ),
            *_loader_evidence(loader),
            *([Evidence("training loss", LOSS_TRAIN.name, spark=curves.spark(loss.values))] if len(loss) else []),
        ],
        proof=Proof.STRUCTURE if unshuffled else Proof.STATISTICS,
        first_step=int(run.scalar(LABEL_ENTROPY, TRAIN).steps[0]),
        symptoms=("sawtooth", "oscillating"),
    )


def judge_targets(run: Run) -> Iterator[Finding]:
    loader = train_loader(run)
    means, stds, sizes = (run.scalar(s, TRAIN) for s in (TARGET_MEAN, TARGET_STD, BATCH_SIZE))
    if (loader is not None and loader.shuffled) or len(run.optimizers) > 1 or is_acting(run):
        return
    binary = is_binary(run)
    if not binary and (_is_sequential(run) or follows_inputs(run)):
        return
    if len(means) < 20 or len(means) != len(stds) or not len(sizes):
        return
    size = float(np.median(sizes.values))
    random_variance = float(np.square(stds.values).mean() + means.values.var()) / size
    excess = float(means.values.var()) / random_variance if random_variance else 0.0
    if size < 2 or excess < EXCESS_VARIANCE:
        return
    epoch = loader.batches if loader is not None else None
    along = rise_within_epochs(means, epoch)
    if binary and abs(along) < MONOTONE and near_resemblance(means) > APART:
        return
    if not binary and abs(along) < MONOTONE:
        return
    if binary:
        yield _binary(run, loader, means, excess, size)
        return
    yield RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85 if loader is not None else 0.7,
        title=f"The target {'rises' if along > 0 else 'falls'} from batch to batch: the data is sorted by it",
        summary=(
            f"The batch means of the target vary {figure(excess)} times more than those of random batches, and go "
            f"{'up' if along > 0 else 'down'} through the epoch. Each batch shows one range of the target only."
        ),
        fix=_fix(loader),
        evidence=[
            Evidence(
                f"variance of batch means is {figure(excess)} times that of random batches of {size:.0f}",
                TARGET_MEAN.name,
                excess,
                EXCESS_VARIANCE,
                curves.spark(means.values),
            ),
            Evidence(f"rank correlation with the position in the epoch {along:.2f}", TARGET_MEAN.name, along, MONOTONE),
            *_loader_evidence(loader),
        ],
        first_step=int(means.steps[0]),
        symptoms=("sawtooth",),
    )


def _binary(run: Run, loader: LoaderFact | None, means: Trace, excess: float, size: float) -> Finding:
    loss = run.scalar(LOSS_TRAIN)
    pure = float((np.minimum(means.values, 1 - means.values) < 1e-6).mean())
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9 if loader is not None else 0.85,
        title="Training batches hold one class at a time: the data is not shuffled",
        summary=(
            f"{pure:.0%} of the batches that were looked at hold a single class, and batches near each other hold the "
            "same. The samples come ordered by class, so each batch undoes what the last one taught."
        ),
        fix=_fix(loader),
        evidence=[
            Evidence(
                f"the share of ones varies {figure(excess)} times more between batches than between random batches of "
                f"{size:.0f}",
                TARGET_MEAN.name,
                excess,
                EXCESS_VARIANCE,
                curves.spark(means.values),
            ),
            *_loader_evidence(loader),
            *([Evidence("training loss", LOSS_TRAIN.name, spark=curves.spark(loss.values))] if len(loss) else []),
        ],
        first_step=int(means.steps[0]),
        symptoms=("sawtooth", "oscillating"),
    )


def is_binary(run: Run) -> bool:
    """One label of 0 or 1 a sample, given as a number."""
    calls = baseline.loss_calls(run)
    return bool(calls) and all(c.function in baseline.BINARY for c in calls) and outcomes.is_by_sample(run)


def train_loader(run: Run) -> LoaderFact | None:
    return next((f for f in reversed(run.facts(LoaderFact)) if f.phase == TRAIN), None)


def resemblance(means: Trace) -> float:
    """Correlation of the mean label of one looked-at batch with that of the next."""
    values = means.values[np.isfinite(means.values)]
    if len(values) < LEAST_LOOKS or values.std() == 0:
        return 0.0
    return float(np.corrcoef(values[:-1], values[1:])[0, 1])


def near_resemblance(means: Trace) -> float:
    """Von Neumann's ratio over looks a few steps apart: 0 where neighbours are equal, 1 in random order."""
    known = np.isfinite(means.values)
    steps, values = means.steps[known], means.values[known].astype(np.float64)
    near = np.diff(steps) <= NEAR
    if near.sum() < LEAST_PAIRS or values.var() == 0:
        return math.inf
    return float(np.square(np.diff(values)[near]).mean() / (2 * values.var()))


def resemble(means: Trace) -> bool:
    return resemblance(means) >= RESEMBLANCE or near_resemblance(means) <= APART


def rise_within_epochs(means: Trace, epoch: int | None) -> float:
    """Rank correlation of the batch mean with its position in the epoch, for the best epoch length if unknown. Of an
    unknown epoch two must have passed, and each must start anew: what goes on from one to the next drifts (targets that
    a network computes)."""
    if epoch:
        return rank_correlation(means.steps % epoch, means.values)
    before, last = means.steps[-2:].tolist()
    longest = (2 * last - before) // 2  # the run goes on after its last look, by less than the distance of two
    lengths = range(LEAST_LOOKS, min(longest + 1, LONGEST_EPOCH))
    along = {n: rank_correlation(means.steps % n, means.values) for n in lengths}
    best = max(along, key=lambda n: abs(along[n]), default=0)
    return along[best] if best and _starts_anew(means, best) else 0.0


def _starts_anew(means: Trace, epoch: int) -> bool:
    """Return whether the batch mean falls back by most of what it rises within an epoch. The end of each epoch is
    compared with the beginnings of all later ones: looks may lie so far apart that no two follow each other."""
    number, place = np.divmod(means.steps, epoch)
    early, late = place < epoch / 3, place >= 2 * epoch / 3
    rises, returns, weights = [], [], []
    for n in np.unique(number):
        begun, ended = means.values[early & (number == n)], means.values[late & (number == n)]
        following = means.values[early & (number > n)]
        if len(begun) and len(ended):
            rises.append(ended.mean() - begun.mean())
        if len(ended) and len(following):
            returns.append(ended.mean() - following.mean())
            weights.append(len(following))
    if not rises or not returns:
        return False
    rise = float(np.mean(rises)) or math.inf
    return float(np.average(returns, weights=weights)) / rise >= RETURN


def rank_correlation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Spearman's, with ties broken by order."""
    ranks = [np.argsort(np.argsort(v, kind="stable"), kind="stable").astype(float) for v in (a, b)]
    if len(np.unique(a)) < 5 or len(np.unique(b)) < 5:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def follows_inputs(run: Run) -> bool:
    """Whether the inputs' mean moves with the target's, in the same units: the inputs are the target's past."""
    inputs, means = run.scalar(INPUT_MEAN, TRAIN), run.scalar(TARGET_MEAN, TRAIN)
    if len(inputs) != len(means) or inputs.values.std() == 0 or means.values.std() == 0:
        return False
    correlation = float(np.corrcoef(inputs.values, means.values)[0, 1])
    return correlation > 0.9 and 0.7 < inputs.values.std() / means.values.std() < 1.4


def _is_sequential(run: Run) -> bool:
    """Sequences in, or a recurrent model: then order may be time, and is kept on purpose."""
    kinds = [m.type for m in run.modules.values()] + [p.module_type for p in run.parameters.values()]
    inputs = [f for f in run.facts(InputsFact) if f.role == "input" and f.phase == TRAIN]
    return any(k in kind for kind in kinds for k in RECURRENT) or any(len(f.shape) == 3 for f in inputs)


def _loader_evidence(loader: LoaderFact | None) -> list[Evidence]:
    if loader is None or loader.shuffled is not False:
        return []
    return [Evidence(f"the training DataLoader over {loader.dataset} was made with shuffle=False")]


def _fix(loader: LoaderFact | None) -> Fix:
    if loader is None:
        return Fix(
            "Draw a new random order of the samples in every epoch.",
            "order = torch.randperm(len(X)); X, y = X[order], y[order]  # at the start of every epoch",
        )
    if loader.shuffled is None and loader.samples is None:
        return Fix(
            f"{loader.dataset} decides the order: shuffle its files or shards in every epoch, and draw samples from a "
            "buffer that is much larger than a run of equal labels. A stream cannot be shuffled by its DataLoader.",
        )
    if loader.shuffled is None:
        return Fix("The loader's own sampler decides the order: let it draw the samples in a new random order.")
    return Fix(
        "Let the training loader shuffle.",
        f"DataLoader(dataset, batch_size={loader.batch_size or 32}, shuffle=True)",
    )
