from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.facts import KINDS, ClipFact, HealthFact, LoaderFact, ModelFact, PhaseFact, SchedulerFact, WiringFact
from torchdoctor.findings import RULE_FAILED, Finding, Fix, NotExamined, Place, Severity, Verdict
from torchdoctor.last_seen import DIED
from torchdoctor.report.found import (
    describe_asked,
    describe_found,
    describe_health,
    describe_not_examined,
    describe_strays,
    describe_unknown,
)
from torchdoctor.settings import Settings

PHASE = PhaseFact(
    updates=320,
    backwards=320,
    passes_train=320,
    passes_validation=84,
    passes_unknown=0,
    validations=14,
    updates_between_validations=23.0,
    loss_sites=["train.py:41"],
)
TRAIN_LOADER = LoaderFact("train_loader", "train", 23, 1438, 64, 0, True, "TensorDataset")


def test_a_common_loop_is_told_in_one_sentence() -> None:
    run = (
        RunBuilder()
        .optimizer("SGD", lr=0.1)
        .fact(ModelFact("model", "Net", 52_650, 52_650, 9))
        .fact(TRAIN_LOADER)
        .fact(PHASE)
        .build()
    )
    assert describe_found(run) == (
        "1 model (Net, 52.6 k parameters), 1 optimizer (SGD, lr 0.1), 1 loader (train 1,438 samples by 64), "
        "training loss at train.py:41, validation after every epoch (~23 steps)"
    )
    assert describe_unknown(run) == []


def test_nothing_found_is_said_and_not_left_out() -> None:
    assert describe_found(RunBuilder().build()) == (
        "no model, no torch optimizer, no DataLoader, no training loss, no validation"
    )


def test_a_gan_with_extras() -> None:
    run = (
        RunBuilder()
        .optimizer("Adam", key="0", lr=2e-4)
        .optimizer("Adam", key="1", lr=1e-4)
        .fact(ModelFact("generator", "Generator", 1_200_000, 1_200_000, 9))
        .fact(ModelFact("critic", "Critic", 900, 900, 3))
        .fact(SchedulerFact("0", "StepLR", "0"))
        .fact(ClipFact("norm", 1.0, 2.0, 12))
        .scalar(signals.LOSS_TRAIN, 1.0, key="0")
        .build()
    )
    words = describe_found(run)
    assert "2 models (Generator 1.2 M and Critic 900)" in words
    assert "2 optimizers (Adam, lr 0.0002 and Adam, lr 0.0001)" in words
    assert "training loss at an unknown line" in words
    assert words.endswith("1 scheduler (StepLR), gradients clipped by norm at 1")


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (replace(PHASE, validations=1, updates_between_validations=None), "validation once"),
        (replace(PHASE, updates_between_validations=100.0), "validation every ~100 steps"),
        (replace(PHASE, validations=0, passes_validation=0), "no validation"),
        (replace(PHASE, backwards=1280, updates_between_validations=6.0), "validation after every epoch (~6 steps)"),
    ],
)
def test_when_validation_comes(phase: PhaseFact, words: str) -> None:
    assert words in describe_found(RunBuilder().fact(TRAIN_LOADER).fact(phase).build())


def test_accumulation_and_what_was_not_understood_are_told() -> None:
    phase = replace(PHASE, backwards=1280, passes_unknown=3, notes=["two loops share a model"])
    run = RunBuilder().fact(phase).build()
    assert "training loss at train.py:41 (4 backward passes per optimizer step)" in describe_found(run)
    passes = "3 forward passes with neither a backward pass nor a validation loss"
    assert describe_unknown(run) == ["two loops share a model", passes]


def test_what_was_not_examined_is_grouped_by_reason() -> None:
    verdict = Verdict(
        run={},
        not_examined=(
            NotExamined("overfitting", ("loss.validation",)),
            NotExamined("train-mode-in-evaluation", ("modes", "loss.validation")),
            NotExamined("miscalibrated", ("loss.validation",)),
            NotExamined("noisy-validation", ("loss.validation",)),
            NotExamined("clipping-too-tight", ("clip.norm",)),
            NotExamined("dead-relu", (f"{RULE_FAILED}: KeyError: 'a'",)),
            NotExamined("new", ("quantum.flux",)),
        ),
    )
    assert describe_not_examined(verdict) == [
        "overfitting, train-mode-in-evaluation and 2 others (no validation loss was seen)",
        "new (the run lacks quantum.flux)",
        "dead-relu (torchdoctor's own fault, please report it)",
        "1 diagnosis of what is not in this script (all in --json)",
    ]


def test_every_signal_and_fact_has_a_reason() -> None:
    for name in [*signals.ALL, *KINDS]:
        (line,) = describe_not_examined(Verdict(run={}, not_examined=(NotExamined("x", (name,)),)))
        assert "lacks" not in line, name


