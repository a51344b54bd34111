from __future__ import annotations

import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import InputsFact, LoaderFact, LossCallFact, SplitFact, ValidationBatchFact
from torchdoctor.findings import RuledOut, Severity

NAME = "augmentation-on-validation"
LABELS = [i % 7 for i in range(32)]


def batch(number: int, inputs: list[int], targets: list[int]) -> ValidationBatchFact:
    return ValidationBatchFact("val_loader", number, 0, inputs, targets, [32])


def record(change: int, targets: list[list[int]]) -> RunBuilder:
    run = RunBuilder()
    for number, labels in enumerate(targets):
        inputs = [i + (1000 * number if i < change else 0) for i in range(32)]
        run.fact(batch(number, inputs, labels), step=100 * number)
    return run


@pytest.mark.parametrize("change", [32, 8])
def test_the_same_targets_with_other_inputs(change: int) -> None:
    (found,) = findings(record(change, [LABELS] * 4).build(), NAME)
    assert found.severity is Severity.WARNING
    assert found.evidence[0].value == change / 32


def test_the_same_inputs_rule_it_out() -> None:
    assert [type(s) for s in detect(record(0, [LABELS] * 4).build(), NAME)] == [RuledOut]


def test_other_samples_each_time_are_no_augmentation() -> None:
    drawn = [[(i * n) % 7 for i in range(32)] for n in (1, 2, 3, 4)]
    assert detect(record(32, drawn).build(), NAME) == []


def test_one_class_first_says_nothing_unless_a_loader_keeps_the_order() -> None:
    run = record(32, [[0] * 32] * 4)
    assert detect(run.build(), NAME) == []
    run.fact(LoaderFact("val_loader", "validation", 3, 96, 32, 0, False, "Subset"))
    run.fact(SplitFact("val_loader", "Digits/0", 96, list(range(96)), 1))
    assert len(findings(run.build(), NAME)) == 1


def test_a_denoising_model_is_given_noise_on_purpose() -> None:
    run = record(32, [LABELS] * 4)
    run.fact(InputsFact("validation", "input", [32, 64], "float32"))
    run.fact(LossCallFact("mse_loss", "validation", [32, 64], "float32", [32, 64], "float32"))
    assert detect(run.build(), NAME) == []


@pytest.mark.parametrize(("loss", "told"), [("triplet_margin_loss", 0), (None, 1)])
def test_samples_that_are_held_against_each_other_are_drawn_anew_on_purpose(loss: str | None, told: int) -> None:
    run = record(32, [[]] * 4)
    run.fact(LoaderFact("val_loader", "validation", 3, 96, 32, 0, False, "Triplets"))
    run.fact(SplitFact("val_loader", "Triplets/0", 96, list(range(96)), 1))
    if loss:
        run.fact(LossCallFact(loss, "validation", [32, 16], "float32", None, None))
    found = findings(run.build(), NAME)
    assert len(found) == told
    assert all("keeps its order" in f.evidence[0].text for f in found)
