"""What was done about values that are not finite (on_nonfinite), in the words that findings and letters share."""

from __future__ import annotations

from torchdoctor.facts import RemedyFact
from torchdoctor.run import Run

STEPS_SHOWN = 6


def describe(run: Run) -> list[str]:
    """A line for each kind of thing that was done; none where nothing was."""
    fact = run.last_fact(RemedyFact)
    if fact is None:
        return []
    said = []
    if fact.skips:
        said.append(f"{_count(fact.skips)} skipped ({_steps(fact.skipped, fact.skips)})")
    if fact.rollbacks:
        times = "once" if fact.rollbacks == 1 else f"{fact.rollbacks} times"
        ways = [f"from step {broke} to the state of step {good}" for broke, good in fact.rolled_back[:STEPS_SHOWN]]
        more = ", ..." if fact.rollbacks > len(ways) else ""
        said.append(f"weights, buffers and optimizer state were rolled back {times} ({', '.join(ways)}{more})")
    if fact.halted is not None:
        said.append(f"the training was halted at step {fact.halted}, before its update")
    if fact.spoilt is not None:
        said.append(f"the buffer {fact.spoilt} holds NaN all the same: its old values were not at hand")
    return said


def was_left_out(run: Run, step: int) -> bool:
    """The update of that step was not made."""
    fact = run.last_fact(RemedyFact)
    if fact is None:
        return False
    return step in fact.skipped or step == fact.halted or any(step == broke for broke, _ in fact.rolled_back)


def was_put_right(run: Run, step: int) -> bool:
    """Weights and buffers are again what they were before that step."""
    fact = run.last_fact(RemedyFact)
    return fact is not None and step != fact.halted and fact.spoilt is None and was_left_out(run, step)


def _count(number: int) -> str:
    return "1 update was" if number == 1 else f"{number} updates were"


def _steps(steps: list[int], total: int) -> str:
    shown = ", ".join(map(str, steps[:STEPS_SHOWN]))
    return f"step {shown}" if total == 1 else f"steps {shown}{' ...' if total > min(len(steps), STEPS_SHOWN) else ''}"
