from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.facts import HealthFact, ModelFact, PhaseFact
from torchdoctor.findings import (
    Confirm,
    Evidence,
    Finding,
    Fix,
    NotExamined,
    Place,
    RuledOut,
    Severity,
    Verdict,
)
from torchdoctor.report.terminal import print_verdict, render
from torchdoctor.run import Run


def make_finding(name: str, code: str = "T004", severity: Severity = Severity.ERROR, **fields: object) -> Finding:
    defaults: dict[str, object] = {
        "family": "procedure",
        "confidence": 0.97,
        "title": f"the title of {name}",
        "summary": f"The summary of {name}.",
        "fix": Fix(f"Change {name}.", "optimizer.zero_grad()\nloss.backward()"),
    }
    return Finding(name=name, code=code, severity=severity, **{**defaults, **fields})


CAUSE = make_finding(
    "missing-zero-grad",
    where=(Place(file="train.py", line=2), Place(parameter="fc1.weight")),
    first_step=1,
    last_step=299,
    evidence=(Evidence("gradients were kept 299 times", spark=tuple(range(8))),),
    confirm=Confirm("Clear them and run again.", "torchdoctor run train.py"),
)
EFFECT = make_finding("exploding-gradients", "A002", Severity.WARNING, consequence_of="missing-zero-grad")
FAR_EFFECT = make_finding("nonfinite-parameters", "N008", consequence_of="exploding-gradients")
OTHER = make_finding("unnormalized-inputs", "D003", Severity.WARNING, fix=Fix("Scale them.", "x = x / 255"))
ASIDE = make_finding("input-bound", "P001", Severity.INFO)
SICK = Verdict(
    run={"steps": 300},
    findings=(CAUSE, OTHER, EFFECT, FAR_EFFECT, ASIDE),
    ruled_out=(RuledOut("not-shuffled", "labels are mixed"),),
    not_examined=(NotExamined("overfitting", ("loss.validation",)),),
    examined=("missing-zero-grad", "input-bound"),
    families={"missing-zero-grad": "procedure", "input-bound": "throughput"},
)
HEALTHY = replace(SICK, findings=(), ruled_out=())


@pytest.fixture
def run() -> Run:
    return (
        RunBuilder(300)
        .scalar(signals.LOSS_TRAIN, np.linspace(2.3, 0.1, 300))
        .optimizer("SGD", lr=0.1)
        .fact(ModelFact("model", "Net", 1000, 1000, 3))
        .fact(PhaseFact(300, 300, 300, 0, 0, 0, None, ["train.py:2"]))
        .fact(HealthFact(overhead=0.021, budget=0.03))
        .build()
    )


def text_of(verdict: Verdict, run: Run | None = None, encoding: str = "utf-8", **options: object) -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding)
    print_verdict(verdict, run, file=stream, **options)
    stream.flush()
    return buffer.getvalue().decode(encoding)


