"""Copies between host and device take a good part of the step.

## What it means
Batches, masks or results go over the bus in every step, and Python waits meanwhile. From ordinary (pageable) memory the
driver copies twice, at a fraction of the bus's speed, and a plain `.to(device)` waits until all is done. From pinned
memory, with `non_blocking=True`, the copy runs beside the computation and costs next to nothing.

## Why it happens
- The loader does not pin its memory, or the copy is not `non_blocking`.
- A constant (a mask, a table, class weights) lies on the host and is copied again in every step.
- Images travel as 32-bit numbers where bytes would do.

## How it is detected
Only where a CUDA device is used. On some steps, `Tensor.to`, `Tensor.cuda` and `Tensor.copy_` between host and device
are timed, with their bytes, their line, whether the memory is pinned and the call `non_blocking`, and whether it is the
very tensor of the step before, unchanged. A call is taken to cost what its bytes take at the speed of a pageable copy,
measured after the training (6 GB/s where it was not), or a quarter of it for pinned memory, but no more than the time
that was spent in it: what was waited for besides the copy does not count. Pinned and non-blocking copies count nothing.
An info needs 10 % of the step; a warning 20 %, and a second of the run so far.

## How to fix it
`DataLoader(..., pin_memory=True)` and `batch.to(device, non_blocking=True)`. Constants belong on the device once
(`register_buffer`, or `.to(device)` before the loop). Send bytes and convert on the device. A data set that fits stays
there as a whole.

## Known false alarms
A single training pass over data that is used once and never again may have no better way than pinning.

## References
PyTorch documentation, "A guide on good usage of non_blocking and pin_memory()". NVIDIA, "How to Optimize Data Transfers
in CUDA C/C++".
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import DeviceFact, TransferFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import device
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import TIME_STEP

RULE = Rule(
    of_code=True,
    code="P005",
    name="slow-transfer",
    family="throughput",
    needs=(TransferFact, TIME_STEP),
    explains=("small-kernels", "device-underfilled"),
)

TELL_SHARE, WARN_SHARE = 0.1, 0.2
WARN_SECONDS = 1.0
"""Spent in copies so far: less is not worth a change."""
BYTES_A_SECOND = 6e9
"""Pageable copies over PCIe, where it was not measured."""
PINNED_FASTER = 4.0
"""Pinned copies reach 20 to 50 GB/s over PCIe 4 and 5."""
NEEDLESS = 0.5
"""Share of the calls that copied what they had copied the time before."""
LEAST_STEPS = 3


def detect(run: Run) -> Iterator[Finding]:
    last = {(f.call, f.file, f.line, f.to_device): f for f in run.facts(TransferFact)}
    facts = [f for f in last.values() if f.steps >= LEAST_STEPS]
    step = device.step_seconds(run)
    if not facts or step is None:
        return
    fact = run.last_fact(DeviceFact)
    rate = fact.transfer_rate if fact and fact.transfer_rate else BYTES_A_SECOND
    cost = {f: _cost(f, rate) for f in facts}
    share = min(sum(cost.values()) / step, 1.0)
    if share >= TELL_SHARE:
        yield _finding(run, sorted((f for f in facts if cost[f] > 0), key=lambda f: -cost[f]), cost, share, step)


def _cost(fact: TransferFact, rate: float) -> float:
    """Seconds of a step in which Python waits for the copy itself."""
    if fact.pinned and fact.non_blocking:
        return 0.0
    speed = PINNED_FASTER * rate if fact.pinned else rate
    return fact.count / fact.steps * min(fact.seconds, fact.bytes / speed)


def _how(fact: TransferFact) -> str:
    ways = [] if fact.pinned else ["pageable"]
    ways += [] if fact.non_blocking else ["blocking"]
    ways += ["the same tensor every time"] if fact.repeated >= NEEDLESS else []
    return ", ".join(ways)


def _finding(
    run: Run, facts: list[TransferFact], cost: dict[TransferFact, float], share: float, step: float
) -> Finding:
    worst = facts[0]
    severe = share >= WARN_SHARE and share * step * run.steps >= WARN_SECONDS
    where = "to" if worst.to_device else "from"
    return RULE.finding(
        severity=Severity.WARNING if severe else Severity.INFO,
        confidence=0.85 if severe else 0.7,
        title=f"Copies {where} the device take {share:.0%} of the step ({_how(worst)})",
        summary=(
            f"{1e3 * share * step:.3g} of {1e3 * step:.3g} ms of a step are spent copying between host and device "
            "while Python waits."
        ),
        where=known(*(Place(file=f.file, line=f.line) for f in facts[:3])),
        first_step=0,
        last_step=run.steps,
        evidence=[
            Evidence(
                f"{f.count / f.steps:.3g} a step of {f.bytes / 1e6:.3g} MB, {1e3 * cost[f]:.3g} ms, {_how(f)}: "
                f"{f.code or f.call}",
                value=cost[f] / step,
                threshold=WARN_SHARE,
            )
            for f in facts[:3]
        ],
        fix=_fix(worst),
        symptoms=("slow-steps", "gpu-busy-but-slow"),
    )


def _fix(worst: TransferFact) -> Fix:
    if worst.repeated >= NEEDLESS:
        return Fix(
            "It is the same tensor in every step: put it on the device once, before the loop.",
            'self.register_buffer("table", table)',
        )
    if not worst.to_device:
        return Fix("Compute on the device, and bring over only the result.", None)
    return Fix(
        "Pin the memory of the batches and let the copy run beside the computation.",
        "DataLoader(..., pin_memory=True)  # and batch.to(device, non_blocking=True)",
    )
