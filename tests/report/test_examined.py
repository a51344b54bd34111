"""The checklist of a verdict: every diagnosis once, by family in the order of search, with what is known of it."""

from __future__ import annotations

from pathlib import Path

from recording import record
from torchdoctor.engine import examine
from torchdoctor.findings import Finding, Fix, NotExamined, RuledOut, Severity, Silenced, Verdict
from torchdoctor.report.examined import CLEAR, FOUND, RULED_OUT, UNKNOWN, list_diagnoses
from torchdoctor.rules.rule import FAMILIES
from torchdoctor.store.reader import open_run


def test_every_diagnosis_stands_once_and_data_comes_first(tmp_path: Path) -> None:
    verdict = examine(open_run(record(tmp_path / "run", cleared=0.0)))
    listed = list_diagnoses(verdict, "0")
    names = [entry["name"] for family in listed["families"] for entry in family["entries"]]
    assert sorted(names) == sorted(verdict.families) and sum(listed["counts"].values()) == len(names)
    assert [family["name"] for family in listed["families"]] == list(FAMILIES)
    (found,) = [e for f in listed["families"] for e in f["entries"] if e["kind"] == FOUND]
    assert (found["name"], found["mark"]) == ("missing-zero-grad", "error")
    assert found["anchor"] == "finding-0-missing-zero-grad"


def test_what_says_most_is_said() -> None:
    finding = Finding("dead-relu", "A003", "architecture", Severity.WARNING, 0.9, "title", "s", Fix("f"))
    verdict = Verdict(
        run={},
        findings=(finding,),
        ruled_out=(RuledOut("exploding-gradients", "norms stay below 3"),),
        not_examined=(NotExamined("overfitting", ("loss.validation",)), NotExamined("odd", ("some.signal",))),
        examined=("dead-relu", "exploding-gradients", "vanishing-gradients", "input-bound"),
        silenced=(Silenced("input-bound", "T001", "it waits", "/x/train.py", 3),),
        families={"dead-relu": "architecture", "vanishing-gradients": "architecture", "overfitting": "evaluation"},
    )
    listed = list_diagnoses(verdict, "0")
    found = {e["name"]: (e["kind"], e["text"]) for f in listed["families"] for e in f["entries"]}
    assert found["dead-relu"] == (FOUND, "title")
    assert found["exploding-gradients"] == (RULED_OUT, "norms stay below 3")
    assert found["vanishing-gradients"] == (CLEAR, "looked for: gradients vanish on the way to the early layers")
    assert found["overfitting"] == (UNKNOWN, "no validation loss was seen")
    assert found["odd"] == (UNKNOWN, "the run lacks some.signal")
    assert found["input-bound"] == (FOUND, "it waits (allowed by a comment at /x/train.py:3)")
    assert listed["said"] == "2 found, 1 ruled out, 1 nothing found, 2 not examined"
