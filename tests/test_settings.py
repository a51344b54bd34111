from __future__ import annotations

from pathlib import Path

import pytest

from building import RunBuilder
from torchdoctor import settings
from torchdoctor.engine import examine
from torchdoctor.errors import UnknownNameError, UsageError
from torchdoctor.facts import CallSiteFact
from torchdoctor.findings import Severity
from torchdoctor.rules import catalogue, find
from torchdoctor.rules.thresholds import adjust
from torchdoctor.run import Run
from torchdoctor.settings import Settings
from torchdoctor.signals import GRADIENTS_CLEARED, LOSS_TRAIN

FULL = """
[project]
name = "mine"
[tool.torchdoctor]
select = ["data", "T0", "dead_relu"]
ignore = ["D003", "not-shuffled"]
fail-on = "warning"
[tool.torchdoctor.severity]
missing-zero-grad = "info"
[tool.torchdoctor.thresholds.dead-relu]
least = 0.7
MIN_LOOKS = 5
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def uncleared(file: str = "train.py", line: int = 1) -> Run:
    """missing-zero-grad, found at that line."""
    builder = RunBuilder(60).scalar(LOSS_TRAIN, [1.0] * 60).scalar(GRADIENTS_CLEARED, [0.0] * 60, key="0")
    return builder.fact(CallSiteFact("backward", file, line, "loss.backward()")).build()


def test_a_file_is_read_and_checked(tmp_path: Path) -> None:
    read = settings.read(write(tmp_path, FULL))
    assert {"dead-relu", "missing-zero-grad", "nan-in-inputs", "not-shuffled"} <= set(read.select)
    assert not any(name.startswith("learning-rate") for name in read.select)
    assert read.ignore == ("unnormalized-inputs", "not-shuffled")
    assert read.severity == {"missing-zero-grad": "info"}
    assert read.thresholds == {"dead-relu": {"LEAST": 0.7, "MIN_LOOKS": 5}}
    assert read.fail_on == "warning"
    assert Settings.from_dict(read.to_dict()) == read


def test_the_nearest_file_that_has_any(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write(inner, "[project]\nname = 'other'\n")
    write(tmp_path, "[tool.torchdoctor]\nignore = ['T004']\n")
    assert settings.discover(inner).ignore == ("missing-zero-grad",)
    assert settings.discover(Path("/")) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selcet = ['data']", "did you mean select"),
        ("select = 3", "list of names"),
        ("select = ['missing-zerograd']", "did you mean missing-zero-grad"),
        ("ignore = ['X']", "no diagnosis 'X'"),
        ("fail-on = 'fatal'", "error, warning or info"),
        ("severity = { overfitting = 'off' }", "error, warning or info"),
        ("severity = { nothing-such = 'info' }", "no diagnosis"),
        ("thresholds = { dead-relu = 0.7 }", "must be a table"),
        ("thresholds = { dead-relu = { leest = 0.7 } }", "it has: least (0.6)"),
        ("thresholds = { dead-relu = { least = 'high' } }", "is a number"),
        ("this is not toml", "not TOML"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        settings.read(write(tmp_path, f"[tool.torchdoctor]\n{text}\n"))
    assert said in str(error.value)
    assert "pyproject.toml" in str(error.value)


def test_the_command_line_goes_over_the_file() -> None:
    file = Settings(select=("dead-relu",), ignore=("overfitting",), severity={"dead-relu": "info"})
    both = file.updated(
        select=["T004,D007"], severity=["missing-zero-grad=warning"], thresholds=["dead-relu.least=0.8"]
    )
    assert both.select == ("missing-zero-grad", "not-shuffled")
    assert both.ignore == ("overfitting",)
    assert both.severity == {"dead-relu": "info", "missing-zero-grad": "warning"}
    assert both.thresholds == {"dead-relu": {"LEAST": 0.8}}


@pytest.mark.parametrize("wrong", ["dead-relu=0.7", "dead-relu.least", "dead-relu.least=much", "dead-relu.lest=1"])
def test_a_wrong_threshold_on_the_command_line(wrong: str) -> None:
    with pytest.raises(UsageError, match="--threshold"):
        Settings().updated(thresholds=[wrong])


def test_rules_are_chosen() -> None:
    assert examine(uncleared()).findings[0].name == "missing-zero-grad"
    ignored = examine(uncleared(), settings=Settings(ignore=("missing-zero-grad",)))
    assert "missing-zero-grad" not in {f.name for f in ignored.findings} | set(ignored.examined)
    only = examine(uncleared(), settings=Settings(select=("missing-zero-grad",)))
    assert only.examined == ("missing-zero-grad",)
    assert only.not_examined == ()


def test_severity_is_the_projects() -> None:
    (finding, *_) = examine(uncleared(), settings=Settings(severity={"missing-zero-grad": "info"})).findings
    assert finding.severity is Severity.INFO


def test_a_threshold_is_set_for_one_examination_only() -> None:
    loaded = find("dead-relu")
    assert loaded is not None
    adjusted = adjust(loaded, {"LEAST": 0.75, "MIN_LOOKS": 4.0})
    assert adjusted.rule == loaded.rule
    assert adjusted.detect.__globals__["LEAST"] == 0.75
    assert adjusted.detect.__globals__["MIN_LOOKS"] == 4
    assert loaded.detect.__globals__["LEAST"] == 0.6
    assert adjust(loaded, {}) is loaded


@pytest.mark.parametrize("loaded", catalogue(), ids=lambda r: r.rule.name)
def test_every_threshold_read_from_source_can_be_set(loaded) -> None:
    constants = settings.known_rules()[loaded.rule.name].constants
    adjusted = adjust(loaded, constants)
    assert {name: adjusted.detect.__globals__[name] for name in constants} == constants


@pytest.mark.parametrize(
    ("comment", "silenced"),
    [
        ("# torchdoctor: allow missing-zero-grad", True),
        ("# torchdoctor: allow overfitting, T004  because we mean it", True),
        ("#torchdoctor:allow missing_zero_grad", True),
        ("# torchdoctor: allow overfitting", False),
        ("# allow missing-zero-grad", False),
    ],
)
def test_a_comment_on_the_line_silences(comment: str, silenced: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"loss = model(x)\nloss.backward()  {comment}\n")
    verdict = examine(uncleared(str(script), 2), settings=Settings(folders=(str(tmp_path),)))
    assert ("missing-zero-grad" in {f.name for f in verdict.findings}) is not silenced
    assert [(s.name, s.line) for s in verdict.silenced] == ([("missing-zero-grad", 2)] if silenced else [])


def test_a_record_cannot_have_other_files_read(tmp_path: Path) -> None:
    outside = tmp_path / "train.py"
    outside.write_text("x  # torchdoctor: allow missing-zero-grad\n")
    inside = tmp_path / "project"
    inside.mkdir()
    for path in (str(outside), "../train.py"):
        assert examine(uncleared(path, 1), settings=Settings(folders=(str(inside),))).silenced == ()


def test_unknown_names_have_their_own_error() -> None:
    with pytest.raises(UnknownNameError):
        settings.find_name("nothing-such", "--select")