def test_our_own_health_hides_nothing() -> None:
    health = HealthFact(
        overhead=0.12,
        budget=0.03,
        dropped={"histograms: queue full": 1200},
        disabled={"activations": "raised IndexError three times"},
        unsupported={"embedding.weight": "sparse gradient"},
    )
    lines = describe_health(RunBuilder().fact(health).scalar(signals.TIME_STEP, 0.0015).build())
    assert lines[0] == "measuring took 12 % of the step time, more than its budget of 3 % (a step takes 1.5 ms)"
    assert lines[1] == "dropped: histograms: queue full (1200)"
    assert lines[2] == "activations was switched off: raised IndexError three times"
    assert lines[3] == "embedding.weight is not supported: sparse gradient"
    brief = HealthFact(overhead=0.3, budget=0.03, settling_seconds=0.1, own_seconds=0.11, unnoticed=0.25)
    assert describe_health(RunBuilder().fact(brief).build()) == ["measuring took 0.21 s in all"]
    short = HealthFact(overhead=0.02, budget=0.01, own_seconds=0.4, unnoticed=0.25)
    assert describe_health(RunBuilder().fact(short).build()) == [
        "measuring took 0.4 s, 2 % of the step time, inside its budget of 0.25 s and 1 %"
    ]
    assert describe_health(RunBuilder().build()) == []
    assert describe_health(RunBuilder().info(dropped={"facts": 2}).build()) == ["dropped: facts (2)"]


def test_a_scheduled_rate_is_shown_as_it_was_given() -> None:
    run = RunBuilder().optimizer("AdamW", lr=3.3e-5, initial_lr=1e-3).build()
    assert "AdamW, lr 0.001 scheduled" in describe_found(run)


def test_what_was_not_asked_is_said() -> None:
    verdict = Verdict({}, examined=("dead-relu",))
    words = describe_asked(verdict, Settings(select=("dead-relu", "overfitting"), ignore=("overfitting",)))
    assert words.startswith("1 of the 1 diagnoses asked for were examined; ")
    assert words.endswith("were not asked (--select); ignored: overfitting.")


def test_a_misspelled_permit_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1  # torchdoctor: allow ded-relu\ny = 2  # torchdoctor: allow D003 meant\n")
    places = (Place(file="train.py", line=1), Place(file="train.py", line=2))
    finding = Finding("dead-relu", "A001", "architecture", Severity.WARNING, 0.9, "t", "s", Fix("f"), where=places)
    (said,) = describe_strays(Verdict({}, (finding,)), Settings(folders=(str(tmp_path),)), tmp_path)
    assert said.startswith("train.py:1 allows 'ded-relu'") and said.endswith("did you mean dead-relu?")


def test_many_reasons_are_told_in_short_but_our_own_faults_by_name() -> None:
    needs = [
        *("clip.norm", "clip.threshold", "scaler.scale", "comparison"),
        *(f"{RULE_FAILED}: KeyError: 'a'", "loss.validation", "labels", "loader", "split", "modes"),
    ]
    verdict = Verdict(run={}, not_examined=tuple(NotExamined(f"rule-{n}", (need,)) for n, need in enumerate(needs)))
    assert describe_not_examined(verdict) == [
        "5 diagnoses: no validation loss was seen; no class labels were seen; no DataLoader was seen (2); "
        "no forward pass of a module was seen",
        "rule-4 (torchdoctor's own fault, please report it)",
        "4 diagnoses of what is not in this script (all in --json)",
    ]


def test_parameters_are_not_called_frozen_because_gradients_were_off_when_the_model_was_first_seen() -> None:
    builder = RunBuilder(50).parameters({"a.weight": (4, 4), "b.weight": (2, 4)})
    builder = builder.fact(ModelFact("model", "Net", 24, 0, 3)).fact(PHASE)
    assert "trainable" not in describe_found(builder.fact(WiringFact(updates=50, total=2)).build())
    frozen = WiringFact(updates=50, total=2, frozen=["b.weight"])
    assert "16 of them trainable" in describe_found(builder.fact(frozen, 50).build())


def test_what_was_lost_with_a_killed_process_is_not_called_unseen() -> None:
    missing = (NotExamined("class-imbalance", ("predictions",)), NotExamined("overfitting", ("loss.validation",)))
    killed = describe_not_examined(Verdict(run={"status": DIED}, not_examined=missing))
    assert killed == [
        "class-imbalance (classes are counted until a run ends, and this one was killed)",
        "overfitting (no validation loss was seen)",
    ]
    ended = describe_not_examined(Verdict(run={"status": "finished"}, not_examined=missing))
    assert ended[0] == "class-imbalance (no classification was seen)"
