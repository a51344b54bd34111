"""Two starts with the same seed part because something random was never seeded.

## What it means
The same script, started twice with the same seed, draws other numbers: other initial weights, another order of the
data, other augmentations. A result cannot be repeated, a bug cannot be found by going back to it, and a comparison of
two settings also compares two draws.

## Why it happens
- No seed is set, or it is set after the model is built or the data is split.
- torch is seeded, but Python's `random` or NumPy is not, and the data pipeline uses them.
- `np.random.default_rng()` or `torch.Generator()` is made without a seed.
- Loader workers draw from NumPy without a `worker_init_fn`.
- The order of a set, of `os.listdir` or of `glob` decides the order of the data or of the classes.
- The time, a process number or a file that a run before it wrote goes into the training.

## How it is detected
`torchdoctor seeds --same 2 train.py` starts the script twice with the same seed and compares all that was recorded, bit
by bit. Where it differs, two more starts are traced operation by operation up to that step. The finding stands if the
first operation that differs draws from a random generator, reads a tensor that torch did not make (from NumPy, a file
or a worker), or stands at another place of the program. One run alone has nothing to be compared with.

## How to fix it
Seed Python, NumPy and torch before anything is built: `random.seed(s); np.random.seed(s); torch.manual_seed(s)`, or
`lightning.seed_everything(s, workers=True)`. Give loaders a `generator` and a `worker_init_fn`. Sort what a file system
lists. Set `PYTHONHASHSEED` where sets of strings are iterated over.

## Known false alarms
A script that is meant to differ from start to start, and where only means over many runs are reported.

## References
PyTorch documentation, "Reproducibility". Pham et al., "Problems and Opportunities in Training Deep Learning Software
Systems: An Analysis of Variance", 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import StartsFact
from torchdoctor.facts.repeats import CONTROL, OUTSIDE, RANDOM, UNSEEN
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(code="R001", name="unseeded-randomness", family="reproducibility", needs=(StartsFact,))

SEEN, GUESSED = 0.95, 0.7
LIFTED = "lift_fresh"
"""The operation by which torch.tensor and torch.from_numpy take data in."""
SEED_ALL = "random.seed(0)\nnp.random.seed(0)\ntorch.manual_seed(0)"
FIXES = {
    RANDOM: Fix("Seed torch before this line, and before the model and the loaders are built.", SEED_ALL),
    OUTSIDE: Fix(
        "What makes this tensor is not seeded, or not in a fixed order: seed random and NumPy (np.random.default_rng "
        "takes a seed of its own), give loaders with workers a worker_init_fn, and sort what a folder lists.",
        SEED_ALL,
    ),
    CONTROL: Fix(
        "The program itself takes another way: look for random, time, set order or folder order in a condition or a "
        "loop above this line, and seed or sort it.",
        SEED_ALL,
    ),
    UNSEEN: Fix("Seed all sources of chance before anything is built.", SEED_ALL),
}


def detect(run: Run) -> Iterator[Finding]:
    starts = run.last_fact(StartsFact)
    if starts is None or starts.first_step is None or not is_unseeded(starts):
        return
    seen = starts.cause != UNSEEN
    yield RULE.finding(
        severity=Severity.WARNING,
        confidence=SEEN if seen else GUESSED,
        proof=Proof.STRUCTURE if seen else Proof.STATISTICS,
        title=f"two starts with the same seed part at {when(starts)}: {_what(starts)}",
        summary=f"Of {starts.starts} starts with the same seed no two do the same: {_what(starts)}.",
        first_step=starts.first_step,
        where=[Place(file=starts.file, line=starts.line)] if starts.file else [],
        evidence=list(describe(starts)),
        fix=FIXES[starts.cause],
        symptoms=("runs-differ",),
    )


def is_unseeded(starts: StartsFact) -> bool:
    """Chance, and no operation that fails to repeat itself. Where nothing was seen, a difference in the very first loss
    or batch tells."""
    if starts.cause == UNSEEN:
        return starts.first_batch or starts.first_step == 0
    return starts.cause in (RANDOM, OUTSIDE, CONTROL)


def when(starts: StartsFact) -> str:
    if starts.at_step is None:
        return f"step {starts.first_step}"
    return f"step {starts.at_step}" if starts.at_step >= 0 else "the setup, before the first step"


def describe(starts: StartsFact) -> Iterator[Evidence]:
    """The same for both diagnoses of repeated starts."""
    yield Evidence(
        f"{starts.signal} differs from step {starts.first_step} on, of {starts.steps:,} steps",
        starts.signal,
        starts.first_step,
    )
    if starts.operator is not None:
        at = f" at {starts.file.rpartition('/')[2]}:{starts.line}" if starts.file else ""
        device = f" on {starts.device}" if starts.device not in (None, "cpu") else ""
        yield Evidence(
            f"the first operation that differs is {starts.operator}{' (backward)' if starts.backward else ''}"
            f"{at}{device}, in {when(starts)}"
        )
        if starts.code:
            yield Evidence(starts.code)
    if starts.apart_step is not None:
        yield Evidence(f"from step {starts.apart_step} on they differ beyond their noise", value=starts.apart_step)
    yield from (Evidence(note) for note in starts.notes)


def _what(starts: StartsFact) -> str:
    if starts.cause == RANDOM:
        return f"{starts.operator} draws other numbers"
    if starts.cause == OUTSIDE and starts.operator == LIFTED:
        return "a tensor that is made of Python's or NumPy's numbers is not the same"
    if starts.cause == OUTSIDE:
        return f"{starts.operator} reads a tensor that came from outside torch and is not the same"
    if starts.cause == CONTROL:
        return "the program takes another way"
    return "the first batch is another" if starts.first_batch else "the first loss is another"
