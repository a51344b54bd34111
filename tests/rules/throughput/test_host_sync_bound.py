from __future__ import annotations

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import SynchronisationFact
from torchdoctor.findings import Severity

NAME = "host-sync-bound"


def run(count: int, seconds: float = 0.045, elements: int = 1, steps: int = 10) -> RunBuilder:
    fact = SynchronisationFact("item", count, steps, elements, "train.py", 12, "norms.append(p.grad.norm().item())")
    return RunBuilder(300).scalar(signals.TIME_STEP, seconds).fact(fact, 299)


def test_a_read_for_every_parameter() -> None:
    (found,) = findings(run(1480).build(), NAME)
    assert found.severity is Severity.WARNING and found.where[0].line == 12
    assert "148 calls" in found.title


def test_one_loss_a_step_is_fine() -> None:
    assert not findings(run(10, seconds=1e-3).build(), NAME)


def test_many_reads_in_a_long_step_are_fine() -> None:
    assert not findings(run(200, seconds=1.0).build(), NAME)


def test_large_copies_count_by_their_size() -> None:
    assert findings(run(40, elements=1_000_000).build(), NAME)


def test_too_few_watched_steps() -> None:
    assert not findings(run(500, steps=2).build(), NAME)
