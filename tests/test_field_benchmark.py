"""The parts of benchmarks/field that decide something: the draw, edits, labels, scores, and what survives a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from field import agreement, blind, confirming, second_labels, tables, timing, tools
from field.edits import EditError, drop_line, insert_after, replace
from field.outcomes import Outcome, Records, from_data, outcome_of, to_data
from field.peers.meanings import MEANINGS
from field.peers.neural_observatory import PHRASES, kind_of
from field.peers.wrapper import ORDER, Statement, Wrapper
from field.programs import HIGHER, LOWER, Case, Environment, Fault, Metric, Program
from field.projects import COUNTED, LEARNING, Project, draw, read_register, register
from field.running import Result, Verdict, _read_metrics, _read_verdict
from field.runs import run_cases, sample
from field.scoring import chance, score
from field.second_labels import AnswerError, Label, draw_third, parse_answer
from torchdoctor.rules import catalogue

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


def faulty(name: str, *accepted: str, project: str = "a") -> Case:
    edits = {"train.py": replace("0.1", "9.0")}
    return case(
        fault=Fault(name, "net", accepted, "defect", "https://example.org/bug", "mistaken", edits=edits), name=project
    )


def test_the_third_is_drawn_the_same_in_any_order_and_mixes_faults_with_healthy_programs():
    programs = [Program(f"net-{i}", "net.py", "tabular", "plain", Metric(HIGHER, 0.8)) for i in range(30)]
    cases = [*(case(program) for program in programs), *(faulty(f"fault-{i}") for i in range(10))]
    drawn = draw_third(cases)
    assert [c.label for c in drawn] == [c.label for c in draw_third(cases[::-1])]
    assert [sum((c.fault is None) == is_healthy for c in drawn) for is_healthy in (True, False)] == [10, 4]
    assert {c.fault is None for c in drawn[:10]} == {True, False}


def test_a_second_labeller_sees_the_edit_and_neither_name_nor_label(written):
    confirmed = {
        "a/net": {"metrics": [0.9, None], "cpu_seconds": 3},
        "a/net/telltale": {"metrics": [0.1], "cpu_seconds": 4},
    }
    (written / "a" / "confirmed.json").write_text(json.dumps(confirmed))
    shown = blind.describe(faulty("telltale", "learning-rate-too-high"), 7)
    for visible in ("Case 7", "lr = 0.1", "-lr = 0.1", "+lr = 9.0", "0.9, none", "4 CPU s"):
        assert visible in shown
    for hidden in ("telltale", "learning-rate-too-high", "example.org", "mistaken", "defect", "a/net"):
        assert hidden not in shown
    assert "change" not in blind.describe(case(), 8)


def test_an_edit_of_code_beside_the_script_is_shown_as_a_difference(written, monkeypatch):
    (written / "lib").mkdir()
    (written / "lib" / "loop.py").write_text("for x in data:\n    optimizer.step()\n")
    monkeypatch.setattr(blind, "prepare", lambda project, environment: SimpleNamespace(packages=written))
    program = Program("net", "net.py", "tabular", "plain", Metric(HIGHER, 0.8), copies=("lib",))
    fault = Fault("f", "net", (), "defect", "", "", edits={"lib/loop.py": drop_line("step")})
    shown = blind.describe(case(program, fault), 1)
    assert "--- lib/loop.py" in shown
    assert "-    optimizer.step()" in shown


def test_second_labels_are_stored_by_case_and_only_with_names_of_the_catalogue(monkeypatch, tmp_path):
    monkeypatch.setattr(second_labels, "HERE", tmp_path)
    (tmp_path / LEARNING).mkdir()
    cases = [case(), faulty("f"), faulty("g")]
    second_labels.store(
        cases, [["1", "healthy"], ["2", "dead-relu,samples-mixed", "by", "view"], ["3", "none"]], LEARNING
    )
    assert second_labels.read_labels(LEARNING) == {
        "a/net": Label(True),
        "a/net/f": Label(False, ("dead-relu", "samples-mixed"), "by view"),
        "a/net/g": Label(False),
    }
    for wrong in (["0", "healthy"], ["4", "healthy"], ["1"], ["1", "dead-relu,no-such-diagnosis"]):
        with pytest.raises(AnswerError):
            parse_answer(wrong, len(cases))


def test_labels_agree_on_health_on_a_shared_name_or_on_the_lack_of_one():
    healthy, nameless, one, two = Label(True), Label(False), Label(False, ("a", "b")), Label(False, ("b", "c"))
    assert all(x.agrees_with(y) for x, y in ((healthy, healthy), (nameless, nameless), (one, two)))
    assert not any(x.agrees_with(y) for x, y in ((healthy, nameless), (nameless, one), (one, Label(False, ("c",)))))


def test_agreement_beyond_chance_is_one_for_equal_labels_and_zero_for_a_constant_answer():
    def pairs(second: list[str]) -> list[agreement.Pair]:
        names = [f"diagnosis-{i}" for i in range(len(second))]
        return [
            agreement.Pair(n, n, LEARNING, Label(False, (n,)), Label(False, (s,)))
            for n, s in zip(names, second, strict=True)
        ]

    assert agreement.kappa(pairs([f"diagnosis-{i}" for i in range(10)])) == pytest.approx(1.0)
    assert agreement.kappa(pairs(["diagnosis-0"] * 10)) == pytest.approx(0.0)


@pytest.mark.parametrize(("half", "is_listed"), [(LEARNING, True), (COUNTED, False)])
def test_disagreements_are_listed_of_the_learning_half_only(monkeypatch, half, is_listed):
    first = faulty("secret", "dead-relu")
    disputed = Case(Project("a", half), first.environment, first.program, first.fault)
    monkeypatch.setattr(
        agreement, "read_labels", lambda half: {disputed.label: Label(False, ("not-shuffled",), "sorted")}
    )
    text = agreement.report([disputed], [half])
    assert f"| {half} | 1 of 1 drawn |" in text
    for word in ("secret", "dead-relu", "not-shuffled", "sorted"):
        assert (word in text) == is_listed


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


class Fake(Wrapper):
    """A peer that says the same of every program."""

    requirement = "fake==1.0"
    severities = MappingProxyType({"BAD": "error", "MEH": "info"})

    def read(self, script):
        return [Statement("odd", "MEH", "a"), Statement("explodes", "BAD", "b"), Statement("odd", "MEH", "c")]


WITHOUT_A_RULE = {"samples-mixed", "shared-by-mistake"}
"""Names of the catalogue that no rule has yet."""


@pytest.mark.parametrize("name", tools.PEERS)
def test_a_peer_is_pinned_and_its_findings_stand_for_names_of_the_catalogue(name):
    wrapper = tools.wrapper_of(name)
    known = {loaded.rule.name for loaded in catalogue()} | WITHOUT_A_RULE
    assert wrapper.requirement.startswith(f"{name}==")
    assert {diagnosis for names in MEANINGS[name].values() for diagnosis in names} <= known
    assert set(wrapper.severities.values()) <= set(ORDER)


def test_warnings_without_a_name_are_told_apart_by_their_words():
    kinds = {
        "NaN detected in activations at steps [3].": "NaN or Inf",
        "Vanishing gradients -- mean norm 1e-9 (absolute threshold 1e-7).": "Vanishing gradients",
        "30% of neurons appear dead -- consider reducing learning rate.": "dead neurons",
        "2 gradient norm spike(s) detected.": "gradient norm spike",
        "something new": "other",
    }
    assert {text: kind_of(text) for text in kinds} == kinds
    assert {*PHRASES.values(), "other"} == MEANINGS["neural-observatory"].keys()


def test_the_verdict_of_a_peer_is_scored_like_any_other(written, tmp_path):
    findings = Fake().findings(Fake().read(Path()))
    assert [(f["name"], f["severity"]) for f in findings] == [("explodes", "error"), ("odd", "info")]
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps({"findings": findings, "is_attached": True}))
    recorded, verdict = from_data(json.loads(json.dumps(to_data(result(), _read_verdict(path, result())))))
    meanings = {"explodes": ("exploding-gradients", "learning-rate-too-high")}
    verdict = tools.Tool("fake 1.0", "fake-1.0", lambda c, seed: (recorded, verdict), meanings).translate(verdict)
    fault = Fault("f", "net", ("learning-rate-too-high",), "condition", "", "")
    outcomes = [outcome_of(c, result(), recorded, verdict) for c in (case(fault=fault), case(name="b"))]
    measured = score(outcomes)
    assert (measured.right_first.value, measured.found.value, measured.alarmed.value) == (1.0, 1.0, 1.0)


def test_programs_that_a_tool_could_not_be_attached_to_are_counted(written, monkeypatch, tmp_path):
    monkeypatch.setattr("field.outcomes.CACHE", tmp_path / "cache")
    monkeypatch.setattr("field.runs.run_bare", lambda c, seed: result())
    starts = []

    def run(c, seed):
        starts.append(c.label)
        crashed = c.project.name == "b"
        return result(status=1 if crashed else 0), Verdict(is_attached=crashed)

    tool = tools.Tool("fake 1.0", "fake-1.0", run)
    for _ in range(2):  # the second time from the records
        outcomes = run_cases([case(), case(name="b")], tool, jobs=1)
    assert sorted(starts) == ["a/net", "b/net"]
    row = tables.by_tool({tool.title: outcomes}).splitlines()[-1]
    assert "fake 1.0 | 1 of 2" in row
    assert row.endswith("| 50% (0% to 100%) of 2 | 1 |")


def test_a_loop_is_attached_to_the_model_that_its_optimizer_trains():
    torch = pytest.importorskip("torch")
    from field.peers.models import Models

    body, head = (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()) for _ in range(2))
    whole = torch.nn.Sequential(body, head)
    both = torch.optim.SGD(whole.parameters(), lr=0.1)
    part = torch.optim.SGD(head.parameters(), lr=0.1)
    loose = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    models = Models()
    assert [models.trained_by(optimizer) for optimizer in (both, part, loose)] == [[whole], [head], []]


def test_timing_compares_the_median_rounds_of_programs_that_ended_well():
    def rounds(*pairs, status=0):
        return tuple(
            {timing.BARE: result(seconds=bare), "tool": result(seconds=under, status=status)} for bare, under in pairs
        )

    slow = timing.Timing("a", rounds((2.0, 3.0), (2.0, 4.0), (9.0, 90.0)))
    crashed = timing.Timing("b", rounds((2.0, 200.0), status=1))
    text = timing.report([slow, crashed], ["tool"], 3)
    assert "| tool | wall time | 2.00 (2.00 to 2.00) | 2.00 (2.00 to 2.00) | 1 of 2 |" in text


FAKE_TORCHDIAG = """
from pathlib import Path
def summary(model):
    if not any(p.requires_grad for p in model.parameters()): print("ALL parameters are frozen")
