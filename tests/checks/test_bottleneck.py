from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from checks.programs import HEALTHY
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.bottleneck import name_bottleneck
from torchdoctor.checks.check import Outcome, failed, passed, skipped
from torchdoctor.checks.preflight import check
from torchdoctor.findings import Finding, Fix, Severity
from torchdoctor.instruments.subject import Subject

GOOD = {
    "input-values": passed("all is finite"),
    "memorise": passed("16 samples", steps=12),
    "run-cost": passed("2 s", data_share=0.05, seconds_wait=1e-4, seconds_step=2e-3),
}


def _named(*proved: Finding, **outcomes: Outcome) -> str | None:
    found = {**GOOD, **{name.replace("_", "-"): outcome for name, outcome in outcomes.items()}}
    return name_bottleneck(Bench(Subject(nn.Linear(1, 1)), [], outcomes=found), proved)


def _proved(severity: Severity, name: str = "missing-zero-grad") -> Finding:
    return Finding(name, "P001", "procedure", severity, 0.9, "gradients are never reset", "", Fix("reset them"))


def _bad(text: str, severity: Severity = Severity.ERROR, diagnosis: str | None = None) -> Outcome:
    return failed(text, diagnosis, Fix("mend it"), severity=severity)


def test_nothing_stands_out() -> None:
    said = _named()
    assert said is not None and said.startswith("No bottleneck stands out") and "12 updates" in said and "5%" in said


def test_data_checks_that_could_not_be_made_do_not_pass() -> None:
    assert "the data checks pass" in (_named() or "")
    assert "1 of 2 data checks pass" in (_named(label_values=skipped("could not be examined")) or "")
    assert "data checks" not in (_named(label_values=_bad("rare words", Severity.INFO)) or "")


def test_too_little_was_looked_at() -> None:
    assert name_bottleneck(Bench(Subject(nn.Linear(1, 1)), [])) is None
    assert _named(memorise=skipped("slow"), run_cost=skipped("no batch")) is None


def test_the_data() -> None:
    said = _named(input_values=_bad("3 inputs hold NaN"), memorise=_bad("the loss is NaN"))
    assert said == "The bottleneck is the data: 3 inputs hold NaN."


def test_the_worst_comes_first() -> None:
    said = _named(input_values=_bad("odd scale", Severity.WARNING), gradients_reach=_bad("0 gets no gradient"))
    assert said == "The bottleneck is the model: 0 gets no gradient."


def test_several_of_one_part() -> None:
    said = _named(gradients_reach=_bad("no gradient"), activation_health=_bad("dead", Severity.WARNING))
    assert said is not None and said.endswith("no gradient (1 other check of this part failed, too).")


def test_a_consequence_is_told_with_its_cause() -> None:
    fault, fix = "unnormalized-inputs", Fix("scale them")
    memorise = failed("not learned", fault, fix, consequence_of=fault)
    said = _named(label_values=_bad("large targets", Severity.WARNING, fault), memorise=memorise)
    assert said == "The bottleneck is the data: large targets."


def test_the_training() -> None:
    said = _named(schedule_horizon=_bad("the schedule is over"))
    assert said == "The bottleneck is the model's training: the schedule is over."


def test_the_throughput() -> None:
    slow = Outcome(True, "2 h", figures={"data_share": 0.7, "seconds_wait": 0.07, "seconds_step": 0.1})
    assert (_named(run_cost=slow) or "").startswith("The bottleneck is the throughput: 70% of a step waits")
    assert "the data: bad labels" in (_named(run_cost=slow, input_values=_bad("bad labels")) or "")
    full = _named(run_cost=_bad("the run needs 90 GB", Severity.WARNING))
    assert full == "The bottleneck is the throughput: the run needs 90 GB."


def test_waiting_for_microseconds_is_none() -> None:
    small = passed("1 s", data_share=0.6, seconds_wait=2e-4, seconds_step=3e-4)
    assert "No bottleneck" in (_named(run_cost=small) or "")


def test_a_note_is_no_bottleneck() -> None:
    assert "No bottleneck" in (_named(input_values=_bad("rare words", Severity.INFO)) or "")
    assert "No bottleneck" in (_named(memorise=_bad("too small", Severity.INFO, "capacity-too-low")) or "")


def test_what_the_rules_proved_comes_first() -> None:
    first = "First mend missing-zero-grad, seen in the script's own steps: gradients are never reset."
    slow = Outcome(True, "2 h", figures={"data_share": 0.7, "seconds_wait": 0.07, "seconds_step": 0.1})
    assert _named(_proved(Severity.ERROR)) == _named(_proved(Severity.ERROR), run_cost=slow) == first
    both = _named(_proved(Severity.ERROR), gradients_reach=_bad("no gradient"))
    assert both == f"{first} The bottleneck is the model: no gradient."
    spoilt = _named(_proved(Severity.ERROR), input_values=_bad("3 inputs hold NaN"))
    assert (spoilt or "").startswith("The bottleneck is the data: 3 inputs hold NaN. After that mend missing-zero-grad")
    assert "but mend this: gradients are never reset." in (_named(_proved(Severity.WARNING)) or "")
    assert "No bottleneck" in (_named(_proved(Severity.INFO)) or "")


def test_what_holds_no_training_back_is_not_passed_over() -> None:
    told = _named(checkpoint_round_trip=_bad("the optimizer is not saved", Severity.WARNING)) or ""
    assert told == "Neither model, data nor throughput stands out, but mend this: the optimizer is not saved."


def test_what_a_check_tells_too_is_said_once() -> None:
    said = _named(
        _proved(Severity.ERROR, "nan-in-inputs"),
        input_values=_bad("3 inputs hold NaN", diagnosis="nan-in-inputs"),
    )
    assert said == "The bottleneck is the data: 3 inputs hold NaN."


def test_a_long_text_ends_once() -> None:
    assert (_named(input_values=_bad("word " * 60)) or "").endswith("word ...")


class Slow:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            time.sleep(0.06)
            yield batch


@pytest.mark.parametrize("fault", ["data", "model", "throughput", "none"])
def test_in_the_list(fault: str) -> None:
    program = HEALTHY["mlp"]()
    if fault == "data":
        x, y = program.train.dataset.tensors
        program.train = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x * float("nan"), y), 16)
    if fault == "model":
        program.model[0].requires_grad_(False)  # type: ignore[index]
        for part in program.model:  # type: ignore[union-attr]
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.weight)
    if fault == "throughput":
        program.train = Slow(program.train)
    names = ["input-values", "initialisation", "gradients-reach", "memorise"]
    names += ["run-cost"] if fault == "throughput" else []  # on a busy machine any small step waits for its data
    made = check(program.model, program.train, program.loss_fn, only=names, optimizer=program.optimizer, progress=False)
    assert ("No bottleneck" if fault == "none" else f"is the {fault}") in (made.bottleneck or "")
