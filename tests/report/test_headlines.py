"""What stands on top: the gravest cause, and what a clean bill is worth."""

from __future__ import annotations

from typing import Any

import pytest

from torchdoctor.findings import Ending, Finding, Fix, NotExamined, Severity, Verdict
from torchdoctor.report.headlines import HEALTHY, NONE, headline_of


def verdict(*findings: Finding, **fields: Any) -> Verdict:
    run = {"steps": fields.pop("steps", 500), "status": fields.pop("status", "finished")}
    return Verdict(run=run, findings=findings, examined=("a", "b"), **fields)


def found(name: str, severity: Severity = Severity.ERROR, **more: Any) -> Finding:
    return Finding(name, "T004", "procedure", severity, 0.9, "gradients pile up", "why", Fix("f"), **more)


def test_a_cause_comes_before_what_follows_from_it() -> None:
    top = headline_of(verdict(found("dead-relu", consequence_of="missing-zero-grad"), found("missing-zero-grad")))
    assert (top.name, top.severity) == ("missing-zero-grad", "error")
    assert top.title == "Gradients pile up" and top.badge == "error: missing-zero-grad"


def test_notes_are_no_faults() -> None:
    top = headline_of(verdict(found("overfitting", Severity.INFO)))
    assert top.severity == HEALTHY and top.badge == "no fault found" and not top.summary


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 0}, "no clean bill"),
        ({"steps": 3}, "3 steps"),
        ({"status": "running"}, "No fault found in 500 steps; 2 diagnoses were examined"),
    ],
)
def test_clean_bills(given: dict[str, Any], said: str) -> None:
    assert said in headline_of(verdict(**given)).title


def test_a_bill_says_what_it_is_worth() -> None:
    assert headline_of(verdict(steps=0)).severity == NONE
    assert "So few steps" in headline_of(verdict(steps=3)).summary
    assert headline_of(verdict(status="running")).badge == "no fault so far"
    unseen = headline_of(verdict(not_examined=(NotExamined("overfitting", ("loss.validation",)),)))
    assert "No validation loss was seen" in unseen.summary
    stuck = headline_of(verdict(found("underfitting", Severity.INFO, symptoms=("stuck-at-chance",))))
    assert stuck.severity == NONE and stuck.badge == "no cause found"


def test_a_loss_that_is_not_finite_is_never_clean() -> None:
    top = headline_of(verdict(ending=Ending("the training loss is NaN or infinite", symptom="nan-later")))
    assert top.severity == NONE and top.badge == "no cause found" and "NaN" in top.title and "nan-later" in top.summary


def test_a_loss_that_was_not_understood_is_never_clean() -> None:
    top = headline_of(verdict(ending=Ending(unseen=("no targets were seen",))))
    assert top.severity == NONE and "No fault found" not in top.title and "no targets were seen" in top.title


def test_validation_stands_in_the_clean_bill() -> None:
    assert "95.3%" in headline_of(verdict(ending=Ending(validation="accuracy 95.3%"))).summary
