from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from processes import torchdoctor_command
from torchdoctor import symptoms
from torchdoctor.cli import group
from torchdoctor.rules import catalogue
from torchdoctor.rules.rule import HEADINGS


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["explain", *arguments], env={"COLUMNS": "100"})


@pytest.mark.parametrize("name", ["missing-zero-grad", "T004", "t004", "missing_zero_grad", "Missing-Zero-Grad"])
def test_a_diagnosis_by_name_or_code(name: str) -> None:
    result = explain(name)
    assert result.exit_code == 0
    assert "missing-zero-grad (T004, procedure)" in result.output
    for heading in HEADINGS:
        assert heading in result.output


@pytest.mark.parametrize("loaded", catalogue(), ids=lambda r: r.rule.name)
def test_every_diagnosis_can_be_read(loaded) -> None:
    result = explain(loaded.rule.name)
    assert result.exit_code == 0
    assert loaded.title.split()[0] in result.output
    assert "##" not in result.output
    assert set(HEADINGS) <= set(loaded.sections), "the docs lack a heading"
    assert not any(line.endswith(" ") for line in result.output.splitlines())


def test_alone_it_lists_them_all_by_family() -> None:
    output = explain().output
    at = -1
    for loaded in catalogue():
        assert loaded.rule.name in output
        assert output.index(f"{loaded.rule.code} {loaded.rule.name}") > at
        at = output.index(f"{loaded.rule.code} {loaded.rule.name}")


def test_an_unknown_name_is_answered_with_close_ones() -> None:
    result = explain("missing-zerograd")
    assert result.exit_code == 2
    assert "did you mean missing-zero-grad" in result.output


@pytest.mark.parametrize("symptom", symptoms.TABLE, ids=lambda s: s.name)
def test_a_symptom_walks_its_causes_in_order(symptom: symptoms.Symptom) -> None:
    for name in symptom.names:
        output = explain(name).output
        at = [output.index(f"{i}. {cause}") for i, cause in enumerate(symptom.causes, 1)]
        assert at == sorted(at)
        assert "Check first" in output


def test_a_diagnosis_names_the_symptoms_it_may_be_behind() -> None:
    assert "is seen as   diverging" in explain("missing-zero-grad").output


def test_causes_and_consequences_are_named() -> None:
    assert "may cause" in explain("missing-zero-grad").output
    assert "exploding-gradients" in explain("missing-zero-grad").output


@pytest.mark.parametrize("name", ["missing-zero-grad", "environment-differs", ""])
def test_a_terminal_without_unicode_is_served(name: str) -> None:
    done = torchdoctor_command("explain", *([name] if name else []), PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "missing-zero-grad" in done.stdout or "environment-differs" in done.stdout
