from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import torchdoctor_command
from recording import record


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "sick", cleared=0.0)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "healthy")


def test_the_letter_goes_to_the_standard_output(sick: Path) -> None:
    done = torchdoctor_command("diagnose", str(sick))
    assert done.returncode == 0
    assert done.stderr == ""
    assert "ERROR  missing-zero-grad (T004)" in done.stdout
    assert "torchdoctor explain missing-zero-grad" in done.stdout


def test_a_healthy_run_gets_a_clean_bill(healthy: Path) -> None:
    done = torchdoctor_command("diagnose", str(healthy), "--fail-on", "warning")
    assert done.returncode == 0
    assert "NO FAULT FOUND" in done.stdout
    assert "2.3 → 0.5, falling" in done.stdout


def test_json_to_a_file(sick: Path, tmp_path: Path) -> None:
    done = torchdoctor_command("diagnose", str(sick), "--json", "verdict.json", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    data = json.loads((tmp_path / "verdict.json").read_text())
    assert data["findings"][0]["name"] == "missing-zero-grad"
    assert data["run"]["argv"] == ["train.py", "--lr", "0.1"]
    assert data["run"]["steps"] == 60


def test_json_to_the_standard_output_keeps_it_clean(sick: Path) -> None:
    done = torchdoctor_command("diagnose", str(sick), "--json", "-")
    assert json.loads(done.stdout)["schema"] == 1
    assert "missing-zero-grad" in done.stderr


@pytest.mark.parametrize(("severity", "status"), [("error", 3), ("warning", 3), ("info", 3)])
def test_fail_on_a_severity_or_a_graver_one(sick: Path, severity: str, status: int) -> None:
    assert torchdoctor_command("diagnose", str(sick), "--fail-on", severity, "--quiet").returncode == status


def test_a_folder_of_runs_means_the_newest_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "torchdoctor-runs"
    record(folder / "a")
    record(folder / "b", cleared=0.0)
    done = torchdoctor_command("diagnose", cwd=tmp_path)
    assert "torchdoctor-runs/b, the newest of 2 runs in torchdoctor-runs" in done.stderr
    assert "missing-zero-grad" in done.stdout


def test_where_there_is_no_run_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text('{"a": 1}')
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "run.json").write_text('{"format": 1, "torchdoctor')
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "run.json").write_text('{"format": 99, "torchdoctor": "9.0"}')
    (tmp_path / "file").write_text("x")
    for name in ("missing", "empty", "other", "cut", "new", "file"):
        done = torchdoctor_command("diagnose", name, cwd=tmp_path)
        assert done.returncode == 2, name
        assert done.stdout == "", name
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("torchdoctor: "), done.stderr


def test_a_run_that_was_killed_is_told_as_such(tmp_path: Path) -> None:
    run = record(tmp_path / "a", status="crashed")
    assert "The script crashed" in torchdoctor_command("diagnose", str(run)).stdout


@pytest.mark.parametrize(
    ("form", "begin"), [("json", '{\n  "schema": 1'), ("markdown", "## torchdoctor"), ("github", "::error ")]
)
def test_other_formats_on_the_standard_output(form: str, begin: str, sick: Path) -> None:
    done = torchdoctor_command("diagnose", str(sick), "--format", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(begin)


def test_a_format_in_a_file_beside_the_letter(sick: Path, tmp_path: Path) -> None:
    done = torchdoctor_command("diagnose", str(sick), "--format", "sarif", "-o", "out.sarif", cwd=tmp_path)
    assert "ERROR  missing-zero-grad" in done.stdout
    assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"


def test_settings_from_the_project_and_the_command_line(sick: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.torchdoctor]\nignore = ['missing-zero-grad']\nfail-on = 'error'\n")
    silent = torchdoctor_command("diagnose", str(sick), cwd=tmp_path)
    assert (silent.returncode, "NO FAULT FOUND" in silent.stdout) == (0, True)
    loud = torchdoctor_command("diagnose", str(sick), "--ignore", "overfitting", "-q", cwd=tmp_path)
    assert loud.returncode == 3
    mild = torchdoctor_command(
        "diagnose", str(sick), "--ignore", "overfitting", "--severity", "T004=info", "-q", cwd=tmp_path
    )
    assert mild.returncode == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ("--select", "nothing-such"),
        ("--threshold", "dead-relu.lest=0.7"),
        ("--severity", "dead-relu=fatal"),
        ("--config", "missing.toml"),
        ("--format", "yaml"),
    ],
)
def test_wrong_settings_are_usage_errors(wrong: tuple[str, str], sick: Path, tmp_path: Path) -> None:
    done = torchdoctor_command("diagnose", str(sick), *wrong, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
