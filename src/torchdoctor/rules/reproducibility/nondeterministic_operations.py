"""Two starts with the same seed and the same data part because an operation does not repeat itself.

## What it means
The starts agree to the bit up to one operation that makes different results of the same inputs. The difference is tiny
at first, a last bit, and grows with every step. Means over seeds are not harmed; what is lost is the exact repetition
of a run, and with it the way back to a bug.

## Why it happens
- Sums by atomic additions on a GPU: scatter_add, index_add, embedding and interpolation backwards, bincount.
- cuDNN measures which algorithm is fastest (`cudnn.benchmark`) and takes another one in the next run.
- cuBLAS splits work over streams without a fixed workspace.
- An extension or a kernel of one's own with a race, or reading memory that was never written.
- Threads that finish in another order.

## How it is detected
`torchdoctor seeds --same 2 train.py` starts the script twice with the same seed and compares all that was recorded, bit
by bit. Where it differs, two more starts are traced operation by operation up to that step: each operation's inputs and
results are hashed. The finding stands if the first operation that differs had equal inputs and does not draw from a
generator, or if nothing could be traced and the first steps agree. It is a warning if the starts also part beyond their
noise, else an info.

## How to fix it
`torch.use_deterministic_algorithms(True)` replaces such operations or raises at the line that uses one;
`torch.backends.cudnn.benchmark = False`, and `CUBLAS_WORKSPACE_CONFIG=:4096:8` in the environment. It costs some speed.

## Known false alarms
None that is known: the results did differ. Whether it matters is another question; most trainings can live with it.

## References
PyTorch documentation, "Reproducibility" and torch.use_deterministic_algorithms. Zhuang et al., "Randomness in Neural
Network Training: Characterizing the Impact of Tooling", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import StartsFact
from torchdoctor.facts.repeats import OPERATION
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules.reproducibility.unseeded_randomness import describe, is_unseeded, when
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(code="R002", name="nondeterministic-operations", family="reproducibility", needs=(StartsFact,))

SEEN, GUESSED = 0.95, 0.6
FIX = Fix(
    "Ask torch for deterministic algorithms; it raises where there is none, and names the operation.",
    "torch.use_deterministic_algorithms(True)\ntorch.backends.cudnn.benchmark = False",
)


def detect(run: Run) -> Iterator[Finding]:
    starts = run.last_fact(StartsFact)
    if starts is None or starts.first_step is None or is_unseeded(starts):
        return
    seen = starts.cause == OPERATION
    what = f"{starts.operator} gives different results for the same inputs" if seen else "they agree at first"
    yield RULE.finding(
        severity=Severity.WARNING if starts.apart_step is not None else Severity.INFO,
        confidence=SEEN if seen else GUESSED,
        proof=Proof.STRUCTURE if seen else Proof.STATISTICS,
        title=f"two starts with the same seed part at {when(starts)}: {what}",
        summary=f"{starts.starts} starts with the same seed agree to the bit up to {when(starts)}; there {what}."
        if seen
        else f"{starts.starts} starts with the same seed agree to the bit up to step {starts.first_step}; which "
        "operation parts them was not seen.",
        first_step=starts.first_step,
        where=[Place(file=starts.file, line=starts.line)] if starts.file else [],
        evidence=[*describe(starts), *([] if seen else [Evidence("no operation could be named")])],
        fix=FIX,
        symptoms=("runs-differ",),
    )