def check_gradients(model):
    print("metric hidden 1.0")
    return {name: {"status": "OK" if p.grad is not None else "no_grad"} for name, p in model.named_parameters()}
def check_dead_neurons(model, batch): return {"0": {"dead_pct": 30.0 if len(batch) == 8 else 90.0}}
"""
TRAINING = """
import sys
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
def closure():
    optimizer.zero_grad()
    model.requires_grad_(False)  # an evaluation, as some libraries make one
    model(torch.ones(8, 2))
    model.requires_grad_(True)
    loss = model(torch.ones(8, 2)).sum()
    loss.backward()
    return loss
optimizer.step(closure)
print("metric arguments", len(sys.argv))
sys.exit(3)
"""


def test_a_peer_is_called_in_the_loop_of_a_script_that_runs_as_without_it(tmp_path):
    (tmp_path / "torchdiag.py").write_text(FAKE_TORCHDIAG)
    (tmp_path / "train.py").write_text(TRAINING)
    verdict = tmp_path / "verdict.json"
    words = [tools.PEERS_FOLDER, "torchdiag", tmp_path, verdict, "train.py", "--seed", "0"]
    done = subprocess.run([sys.executable, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, _read_metrics(done.stdout)) == (3, {"arguments": 3.0}), done.stderr
    report = _read_verdict(verdict, result())
    assert report.is_attached
    assert [(f["name"], f["severity"]) for f in report.findings] == [("dead neurons", "warning")]


def test_timing_runs_bare_and_recorded_in_turns_and_resumes(written, monkeypatch, tmp_path):
    starts = []

    def run(name):
        return lambda c, seed: starts.append(name) or result()

    monkeypatch.setattr("field.timing.CACHE", tmp_path / "cache")
    monkeypatch.setattr("field.timing.run_bare", run(timing.BARE))
    tool = tools.Tool("tool", "tool-1", lambda c, seed: (run("tool")(c, seed), Verdict()))
    for _ in range(2):  # the second time from the records
        (measured,) = timing.measure([case()], [tool], rounds=2)
    assert starts == [timing.BARE, "tool", "tool", timing.BARE]
    assert (len(measured.rounds), measured.ratio("tool", timing.MEASURES["wall time"])) == (2, 1.0)


def test_programs_that_do_not_repeat_themselves_are_not_counted_as_changed(tmp_path, monkeypatch):
    tried = case()
    monkeypatch.setattr(Project, "folder", property(lambda _: tmp_path))
    recorded = Result(0, {"r2": 0.5}, 1.0, 1.0, 100.0, "")
    for confirmed, is_counted in ((0.9, True), (0.7, False)):
        (tmp_path / "confirmed.json").write_text(json.dumps({tried.label: {"metrics": [confirmed]}}))
        bare = Result(0, {"r2": 0.9}, 1.0, 1.0, 100.0, "")
        found = outcome_of(tried, bare, recorded, Verdict())
        assert not found.is_equal and found.is_repeatable == is_counted
        assert score([found]).equal.count == is_counted and len(tables.unequal([found])) == is_counted
