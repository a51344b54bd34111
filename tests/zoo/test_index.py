from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torchdoctor import zoo
from torchdoctor.rules import find as find_rule


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dead_relu").mkdir()
    (tmp_path / "dead_relu" / "sick_big_mlp.py").write_text('"""Units die.\n\nMore."""\nraise SystemExit\n')
    (tmp_path / "dead_relu" / "healthy_mlp.py").write_text('"""They live."""\n')
    (tmp_path / "dead_relu" / "data.py").write_text("")
    (tmp_path / "dead_relu" / "sick_broken.py").write_text("this is not python")
    (tmp_path / "sick_outside.py").write_text("")
    (tmp_path / "healthy").mkdir()
    (tmp_path / "healthy" / "healthy_gan.py").write_text('"""Two models."""')
    return tmp_path


def test_files_become_cases_without_being_run(folder: Path) -> None:
    found = zoo.cases(folder)
    assert [(c.name, c.truth, c.summary) for c in found] == [
        ("dead-relu/big-mlp", "dead-relu", "Units die."),
        ("dead-relu/broken", "dead-relu", ""),
        ("dead-relu/healthy-mlp", None, "They live."),
        ("healthy/gan", None, "Two models."),
    ]
    assert [c.healthy for c in found] == [False, False, True, True]


def test_a_case_says_by_itself_that_it_needs_cuda(folder: Path) -> None:
    (folder / "dead_relu" / "sick_gpu.py").write_text('"""Waits. Needs a CUDA device.\n\nMore."""\n')
    assert [c.kind for c in zoo.cases(folder) if c.needs_cuda] == ["gpu"]


def test_cases_are_found_by_name_or_diagnosis(folder: Path) -> None:
    found = zoo.cases(folder)
    assert zoo.find("dead-relu", found).kind == "big-mlp"
    assert zoo.find("dead_relu/big_mlp", found).kind == "big-mlp"
    assert zoo.find("dead-relu/healthy-mlp", found).truth is None
    assert zoo.find("dead-rel", found) is None


def test_every_case_has_a_rule_a_summary_and_knows_nothing_of_us() -> None:
    for case in zoo.cases():
        if case.diagnosis != zoo.NO_DIAGNOSIS:
            assert find_rule(case.diagnosis) is not None, f"{case.path} belongs to no diagnosis"
        assert case.summary, f"{case.path} has no docstring"
        for node in ast.walk(ast.parse(case.path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(n.split(".")[0] == "torchdoctor" for n in names), f"{case.path} imports torchdoctor"


def test_every_sick_case_has_a_healthy_twin() -> None:
    healthy = {c.diagnosis for c in zoo.cases() if c.healthy}
    assert {c.diagnosis for c in zoo.cases() if not c.healthy} <= healthy