def test_the_letter_tells_everything_in_order(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n    loss.backward()\n")
    letter = text_of(SICK, run, directory=tmp_path / "torchdoctor-runs" / "train-1", width=80)
    parts = [
        "ERROR  missing-zero-grad (T004)",
        "the title of missing-zero-grad",
        "The summary of missing-zero-grad.",
        "97 % sure, steps 1 to 299",
        "What shows it",
        "gradients were kept 299 times",
        "▁▂▃▄▅▆▇█  0 → 7",
        "Where",
        "train.py:2",
        "        loss.backward()\n",
        "parameter fc1.weight",
        "What to change",
        "Change missing-zero-grad.",
        "        optimizer.zero_grad()\n        loss.backward()\n",
        "What follows from it",
        "    └─ exploding-gradients (A002, warning): the title of exploding-gradients",
        "       └─ nonfinite-parameters (N008, error): the title of nonfinite-parameters",
        "To confirm it",
        "      torchdoctor run train.py\n",
        "ALSO FOUND",
        "WARNING  unnormalized-inputs (D003)",
        "      x = x / 255\n",
        "Ruled out",
        "not-shuffled: labels are mixed",
        "Worth knowing",
        "input-bound (P001): the title of input-bound",
        "found        1 model (Net, 1 k parameters), 1 optimizer (SGD, lr 0.1)",
        "not examined overfitting (no validation loss was seen)",
        "measuring took 2.1 % of the step time, inside its budget of 3 %",
        "run          torchdoctor-runs/train-1\n",
        "torchdoctor explain missing-zero-grad",
        "torchdoctor diagnose torchdoctor-runs/train-1",
    ]
    at = 0
    for part in parts:
        assert part in letter[at:], f"{part!r} is missing or out of order in\n{letter}"
        at = letter.index(part, at)


def test_a_consequence_is_told_once_and_under_its_cause(run: Run) -> None:
    letter = text_of(SICK, run)
    assert letter.count("exploding-gradients") == letter.count("the title of exploding-gradients") * 2
    assert "WARNING  exploding-gradients" not in letter


def test_a_healthy_run_gets_a_short_clean_bill(run: Run) -> None:
    letter = text_of(HEALTHY, run)
    assert "NO FAULT FOUND" in letter
    assert "Nothing in 300 steps points at a fault. 2 of 3 diagnoses were examined." in letter
    assert "2.3 → 0.1, falling, best 0.1 at step 299" in letter
    assert "examined     procedure 1, throughput 1" in letter
    assert "not examined overfitting" in letter
    assert len(letter.splitlines()) < 25


def test_infos_alone_are_no_fault(run: Run) -> None:
    letter = text_of(replace(HEALTHY, findings=(ASIDE,)), run)
    assert letter.index("NO FAULT FOUND") < letter.index("Worth knowing") < letter.index("input-bound")


def test_a_run_that_learned_nothing_gets_no_clean_bill(run: Run) -> None:
    stuck = replace(make_finding("underfitting", "E002", Severity.INFO), symptoms=("stuck-at-chance",))
    letter = text_of(replace(HEALTHY, findings=(stuck,)), run)
    assert "NO FAULT" not in letter
    assert letter.index("NO CAUSE FOUND") < letter.index("explain stuck-at-chance") < letter.index("Worth knowing")


def test_a_few_steps_are_not_called_proof(run: Run) -> None:
    assert "train longer" in text_of(replace(HEALTHY, run={"steps": 5}), run)
    assert "train longer" not in text_of(HEALTHY, run)


def test_a_run_that_never_trained_gets_no_clean_bill() -> None:
    letter = text_of(replace(HEALTHY, run={"steps": 0}), RunBuilder(0).build())
    assert "NO TRAINING SEEN" in letter
    assert "NO FAULT" not in letter


@pytest.mark.parametrize(
    ("status", "words"), [("crashed", "crashed"), ("interrupted", "interrupted"), ("finished", "")]
)
def test_how_the_script_ended_is_said(run: Run, status: str, words: str) -> None:
    letter = text_of(replace(SICK, run={"steps": 300, "status": status}), run)
    assert ("until then" in letter) == bool(words)
    assert words in letter


@pytest.mark.parametrize("width", [20, 60, 80, 120, 300])
def test_lines_keep_to_the_width_and_end_without_blanks(run: Run, width: int) -> None:
    long = replace(CAUSE, summary="word " * 60, evidence=(Evidence("long " * 40, spark=tuple(range(40))),))
    letter = text_of(replace(SICK, findings=(long, OTHER, EFFECT)), run, width=width)
    assert all(len(line) <= max(60, min(width, 120)) for line in letter.splitlines())
    assert not any(line.endswith(" ") for line in letter.splitlines())


def test_code_and_paths_are_never_broken(run: Run) -> None:
    code = "optimizer = torch.optim.SGD(" + ", ".join(f"group_{i}" for i in range(20)) + ")"
    folder = Path("/" + "deep/" * 30)
    finding = replace(CAUSE, fix=Fix("Use this.", code))
    letter = text_of(replace(SICK, findings=(finding,)), run, directory=folder, width=60)
    assert code in letter
    assert f"torchdoctor diagnose {folder}" in letter


def test_plain_ascii_where_the_terminal_has_no_more(run: Run) -> None:
    finding = replace(CAUSE, title="loss → ∞ — “bad”")
    letter = text_of(replace(SICK, findings=(finding, EFFECT)), run, encoding="ascii")
    assert letter.isascii()
    assert 'loss -> ? - "bad"' in letter
    assert "`- exploding-gradients" in letter
    assert "_.-=+*%#  0 -> 7" in letter


def test_what_comes_from_a_run_cannot_style_or_move_anything(run: Run) -> None:
    hostile = "[bold red]x[/] \x1b[2J\r\x1b]8;;http://evil\x07 \u202e :smile:"
    finding = make_finding(
        "missing-zero-grad",
        title=hostile,
        summary=hostile + "!",
        where=(Place(file=hostile, line=1, module=hostile),),
        evidence=(Evidence(hostile),),
        fix=Fix(hostile, hostile),
        confirm=Confirm(hostile, hostile),
    )
    letter = text_of(
        Verdict(run={"status": hostile}, findings=(finding,)), run, directory=Path(hostile.replace("/", ""))
    )
    assert not any(c in letter for c in "\x1b\r\x07\u202e")
    assert "[bold red]x[/]" in letter
    assert ":smile:" in letter


def test_source_outside_the_current_folder_is_not_opened(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    (inside / "link.py").symlink_to(secret)
    (inside / "data.txt").write_text("password = 2\n")
    monkeypatch.chdir(inside)
    for file in (str(secret), "../secret.py", "link.py", "data.txt", "\0", "missing.py"):
        finding = replace(CAUSE, where=(Place(file=file, line=1),))
        assert "password" not in text_of(replace(SICK, findings=(finding,)), run)


def test_many_places_are_cut(run: Run) -> None:
    finding = replace(CAUSE, where=tuple(Place(parameter=f"layer{i}.weight") for i in range(20)))
    letter = text_of(replace(SICK, findings=(finding,)), run)
    assert "layer3.weight" in letter
    assert "layer4.weight" not in letter
    assert "and 16 more" in letter


def test_colour_only_on_a_terminal(run: Run) -> None:
    assert "\x1b[" not in text_of(SICK, run)
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80)
    console.print(render(SICK, run), crop=False)
    assert "\x1b[1;31mERROR" in console.file.getvalue()


def test_causes_in_a_circle_are_still_told(run: Run) -> None:
    a = make_finding("a", consequence_of="b")
    b = make_finding("b", consequence_of="a")
    letter = text_of(Verdict(run={}, findings=(a, b)), run)
    assert "the title of a" in letter
    assert "the title of b" in letter


def test_a_verdict_without_its_run_can_be_told() -> None:
    letter = text_of(SICK)
    assert "missing-zero-grad" in letter
    assert "found " not in letter


def test_losses_that_are_all_nan_do_not_stop_the_letter() -> None:
    run = RunBuilder(300).scalar(signals.LOSS_TRAIN, np.nan).build()
    assert "NaN → NaN, not finite" in text_of(HEALTHY, run)


def test_a_folder_that_is_gone_does_not_stop_the_letter(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "missing-zero-grad" in text_of(SICK, run, directory=tmp_path / "run")
