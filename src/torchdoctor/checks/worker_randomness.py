"""Workers draw different random numbers, and divide a stream between them."""

from __future__ import annotations

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.data.marks import is_steady
from torchdoctor.checks.data.sources import Source
from torchdoctor.checks.data.worker_trial import Trial, can_fork, count_stream, try_epochs, try_indexed, try_stream
from torchdoctor.checks.model.records import Record, found, outcome_of
from torchdoctor.facts import TRAIN, LoaderFact
from torchdoctor.findings import Finding, Fix, Severity
from torchdoctor.probes.splits import SplitProbe, asks_for_worker
from torchdoctor.rules.data.repeated_batch import RULE, judge_workers

CHECK = Check(
    name="worker-randomness",
    asks="workers draw different random numbers",
    part=DATA,
    order=70,
    needs_loss=False,
    diagnoses=(RULE.name,),
)
LEAST_RANDOM = 3
"""Samples that must have come out differently in one worker, for their being equal in two to mean anything."""
DIVIDE = Fix(
    "Divide the stream between the workers.",
    "info = torch.utils.data.get_worker_info()\n"
    "samples = itertools.islice(samples, info.id if info else 0, None, info.num_workers if info else 1)",
)
SEED = Fix(
    "Give every worker random numbers of its own, or draw from torch's, numpy's or Python's global generators.",
    "def seed_worker(worker_id):\n"
    "    info = torch.utils.data.get_worker_info()\n"
    "    info.dataset.rng = np.random.default_rng(info.seed)\n"
    "DataLoader(..., worker_init_fn=seed_worker)",
)


def perform(bench: Bench) -> Outcome:
    source = Source(bench.train_loader, bench.train)
    if source.dataset is None:
        return skipped("training is not loaded by a DataLoader")
    if not source.workers:
        return passed("there is one process, which draws them all")
    forks = can_fork(source.loader)
    why_not = (
        None if forks and not bench.quick else "a quick check starts no worker" if forks else "workers are not forked"
    )
    if source.is_stream:
        return _judge_stream(source, why_not)
    if not len(source.indices):
        return skipped("the dataset has no length, so its samples cannot be asked for")
    return _judge_indexed(source, why_not)


def read_code(source: Source) -> Finding | None:
    """What the dataset and the loader hold, as the rule for recorded runs judges it."""
    record = Record()
    SplitProbe(record.context).loader("train_loader", source.loader)
    record.add(LoaderFact("train_loader", TRAIN, None, source.size, None, source.workers, None, ""))
    return found(judge_workers(record.run()))


def _judge_indexed(source: Source, why_not: str | None) -> Outcome:
    finding = read_code(source)
    if finding is None and source.is_indexed and is_steady(source):
        return passed("samples are the same each time they are read: nothing is random in them")
    single = source.workers == 1
    if single and getattr(source.loader, "persistent_workers", False):
        return passed("there is one worker, which lives through all epochs")
    trial = None if why_not else try_epochs(source) if single else try_indexed(source)
    if trial is not None and trial.random >= LEAST_RANDOM:
        return _judge_trial(trial, source, finding, single)
    if trial is not None and not trial.random:
        return passed(f"{trial.pairs} samples read by two workers show nothing random")
    if finding is not None:
        return outcome_of(finding)
    return skipped(f"samples are random, and it was not tried what workers make of that: {why_not or 'they failed'}")


def _judge_trial(trial: Trial, source: Source, finding: Finding | None, single: bool) -> Outcome:
    if trial.equal < trial.pairs:
        apart = trial.pairs - trial.equal
        return passed(f"{apart} of {trial.pairs} random samples differ between two {'epochs' if single else 'workers'}")
    count, what = source.workers, finding.evidence[0].text if finding is not None else None
    if single:
        text = "its worker draws the same random numbers in each epoch: it starts from the same state each time"
    else:
        text = f"all {count} workers draw the same random numbers: random samples come out equal in each of them"
    told = f"{trial.pairs} of {trial.pairs} random samples were equal in two " + ("epochs" if single else "workers")
    return failed(
        text,
        RULE.name,
        finding.fix if finding is not None else SEED,
        severity=Severity.WARNING,
        evidence=(told, what) if what else (told,),
        workers=count,
    )


def _judge_stream(source: Source, why_not: str | None) -> Outcome:
    if source.workers == 1:
        return passed("there is one worker")
    asks = asks_for_worker(source.dataset)
    trial = None if why_not else try_stream(source)
    if trial is None:
        named = "; its code asks which worker it is in" if asks else ""
        return skipped(f"it was not tried whether workers divide the stream: {why_not or 'they failed'}{named}")
    if trial.equal == trial.pairs and trial.random >= LEAST_RANDOM:
        told = f"the first {trial.pairs} samples of two workers are equal, one by one"
        return _undivided(source, told, Severity.ERROR)
    counted = count_stream(source) if not asks else None
    if counted is not None and counted[1] >= 2 * counted[0]:
        told = f"alone it gives {counted[0]} samples, two workers give {counted[1]} and more"
        return _undivided(source, told, Severity.WARNING)
    return passed(f"two of its {source.workers} workers give different samples")


def _undivided(source: Source, told: str, severity: Severity) -> Outcome:
    count = source.workers
    text = f"each of the {count} workers gives the whole stream, so that every sample comes {count} times an epoch"
    return failed(text, RULE.name, DIVIDE, severity=severity, evidence=(told,), workers=count)
