"""Training comes in random order, another one in each epoch."""

from __future__ import annotations

import numpy as np
from torch.utils.data import DistributedSampler, SequentialSampler

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.data.balance import CLASSES, goes_in_unchanged
from torchdoctor.checks.data.mixing import Floats, Mixing, judge_classes, judge_numbers
from torchdoctor.checks.data.orders import Ints, draw_epochs, single_sampler
from torchdoctor.checks.data.sources import Source, drawing_kept
from torchdoctor.checks.model.looks import looks_of, targets_of
from torchdoctor.checks.model.records import record_of
from torchdoctor.findings import Fix, Severity
from torchdoctor.rules import baseline, outcomes
from torchdoctor.rules.data.not_shuffled import RECURRENT, RULE

CHECK = Check(
    name="shuffling",
    asks="training comes in random order, another one in each epoch",
    part=DATA,
    order=60,
    needs_loss=False,
    diagnoses=(RULE.name,),
)
DRAWN = 200_000
"""Indices of an epoch that are looked at."""
IN_ORDER = 0.99
"""Share of steps from one index to the next that go up, from which on an order is no order of chance."""
LEAST = 16


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped(bench.without("training batch"))
    source = Source(bench.train_loader, bench.train)
    if not source.is_indexed:
        return _judge_batches(bench, source)
    sampler = single_sampler(source.loader)
    with drawing_kept(sampler):
        epochs = draw_epochs(source.loader, 2, DRAWN)
    if epochs is None or len(epochs[0]) < LEAST:
        return _judge_batches(bench, source)
    kind = type(sampler).__name__ if sampler is not None else type(source.loader.batch_sampler).__name__
    if not _is_in_order(epochs[0]):
        return _judge_repeats(bench, sampler, kind, *epochs)
    shown = (
        "the loader does not shuffle" if type(sampler) is SequentialSampler else f"{kind} gives the data in its order"
    )
    return _judge_order(bench, source, mixing_of(bench, source, epochs[0]), shown, sampler)


def _is_in_order(order: Ints) -> bool:
    return float((np.diff(order) > 0).mean()) >= IN_ORDER


def _judge_repeats(bench: Bench, sampler: object, kind: str, first: Ints, second: Ints) -> Outcome:
    if not np.array_equal(first, second):
        return passed(f"by {kind}", samples=len(first))
    if isinstance(sampler, DistributedSampler):
        return passed(f"by {kind}, as long as set_epoch(epoch) is called at the start of each", samples=len(first))
    if bench.epochs == 1:
        return passed(f"by {kind}, which is asked once", samples=len(first))
    return failed(
        f"{kind} gives the same order in each epoch: its random numbers start anew whenever it is asked",
        RULE.name,
        Fix(
            "Let the generator go on from epoch to epoch: make it once, not in __iter__, or seed it with the epoch.",
            "DataLoader(dataset, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(seed))",
        ),
        severity=Severity.WARNING,
        samples=len(first),
    )


def _judge_order(bench: Bench, source: Source, mixing: Mixing | None, shown: str, sampler: object) -> Outcome:
    fix = Fix("Let the training loader shuffle.", f"DataLoader(dataset, batch_size={source.batch_size}, shuffle=True)")
    if isinstance(sampler, DistributedSampler):
        fix = Fix("Let the sampler shuffle.", "DistributedSampler(dataset, shuffle=True)")
    if mixing is not None and mixing.sorted:
        return failed(f"{shown}, and the data is sorted: {mixing.text}", RULE.name, fix)
    if mixing is not None and mixing.clustered:
        text = f"{shown}, and neighbours in it are alike: {mixing.text}"
        return failed(text, RULE.name, fix, severity=Severity.WARNING)
    if bench.epochs == 1 and mixing is not None:
        return passed(f"{shown}, but it is mixed, and gone through once")
    known = "; its targets are mixed, so the order itself does no harm" if mixing is not None else ""
    text = f"{shown}: the same batches come in each epoch{known}"
    return failed(text, RULE.name, fix, severity=Severity.INFO)


def _judge_batches(bench: Bench, source: Source) -> Outcome:
    """What cannot be asked for its order: a stream, a list of batches, anything that gives batches."""
    mixing, fixed = mixing_of(bench, source, None), isinstance(source.loader, list | tuple)
    what = "the list of batches" if fixed else "the stream" if source.is_stream else "the loader"
    fix = Fix(
        "Shuffle the samples anew in each epoch, before they become batches; of a stream, its files and a buffer.",
        "order = torch.randperm(len(X)); X, y = X[order], y[order]  # at the start of every epoch",
    )
    if mixing is None and bench.why_no_loss is not None:
        return skipped(f"the order of {what} cannot be told without targets: {bench.why_no_loss}")
    if mixing is None:
        few = f"{len(bench.train)} batch" + ("es" if len(bench.train) > 1 else "")
        return skipped(f"the order of {what} cannot be told from {few}")
    if mixing.sorted or mixing.clustered:
        severity = Severity.ERROR if mixing.sorted and fixed else Severity.WARNING
        return failed(f"{what} is not mixed: {mixing.text}", RULE.name, fix, severity=severity)
    if fixed and bench.epochs != 1:
        text = f"{what} is mixed, and the same in each epoch"
        return failed(text, RULE.name, fix, severity=Severity.INFO)
    return passed(f"targets of the first {len(bench.train)} batches are mixed as in random order")


def mixing_of(bench: Bench, source: Source, order: Ints | None) -> Mixing | None:
    """Of the targets in that order of indices, else as the batches at hand have them; None where it cannot be told."""
    if bench.why_no_loss is not None:
        return None
    run, looks = record_of(bench), looks_of(bench)
    calls = baseline.loss_calls(run)
    by_class = bool(calls) and all(c.function in CLASSES for c in calls)
    if not calls or (by_class and (not outcomes.is_by_sample(run) or not all(c.target_integral for c in calls))):
        return None
    if not by_class and _may_be_in_time(bench):
        return None
    batches = (
        _stored(source, order) if order is not None and looks.train and goes_in_unchanged(looks.train[0]) else None
    )
    if batches is None:
        targets = [targets_of(bench, look)[:1] for look in looks.train]
        flat = [t[0] for t in targets if t and t[0].dim() and t[0].numel() == len(t[0])]
        batches = [t.flatten().cpu().double().numpy() for t in flat]
    return judge_classes(batches) if by_class else judge_numbers(batches)


def _stored(source: Source, order: Ints) -> list[Floats] | None:
    labels = source.labels
    if labels is None:
        return None
    held = np.full(int(source.indices.max()) + 1, np.nan)
    held[source.indices] = labels
    values = held[order]
    return np.split(values, range(source.batch_size, len(values), source.batch_size))


def _may_be_in_time(bench: Bench) -> bool:
    """Sequences in, or a recurrent model: then order may be time, and is kept on purpose."""
    kinds = [type(module).__name__ for module in bench.model.modules()]
    sequences = any(t.dim() == 3 for look in looks_of(bench).train[:1] for t in look.inputs if t.is_floating_point())
    return sequences or any(name in kind for kind in kinds for name in RECURRENT)
