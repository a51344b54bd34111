"""The parts of benchmarks/field that decide something: the draw, edits, labels, scores, and what survives a kill."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from field import confirming, tables
from field.edits import EditError, drop_line, insert_after, replace
from field.outcomes import Outcome, Records
from field.programs import HIGHER, LOWER, Case, Environment, Fault, Metric, Program
from field.projects import COUNTED, LEARNING, Project, draw, read_register, register
from field.run import sample
from field.running import Result, Verdict, _read_metrics
from field.scoring import chance, score

NAMES = [f"project-{number}" for number in range(41)]


def result(metric: float | None = 0.9, status: int = 0, seconds: float = 2.0) -> Result:
    metrics = {} if metric is None else {"accuracy": metric}
    return Result(status, metrics, seconds, seconds, 100.0, "")


def outcome(project: str, accepted: tuple[str, ...] | None, *names: str, half: str = LEARNING) -> Outcome:
    findings = [{"name": name, "severity": "error", "confidence": 0.9} for name in names]
    return Outcome(
        *(f"{project}/program", project, half, "tabular", "plain", accepted, "defect"),
        *(result(), result(seconds=3.0), Verdict(findings)),
    )


def case(program: Program | None = None, fault: Fault | None = None, name: str = "a") -> Case:
    program = program or Program("net", "net.py", "tabular", "plain", Metric(HIGHER, 0.8))
    return Case(Project(name, LEARNING), Environment(("a==1",)), program, fault)


def test_the_draw_splits_in_half_and_depends_on_the_names_alone():
    halves = draw(NAMES)
    assert halves == draw(list(reversed(NAMES)))
    assert sorted(halves[LEARNING] + halves[COUNTED]) == sorted(NAMES)
    assert abs(len(halves[LEARNING]) - len(halves[COUNTED])) <= 1
    assert halves[LEARNING] != sorted(NAMES)[: len(halves[LEARNING])]


def test_a_project_keeps_its_half_when_others_are_drawn_later(tmp_path):
    path = tmp_path / "projects.toml"
    register(NAMES, path)
    before = {project.name: project.half for project in read_register(path)}
    register([*NAMES[:5], "late-1", "late-2"], path)
    after = {project.name: project.half for project in read_register(path)}
    assert {name: after[name] for name in before} == before
    assert {"late-1", "late-2"} <= set(after)


def test_edits_change_what_they_were_written_for_and_refuse_anything_else():
    text = "for x in data:\n    optimizer.zero_grad()\n    loss = f(x)\n"
    assert "zero_grad" not in drop_line("zero_grad")(text)
    assert "    loss = f(x)\n    loss = loss / 2\n" in insert_after("loss = f(x)", "loss = loss / 2")(text)
    assert "f(y)" in replace("f(x)", "f(y)")(text)
    for edit in (drop_line("backward"), insert_after("backward", "a"), replace("a", "b")):
        with pytest.raises(EditError):
            edit(text)


def test_what_a_program_prints_of_itself_is_read_past_progress_bars():
    assert _read_metrics("epoch 1\r 50%\rmetric loss 0.25\nmetric accuracy nan\nmetric too many words\n").keys() == {
        "loss",
        "accuracy",
    }


def test_scores_count_the_first_grave_finding_and_alarms_of_healthy_programs():
    outcomes = [
        outcome("a", ("missing-zero-grad",), "missing-zero-grad", "dead-relu"),
        outcome("b", ("missing-zero-grad",), "dead-relu", "missing-zero-grad"),
        outcome("c", (), "dead-relu"),
        outcome("d", None, "dead-relu"),
        outcome("e", None),
    ]
    measured = score(outcomes)
    assert (measured.right_first.value, measured.right_first.count) == (pytest.approx(1 / 3), 3)
    assert measured.found.value == pytest.approx(2 / 3)
    assert measured.alarmed.value == 0.5
    assert measured.time.value == pytest.approx(1.5)
    assert measured.right_first.low <= measured.right_first.value <= measured.right_first.high


def test_shuffled_labels_score_less_than_true_ones():
    names = [f"diagnosis-{number}" for number in range(20)]
    outcomes = [outcome(name, (name,), name) for name in names]
    assert score(outcomes).right_first.value == 1.0
    assert chance(outcomes).value < 0.2


def test_cases_of_the_counted_half_are_counted_and_not_shown():
    hidden = outcome("secret", ("dead-relu",), "not-shuffled", half=COUNTED)
    alarmed = outcome("secret", None, "not-shuffled", half=COUNTED)
    shown = "\n".join(
        [
            tables.summary([hidden, alarmed]),
            *tables.misses([hidden]),
            *tables.alarms([alarmed]),
            tables.comparison([hidden], [outcome("secret", ("dead-relu",), "dead-relu", half=COUNTED)], ("a", "b")),
        ]
    )
    assert "secret" not in shown
    assert "1 cases of the counted half" in shown


def test_records_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "records.jsonl"
    Records(path).keep("one", {"value": 1})
    with path.open("a") as file:
        file.write('\n{"key": "two", "val')
    again = Records(path)
    again.keep("three", {"value": 3})
    assert Records(path).known == {"one": {"value": 1}, "three": {"value": 3}}


@pytest.fixture
def written(monkeypatch, tmp_path) -> Path:
    monkeypatch.setattr(Project, "folder", property(lambda self: tmp_path / self.name))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text("lr = 0.1\n")
    return tmp_path


def test_a_case_is_run_anew_when_its_script_its_edit_or_its_arguments_change(written):
    def fault(old: str, new: str) -> Fault:
        return Fault("f", "net", (), "condition", "https://example.org", "", edits={"train.py": replace(old, new)})

    digests = [case().digest(), case(fault=fault("0.1", "9.0")).digest(), case(fault=fault("0.1", "8.0")).digest()]
    (written / "a" / "net.py").write_text("lr = 0.2\n")
    digests.append(case().digest())
    assert len(set(digests)) == 4
    relabelled = Fault("f", "net", ("dead-relu",), "condition", "https://example.org", "")
    assert case(fault=relabelled).digest() == case().digest()


def test_a_fault_without_harm_and_a_broken_promise_are_objected_to(written, monkeypatch):
    values = {"sound": 0.9, "broken": 0.7, "harmless": 0.95, "harmful": 0.3}
    monkeypatch.setattr(confirming, "run_bare", lambda c, seed: result(values[(c.fault or c.program).name]))
    programs = [Program(name, "net.py", "tabular", "plain", Metric(HIGHER, 0.8)) for name in ("sound", "broken")]
    faults = [Fault(name, "sound", (), "defect", "", "") for name in ("harmless", "harmful")]
    cases = [*(case(program) for program in programs), *(case(programs[0], fault) for fault in faults)]
    assert confirming.confirm(cases, jobs=1) == 1
    objections = {k: v["objections"] for k, v in json.loads((written / "a" / "confirmed.json").read_text()).items()}
    assert {label: bool(found) for label, found in objections.items()} == {
        "a/sound": False,
        "a/broken": True,
        "a/sound/harmless": True,
        "a/sound/harmful": False,
    }


def test_lower_is_better_where_the_metric_says_so():
    assert Metric(LOWER, 0.1).is_reached(0.05)
    assert not Metric(LOWER, 0.1).is_reached(float("nan"))


def test_a_sample_holds_some_of_every_kind(written):
    kinds = [("tabular", "a"), ("vision", "b")]
    programs = [
        case(Program(f"{kind}-{i}", "net.py", kind, "plain", Metric(HIGHER, 0.8)), name=name)
        for kind, name in kinds
        for i in range(100)
    ]
    chosen = sample(programs)
    assert len(chosen) < len(programs)
    assert {c.program.kind for c in chosen} == {"tabular", "vision"}
