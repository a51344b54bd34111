from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from processes import torchdoctor_command
from torchdoctor import zoo
from torchdoctor.cli import group
from torchdoctor.cli.demo import DEFAULTS, choose
from torchdoctor.errors import UnknownNameError


def test_the_list_has_every_case() -> None:
    output = CliRunner().invoke(group, ["demo", "--list"], env={"COLUMNS": "100"}).output
    cases = zoo.cases()
    assert cases
    for case in cases:
        assert case.name in output


def test_the_default_is_a_sick_case_everyone_knows() -> None:
    assert choose(None).truth in DEFAULTS


def test_an_unknown_case_is_answered_with_close_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean missing-zero-grad"):
        choose("missing-zero-gradd")


@pytest.mark.slow
def test_the_demo_ends_with_the_verdict_and_its_folder(tmp_path: Path) -> None:
    done = torchdoctor_command("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    case = choose(None)
    assert f"({case.truth})" in done.stderr or case.truth in done.stderr
    (run,) = (tmp_path / "torchdoctor-runs").iterdir()
    assert f"torchdoctor-runs/{run.name}" in done.stderr
    assert "torchdoctor demo --list" in done.stderr
    assert "torchdoctor report\n" in done.stderr and "torchdoctor ui\n" in done.stderr
    verdict = torchdoctor_command("diagnose", str(run), "--json", "-", "--quiet")
    assert json.loads(verdict.stdout)["findings"][0]["name"] == case.truth
