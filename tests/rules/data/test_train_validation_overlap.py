from __future__ import annotations

from dataclasses import replace

import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import LoaderFact, MembershipFact, PhaseFact, SplitFact
from torchdoctor.findings import Proof, RuledOut, Severity
from torchdoctor.signals import BATCH_SIZE, LOSS_VALIDATION

NAME = "train-validation-overlap"
SPACING = (1 << 64) // 4096


def marks(first: int, last: int) -> list[int]:
    """Fingerprints of samples first..last, spread over the range as signed numbers."""
    values = [(i * SPACING * 2654435761) % (1 << 64) for i in range(first, last)]
    return [v - (1 << 64) if v >= 1 << 63 else v for v in values]


def member(phase: str, group: str, kept: list[int], repeats: int = 0, code: str = "") -> MembershipFact:
    count = len(kept)
    return MembershipFact(phase, group, kept, 1.0, 5 * count, 4, repeats, count * (count - 1) // 2, code)


def loader(name: str, phase: str, samples: int) -> LoaderFact:
    return LoaderFact(name, phase, samples // 32, samples, 32, 0, None, "Dataset")


def split(name: str, indices: range, base: str = "Dataset/0") -> SplitFact:
    return SplitFact(name, base, len(indices), list(indices), 1)


def test_the_same_samples_in_both() -> None:
    run = RunBuilder().fact(member("train", "", marks(0, 300))).fact(member("validation", "#0", marks(240, 400)))
    (found,) = findings(run.build(), NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE


def test_indices_show_what_augmentation_hides() -> None:
    run = (
        RunBuilder()
        .fact(member("train", "", marks(0, 300)))
        .fact(member("validation", "val_loader", marks(1000, 1200)))
        .fact(loader("train_loader", "train", 400))
        .fact(loader("val_loader", "validation", 200))
        .fact(split("train_loader", range(400)))
        .fact(split("val_loader", range(350, 550)))
    )
    (found,) = findings(run.build(), NAME)
    assert "50 of the 200 indices" in found.evidence[0].text


def test_separate_splits_are_ruled_out() -> None:
    run = RunBuilder().fact(member("train", "", marks(0, 300))).fact(member("validation", "#0", marks(300, 400)))
    assert [type(s) for s in detect(run.build(), NAME)] == [RuledOut]


def test_few_different_samples_agree_by_chance() -> None:
    run = (
        RunBuilder()
        .fact(member("train", "", marks(0, 200), repeats=400))
        .fact(member("validation", "#0", marks(100, 220), repeats=100))
    )
    assert findings(run.build(), NAME) == []


def test_the_fit_is_evaluated_beside_a_real_validation() -> None:
    run = (
        RunBuilder()
        .fact(member("train", "", marks(0, 300)))
        .fact(member("validation", "#0", marks(0, 256)))
        .fact(member("validation", "#1", marks(300, 420)))
    )
    assert findings(run.build(), NAME) == []
    named = run.fact(member("validation", "#0", marks(0, 256), code="score = model(X_val)"))
    assert findings(named.build(), NAME)


def test_a_loader_that_trains_may_be_evaluated() -> None:
    run = (
        RunBuilder()
        .fact(member("train", "", marks(0, 300)))
        .fact(member("validation", "loader", marks(0, 300)))
        .fact(loader("loader", "train", 300))
        .fact(split("loader", range(300)))
    )
    assert findings(run.build(), NAME) == []


def test_one_line_that_prints_the_fit_and_the_validation() -> None:
    line = "print(loss(model(X), y).item(), loss(model(X_val), y_val).item())"
    run = (
        RunBuilder()
        .fact(member("train", "", marks(0, 300)))
        .fact(member("validation", "#0", marks(0, 256), code=line))
        .fact(member("validation", "#1", marks(300, 420), code=line))
    )
    assert findings(run.build(), NAME) == []


def test_loaders_made_in_the_loop_share_one_name() -> None:
    run = RunBuilder(300).fact(loader("loader", "train", 400))
    run.fact(member("train", "", marks(0, 400))).fact(member("validation", "loader", marks(300, 500)))
    (found,) = findings(run.build(), "train-validation-overlap")
    assert found.severity is Severity.ERROR


def test_a_teacher_that_answers_before_every_update_is_no_validation() -> None:
    run = RunBuilder(300).fact(member("train", "", marks(0, 400))).fact(member("validation", "#0", marks(100, 400)))
    run.fact(PhaseFact(300, 300, 300, 300, 0, 299, updates_between_validations=1.0))
    assert findings(run.build(), "train-validation-overlap") == []


def test_a_smaller_loader_made_in_the_loop_is_not_the_training_set_again() -> None:
    run = RunBuilder(300).fact(loader("loader", "train", 800)).scalar(BATCH_SIZE, 50.0, "validation", range(0, 300, 50))
    run.fact(member("train", "", marks(0, 800))).fact(member("validation", "loader", marks(0, 200)))
    run.fact(PhaseFact(300, 300, 300, 24, 0, 6, updates_between_validations=50.0))
    assert findings(run.build(), "train-validation-overlap") == []  # a look at how well some of it fits
    run.fact(replace(member("validation", "loader", marks(0, 200)), code="for x, y in DataLoader(val_set, 50):"))
    (found,) = findings(run.build(), "train-validation-overlap")
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("rows", "validated", "is_told"),
    [(32.0, range(1000, 1200), True), (400.0, range(1000, 1200), False), (400.0, range(100, 300), True)],
)
def test_series_that_the_model_cuts_are_not_samples(rows: float, validated: range, is_told: bool) -> None:
    """Both loaders give the same series; of windows, the same or others are validated on."""
    run = (
        RunBuilder()
        .fact(member("train", "", marks(0, 300)))
        .fact(member("validation", "val_loader", marks(validated.start, validated.stop)))
        .fact(loader("train_loader", "train", 400))
        .fact(loader("val_loader", "validation", 400))
        .fact(split("train_loader", range(400)))
        .fact(split("val_loader", range(400)))
        .fact(PhaseFact(100, 100, 100, 40, 0, 4, updates_between_validations=25.0))
        .scalar(BATCH_SIZE, rows, "train", range(0, 100, 10))
    )
    assert bool(findings(run.build(), NAME)) == is_told


@pytest.mark.parametrize(
    ("batch", "has_loss", "is_told"), [(8.0, False, False), (320.0, False, True), (8.0, True, True)]
)
def test_what_an_agent_collects_is_trained_on(batch: float, has_loss: bool, is_told: bool) -> None:
    """Forty rounds without gradients: of eight samples at a place, others each time; or of the same 320."""
    run = (
        RunBuilder()
        .fact(member("train", "", marks(0, 900)))
        .fact(member("validation", "#0", marks(0, 320)))
        .fact(member("validation", "#1", marks(880, 1200)))
        .fact(PhaseFact(2560, 2560, 2560, 4624, 0, 41, updates_between_validations=64.0))
        .scalar(BATCH_SIZE, batch, "validation", range(0, 100, 10))
    )
    if has_loss:
        run.scalar(LOSS_VALIDATION, 1.0, steps=range(0, 100, 10))
    assert bool(findings(run.build(), NAME)) == is_told
