"""The same batch comes again and again, or several workers deliver the same.

## What it means
The model is trained on a small part of the data over and over (or sees every batch once for each worker), while the
loop looks as if it went through all of it. The training loss falls quickly and means little; validation does not
follow. Where workers share their random numbers, augmentation has a fraction of the variety it seems to have.

## Why it happens
- `next(iter(loader))` inside the loop: every call starts anew at the first batch.
- An index that is never advanced: `X[:batch_size]` in every step.
- An iterable dataset read by several workers that do not divide it between them: each yields everything.
- A random generator kept in the dataset or a transform (`self.rng = np.random.default_rng(0)`): each worker gets a copy
  in the same state. Or a `worker_init_fn` that seeds every worker with the same number.

## How it is detected
Samples of looked-at batches are fingerprinted, the first four steps among them. The finding stands where a loader was
asked for a batch in every step and handed out the same samples, although it holds more; where batches of successive
steps were equal again and again; where every step cuts the same few samples anew out of a larger tensor; where it makes
the same small batch anew, twice as many samples are validated on, and validation loss is twice the training loss (an
info: it may be all there is to learn from); where a batch fetched once is used in all steps although its loader holds
several times more, and validation, which a test of memorising does not do, is worse than training; where a sampler of
the user's own hands out a tenth of its dataset or less, each sample many times, and validation is worse than training;
and where a loader with several workers has a generator in its dataset that its methods use, or a worker_init_fn that
seeds without regard to the worker. Where inputs are never the same but targets of many values are (noise added to one
batch), the targets are compared; labels, where their order is of 30 bits or more, neither in blocks nor periodic, and
not each label as often as the others.

## How to fix it
Iterate over the loader (`for batch in loader`), advance the index, divide an iterable dataset by
`torch.utils.data.get_worker_info()`, and seed each worker differently.

## Known false alarms
Training on the whole data set in each step, and overfitting one batch on purpose (fetched once, used in every step,
nothing validated) are told apart and not reported; so are several updates on one batch (reinforcement learning,
adversarial training, the two optimizers of a GAN), since no loader is asked in between. A generator that several
workers share by intent, for equal draws, is reported.

## References
PyTorch documentation, torch.utils.data: "Randomness in multi-process data loading" and IterableDataset. Fetterman,
"Using PyTorch + NumPy? You're making a mistake" (2021).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import TRAIN, InputsFact, LoaderFact, MembershipFact, SplitFact
from torchdoctor.findings import Evidence, Finding, Fix, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.data.finite_batches import finite_batches
from torchdoctor.rules.data.membership import members, validation_size
from torchdoctor.rules.places import call_places
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import (
    BATCH_PART,
    BATCH_REPEATED,
    BATCH_SIZE,
    LOSS_TRAIN,
    LOSS_VALIDATION,
    TARGET_MEAN,
    TARGET_STD,
    TIME_DATA,
)

RULE = Rule(
    code="D006",
    name="repeated-batch",
    family="data",
    needs=(BATCH_REPEATED, MembershipFact),
    explains=(
        "overfitting",
        "batch-too-small",
        "inputs-and-labels-unrelated",
        "class-imbalance",
        "weak-slice",
        "miscalibrated",
        "label-leakage",
        "majority-class-collapse",
        "train-validation-mismatch",
        "noisy-labels",
    ),
)

LEAST_LOOKS = 5
SAME = 0.99
"""Share of a batch's samples that must have been in the batch before, for it to count as the same."""
FETCHED = 0.8
"""Share of steps in which a loader was asked; a batch that is kept and used again is fetched once."""
MORE = 1.5
"""A loader must hold so many times what was seen of it."""
CUT = 0.25
"""A view of less than this of its storage is a batch, not the data set (a training split is half or more)."""
LEAST_VALIDATIONS = 2
GAP = 1.2
"""Validation loss over training loss, from which on a batch that is kept is not all there is to learn from."""
FAR_BEHIND, SMALL, TWICE = 2.0, 256, 2.0
"""A batch that is made anew in every step (`X[rows]`, `torch.stack`) may be all the training data. It is not taken for
that where twice as much is validated on, the batch is of a usual size, and what is learned does not hold: an info, as
few labelled nodes of a graph look the same."""
TARGET_ELEMENTS = 8
"""Targets of so many floating-point values are samples of their own: labels agree by chance or by design."""
LABEL_BITS = 30.0
"""Entropy of a batch's labels, from which on the same ones in the same order are the same samples."""
FEW, LEAST_DRAWS, LEAST_KEPT = 0.1, 4.0, 10
"""Share of a dataset that its sampler draws from; how often each of them was met in the looks, so that no others are to
be expected (of four draws each, e^-4 or 2 % would be missing); and fingerprints that were kept of them."""
SUCCESSIVE = 0.3
"""Share of successive steps with equal batches: two workers give one half."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    values = finite_batches(run, BATCH_REPEATED)
    if len(values) >= LEAST_LOOKS and float((values >= SAME).mean()) > 0.9:
        yield from judge_same(run, len(values) + 1)
    elif (same := equal_targets(run)) is not None:
        yield from judge_same(run, same, by_targets=True)
    elif (successive := equal_neighbours(run)) is not None:
        yield _successive(run, *successive)
    elif (drawn := drawn_from_few(run)) is not None:
        yield _few(run, *drawn)
    else:
        yield from judge_workers(run)
        if len(values) >= LEAST_LOOKS and float(values.max()) < 0.5:
            text = f"consecutive batches differ in the {len(values)} steps that were looked at"
            yield RuledOut(RULE.name, text, BATCH_REPEATED.name, float(values.max()))


def drawn_from_few(run: Run) -> tuple[float, float] | None:
    """(samples that ever come, samples held) where the user's own sampler draws from a small part again and again, and
    validation falls behind; None else."""
    loaders, train = train_loaders(run), members(run).get((TRAIN, ""))
    if len(loaders) != 1 or loaders[0].shuffled is not None or train is None or fetched_share(run) < FETCHED:
        return None
    size, distinct = loader_size(run, loaders[0]), samples_seen(run)
    if not np.isfinite(size) or train.seen < LEAST_DRAWS * max(distinct, 1.0) or falls_behind(run) is None:
        return None
    return (distinct, size) if len(train.kept) >= LEAST_KEPT and distinct <= FEW * size else None


def _few(run: Run, distinct: float, size: float) -> Finding:
    text = f"the sampler has handed out {distinct:,.0f} samples again and again; the dataset holds {size:,.0f}"
    fix = Fix(
        "Let the sampler draw anew from all of the data in every epoch.",
        "generator = torch.Generator().manual_seed(seed + epoch)  # a seed of its own for each epoch",
    )
    loss = run.scalar(LOSS_TRAIN)
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85,
        title=f"The same {distinct:,.0f} of {size:,.0f} samples come again and again",
        summary="The sampler draws the same few samples in every epoch, so the rest of the data is never seen: the "
        "training loss falls because these are memorised.",
        where=call_places(run, "backward"),
        first_step=0,
        last_step=run.steps,
        evidence=[
            Evidence(text, MembershipFact.kind, distinct / size, FEW),
            *([Evidence("training loss", LOSS_TRAIN.name, spark=curves.spark(loss.values))] if len(loss) else []),
        ],
        fix=fix,
        symptoms=("train-down-validation-flat",),
    )


def train_loaders(run: Run) -> list[LoaderFact]:
    return [f for f in {f.name: f for f in run.facts(LoaderFact)}.values() if f.phase == TRAIN]


def fetched_share(run: Run) -> float:
    """Share of steps in which a loader was asked for a batch."""
    waited = run.scalar(TIME_DATA)
    values = (waited.head or waited).values
    return float((values > 0).mean()) if len(values) else 0.0


def samples_seen(run: Run) -> float:
    train = members(run).get((TRAIN, ""))
    return len(train.kept) / train.rate if train else 0.0


def loader_size(run: Run, loader: LoaderFact) -> float:
    """Samples the loader holds; for one of unknown length infinite, since it is asked for more."""
    split = next((f for f in run.facts(SplitFact) if f.loader == loader.name), None)
    size = split.samples if split is not None and split.samples else loader.samples
    return float(size) if size else float("inf")


def equal_targets(run: Run) -> int | None:
    """Looks at which the targets were the same, samples of many values each; None where any look differed.

    A fact is written again only where it changed, the statistics at every look.
    """
    first, *others = [f for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "target"] or [None]
    means, stds = run.scalar(TARGET_MEAN, TRAIN).values, run.scalar(TARGET_STD, TRAIN).values
    if first is None or others or min(len(means), len(stds)) <= LEAST_LOOKS or np.ptp(means) != 0 or np.ptp(stds) != 0:
        return None
    if not first.dtype.startswith("float") and is_irregular(first.fingerprints):
        return len(means)
    distinct = len(set(first.fingerprints)) >= SAME * len(first.fingerprints) > 1
    wide = first.dtype.startswith("float") and int(np.prod(first.shape[1:])) >= TARGET_ELEMENTS
    return len(means) if distinct and wide else None


def is_irregular(labels: list[int]) -> bool:
    """Whether labels stand in an order that nobody designs and that chance does not bring again: neither in blocks nor
    periodic, and of many bits."""
    _, at = np.unique(np.array(labels, np.int64), return_inverse=True)
    counts = np.bincount(at)
    if not len(at) or counts.min() == counts.max():  # positions as targets (contrastive losses), or a designed balance
        return False
    shares = counts / len(at)
    bits = -len(at) * float((shares * np.log2(shares)).sum())
    if bits < LABEL_BITS:
        return False
    changes = float((at[1:] != at[:-1]).mean())
    periodic = any((at[k:] == at[:-k]).all() for k in range(1, len(at) // 2 + 1))
    return not periodic and changes >= (1 - float((shares**2).sum())) / 2


def falls_behind(run: Run) -> float | None:
    """Validation loss over training loss at the end; None where it is not worse, or hardly validated."""
    validation, train = run.scalar(LOSS_VALIDATION).values, run.scalar(LOSS_TRAIN).values
    validation, train = validation[np.isfinite(validation)], train[np.isfinite(train)]
    if len(validation) < LEAST_VALIDATIONS or not len(train):
        return None
    low, high = curves.level(train), float(validation[-1])
    return high / low if 0 < GAP * low < high else None


def judge_same(run: Run, looks: int, by_targets: bool = False) -> Iterator[Finding]:
    seen = samples_seen(run)
    loaders = train_loaders(run)
    sizes = run.scalar(BATCH_SIZE, TRAIN).values
    batch = float(np.median(sizes)) if len(sizes) else seen
    parts = run.scalar(BATCH_PART, TRAIN).values[1:]
    if loaders and fetched_share(run) >= FETCHED and max(loader_size(run, f) for f in loaders) > MORE * batch:
        size = max(loader_size(run, f) for f in loaders)
        held = f"its dataset holds {size:,.0f} samples" if np.isfinite(size) else "its dataset is a stream"
        text = f"a loader was asked in every step and handed out the same {batch:.0f} samples each time; {held}"
        code = "for batch in loader:  # not next(iter(loader)) inside the loop, which starts anew every time"
        severity = Severity.ERROR if np.isfinite(size) and not by_targets else Severity.WARNING
        yield _finding(run, severity, looks, text, Fix("Go through the loader instead of restarting it.", code))
    elif not loaders and len(parts) and float(np.median(parts)) < CUT:
        part = float(np.median(parts))
        text = (
            f"every step cuts the same {batch:.0f} samples anew out of a tensor that holds {batch / part:,.0f}: "
            f"{part:.0%} of it"
        )
        fix = Fix(
            "Advance the index with the step.",
            "for i in range(0, len(X), batch_size):\n    xb, yb = X[i : i + batch_size], y[i : i + batch_size]",
        )
        yield _finding(run, Severity.WARNING, looks, text, fix)
    elif loaders and (gap := falls_behind(run)) is not None:
        size = max(loader_size(run, f) for f in loaders)
        if np.isfinite(size) and batch < CUT * size:
            text = (
                f"one batch of {batch:.0f} samples was fetched and used in every step; its loader holds {size:,.0f}, "
                f"and validation loss is {gap:.1f} times training loss"
            )
            fix = Fix("Fetch a batch in every step.", "for batch in loader:  # the step belongs inside this loop")
            yield _finding(run, Severity.WARNING, looks, text, fix)
    elif not loaders and (gap := falls_behind(run)) is not None and gap >= FAR_BEHIND:
        validated = validation_size(run) or 0.0
        anew = len(parts) > 0 and float(np.median(parts)) <= 1
        if anew and batch <= SMALL and validated >= TWICE * batch:
            text = (
                f"all steps saw the same {batch:.0f} samples, while {validated:,.0f} are validated on; validation loss "
                f"is {gap:.1f} times training loss"
            )
            fix = Fix(
                "Draw other samples in every step.",
                "for rows in torch.randperm(len(X)).split(batch_size):\n    xb, yb = X[rows], y[rows]",
            )
            yield _finding(run, Severity.INFO, looks, text, fix)


def _finding(run: Run, severity: Severity, looks: int, text: str, fix: Fix) -> Finding:
    loss = run.scalar(LOSS_TRAIN)
    return RULE.finding(
        severity=severity,
        confidence={Severity.ERROR: 0.97, Severity.WARNING: 0.85, Severity.INFO: 0.6}[severity],
        proof=Proof.STRUCTURE,
        title=f"The same batch in all {looks} steps that were looked at",
        summary="Every step trains on the same samples, so the rest of the data is never seen: the training loss falls "
        "because that one batch is memorised.",
        where=call_places(run, "backward"),
        first_step=0,
        last_step=run.steps,
        evidence=[
            Evidence(text, BATCH_REPEATED.name, 1.0, SAME),
            *([Evidence("training loss", LOSS_TRAIN.name, spark=curves.spark(loss.values))] if len(loss) else []),
        ],
        fix=fix,
        symptoms=("train-down-validation-flat",),
    )


def equal_neighbours(run: Run) -> tuple[int, int] | None:
    """(equal, looked at) among batches of successive steps that a loader delivered; None where they are distinct."""
    repeated = run.scalar(BATCH_REPEATED, TRAIN)
    trace = repeated.head or repeated
    loaders = train_loaders(run)
    if not loaders or fetched_share(run) < FETCHED or len(trace) < 3:
        return None
    if any(loader.batches == 1 for loader in loaders):  # all of the data in each epoch
        return None
    sizes = run.scalar(BATCH_SIZE, TRAIN).values
    if len(sizes) and samples_seen(run) < 3 * float(np.median(sizes)):
        return None
    waited = run.scalar(TIME_DATA)
    asked = [part.steps[part.values > 0] for part in (waited.head, waited) if part is not None]
    before = np.concatenate([[0], trace.steps[:-1]])
    values = trace.values[(trace.steps - before == 1) & np.isin(trace.steps, np.concatenate(asked))]
    equal = int((values >= SAME).sum())
    return (equal, len(values)) if equal >= 2 and equal >= SUCCESSIVE * len(values) else None


def _successive(run: Run, equal: int, looked: int) -> Finding:
    split = next((f for f in run.facts(SplitFact) if f.workers > 1), None)
    workers = split.workers if split else 0
    text = f"{equal} of {looked} batches were equal to the batch of the step before, sample by sample"
    evidence = [Evidence(text, BATCH_REPEATED.name, equal / looked, SUCCESSIVE)]
    if split is not None and split.iterable:
        says = "and it never asks which worker it runs in" if split.sharded is False else "read by each as a whole"
        evidence.append(Evidence(f"the loader has {workers} workers over an iterable dataset, {says}"))
    elif split is not None:
        shared = ", ".join(split.generators) or split.seeded_alike or "their random state"
        evidence.append(Evidence(f"the loader has {workers} workers that share {shared}"))
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.96,
        proof=Proof.STRUCTURE,
        title=f"Successive batches are the same ({equal} of {looked})",
        summary="Each batch is delivered several times in a row"
        + (f", once by each of {workers} workers" if workers else "")
        + ": an epoch holds every sample several times, and successive updates repeat each other.",
        where=call_places(run, "backward"),
        first_step=1,
        evidence=evidence,
        fix=_worker_fix(split),
        symptoms=("train-down-validation-flat",),
    )


def judge_workers(run: Run) -> Iterator[Finding]:
    """Random numbers that all workers draw alike; batches differ then, since the samples under them do."""
    names = {f.name for f in train_loaders(run)}
    for split in run.facts(SplitFact):
        if split.loader not in names or not (split.generators or split.seeded_alike):
            continue
        what = split.generators[0] if split.generators else f"{split.seeded_alike}(worker_id)"
        how = "is copied into" if split.generators else "seeds alike"
        yield RULE.finding(
            severity=Severity.WARNING,
            confidence=0.9 if split.generators else 0.8,
            proof=Proof.STRUCTURE,
            title=f"All {split.workers} workers draw the same random numbers",
            summary=f"{what} {how} every worker of {split.loader}, so all of them apply the same random augmentation "
            f"in step, and the same again in each epoch: 1/{split.workers} of the variety that was meant, or less.",
            evidence=[
                Evidence(
                    f"{split.loader} has {split.workers} workers; {what} {how} each of them, in the same state",
                    "split",
                    float(split.workers),
                    1.0,
                )
            ],
            fix=_worker_fix(split),
        )
        return


def _worker_fix(split: SplitFact | None) -> Fix:
    if split is not None and split.iterable:
        return Fix(
            "Divide the stream between the workers.",
            "info = torch.utils.data.get_worker_info()\n"
            "samples = itertools.islice(samples, info.id if info else 0, None, info.num_workers if info else 1)",
        )
    attribute = split.generators[0].removeprefix("dataset.") if split is not None and split.generators else "rng"
    return Fix(
        "Give every worker random numbers of its own.",
        "def seed_worker(worker_id):\n"
        "    info = torch.utils.data.get_worker_info()\n"
        f"    info.dataset.{attribute} = np.random.default_rng(info.seed)\n"
        "DataLoader(..., worker_init_fn=seed_worker)",
    )
