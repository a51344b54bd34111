"""The parts of benchmarks/births.py that decide something: truths, scores, what anomaly mode is taken to say."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import anomaly
import birth_scores
import results
from birth_scores import Case, Outcome
from planted.truths import TRUTHS, Truth, scripts, truth_of
from torchdoctor.facts import BirthFact

FORWARD, BACKWARD = truth_of("bag_of_words"), truth_of("siamese")
OUTSIDE, UPDATED, HIDDEN = truth_of("missing_values"), truth_of("adam_half"), truth_of("where_log")


def right_birth(truth: Truth) -> BirthFact:
    return BirthFact(
        operator=min(truth.operators, default=""),
        backward=truth.backward,
        result="nan",
        inputs=[[0.0, 1.0]],
        samples=list(truth.samples),
        source=None if truth.operators else truth.source,
        file=str(truth.path) if truth.operators else None,
        line=truth.line_number or None,
    )


def outcome(truth: Truth, birth: BirthFact | None, at: int = 300) -> Outcome:
    return Outcome(Case(truth, at), birth, at - 1, list(truth.diagnoses[:1]))


def test_every_script_has_one_truth() -> None:
    assert [p.stem for p in scripts()] == sorted(t.script for t in TRUTHS)


def test_there_are_enough_failures() -> None:
    assert len(TRUTHS) * 2 >= 40


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda t: t.script)
def test_a_line_is_named_by_text_that_stands_once(truth: Truth) -> None:
    text = truth.path.read_text()
    assert bool(truth.operators) == bool(truth.line)
    assert not truth.line or text.count(truth.line) == 1
    assert "AT" in text and "SEED" in text
    assert "torchdoctor" not in text


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda t: t.script)
def test_the_truth_itself_is_scored_right(truth: Truth) -> None:
    scored = outcome(truth, right_birth(truth))
    assert scored.right and scored.samples_right and scored.step_right and not scored.confused
    assert scored.diagnosed == bool(truth.diagnoses)


def test_an_operation_into_which_something_bad_had_gone_is_a_propagator() -> None:
    birth = replace(right_birth(FORWARD), operator="addmm", line=FORWARD.line_number + 1, inputs=[[float("nan")] * 2])
    scored = outcome(FORWARD, birth)
    assert scored.confused and not scored.right


def test_a_spoilt_tensor_named_as_the_origin_is_a_propagator() -> None:
    scored = outcome(BACKWARD, BirthFact(operator="", backward=False, result="nan", source="layers.0.bias"))
    assert scored.confused and not scored.right


def test_another_producer_is_wrong_but_no_propagator() -> None:
    birth = replace(right_birth(HIDDEN), operator="log", backward=False, inputs=[[0.0, 3.0]])
    scored = outcome(HIDDEN, birth)
    assert not scored.right and not scored.confused


def test_a_softmax_over_a_mask_made_on_purpose_is_the_producer() -> None:
    truth = truth_of("masked_attention")
    scored = outcome(truth, replace(right_birth(truth), inputs=[[float("-inf"), 2.0]]))
    assert scored.right and not scored.confused


def test_an_operation_is_a_propagator_where_the_data_were_bad() -> None:
    birth = BirthFact(operator="addmm", backward=False, result="nan", inputs=[[0.0, 1.0], [float("nan")] * 2])
    assert outcome(OUTSIDE, birth).confused


def test_nothing_named_is_neither_right_nor_confused() -> None:
    scored = outcome(FORWARD, None)
    assert not scored.right and not scored.confused and not scored.direction_right


@pytest.mark.parametrize(
    "birth",
    [
        BirthFact(operator="", backward=False, result="nan", source="backbone.weight"),
        replace(right_birth(UPDATED), operator="addcdiv_"),
    ],
)
def test_an_update_that_breaks_a_weight_is_named_by_either(birth: BirthFact) -> None:
    assert outcome(UPDATED, birth).right


@pytest.mark.parametrize("change", [{"line": 1}, {"operator": "mul"}, {"backward": True}, {"file": "other.py"}])
def test_each_part_of_the_answer_counts(change: dict) -> None:
    assert not outcome(FORWARD, replace(right_birth(FORWARD), **change)).right


def test_a_step_is_right_when_told_at_once() -> None:
    scored = outcome(FORWARD, right_birth(FORWARD))
    assert [replace(scored, step=s).step_right for s in (298, 299, 300, 301, None)] == [False, True, True, False, False]


def test_anomaly_mode_is_read_from_its_error_and_the_last_line_of_the_script_in_its_warning() -> None:
    said = "Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n"
    said += (
        f'  File "{BACKWARD.path}", line 54, in <module>\n  File "{BACKWARD.path}", line {BACKWARD.line_number}, in f\n'
    )
    said += '  File "/lib/torch/_tensor.py", line 9, in g\n'
    message = "Function 'SqrtBackward0' returned nan values in its 0th output."
    named = anomaly.parse(message, said, str(BACKWARD.path))
    scored = replace(outcome(BACKWARD, None), anomaly=named)
    assert scored.anomaly_operator_right and scored.anomaly_line_right
    assert not replace(scored, anomaly=replace(named, node="MulBackward0")).anomaly_operator_right


def test_anomaly_mode_that_says_nothing_names_nothing() -> None:
    assert anomaly.parse("", "", "x.py") == anomaly.Named()
    assert anomaly.parse("no such file", "", "x.py").error == "no such file"


def test_the_summary_counts_over_all_and_over_each_update() -> None:
    good = [outcome(FORWARD, right_birth(FORWARD), at) for at in (1, 300)]
    rows = {row[0]: row[1] for row in birth_scores.summary([*good, outcome(BACKWARD, None)])}
    assert rows["operation, file, line and direction right"] == "2/3 (67 %)"
    assert rows["operation, file, line and direction right, failing at update 1"] == "1/1 (100 %)"
    assert rows["a propagator named as the producer"] == "0/3 (0 %)"
    assert len(birth_scores.by_case(good)) == 2


def test_a_section_is_replaced_between_its_marks(tmp_path: Path) -> None:
    path, marks = tmp_path / "RESULTS.md", results.marks("births")
    path.write_text("# Measured\n\nbefore\n\n<!-- births -->\nold\n<!-- /births -->\n\nafter\n")
    results.write("<!-- births -->\nnew\n<!-- /births -->", marks, path)
    assert path.read_text() == "# Measured\n\nbefore\n\n<!-- births -->\nnew\n<!-- /births -->\n\nafter\n"
