"""Warnings of libraries are quoted, and the warnings machinery of the script is left alone."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchdoctor
from torchdoctor.engine import examine
from torchdoctor.facts import LibraryWarningFact
from torchdoctor.report.found import describe_warnings

SOURCE = """
import warnings
def fit(text, category=UserWarning):
    warnings.warn(text, category)
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("some_library")
    module.__file__ = "/x/site-packages/some_library/__init__.py"
    exec(compile(SOURCE, module.__file__, "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "some_library", module)
    return module


def train(steps: int = 4) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        loss = F.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_what_a_library_warned_of_is_quoted_once_with_its_place(tmp_path: Path, library: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        library.fit("said before the run")
        shows = warnings.showwarning
        doctor = torchdoctor.watch(out=tmp_path, quiet=True)
        train()
        for _ in range(3):
            library.fit("the labels are\nshifted")
        library.fit("old spelling", DeprecationWarning)
        registry = dict(library.__warningregistry__)
        doctor.close()
        assert warnings.showwarning is shows
        assert library.__warningregistry__ == registry
    run = doctor.run()
    assert run is not None
    (fact,) = [f for f in run.facts(LibraryWarningFact) if "some_library" in f.file]
    assert (fact.text, fact.category, fact.line) == ("the labels are shifted", "UserWarning", 4)
    assert any(
        "some_library" in line and ":4: the labels" in line for line in describe_warnings(examine(run), tmp_path)
    )


def test_warnings_that_the_script_records_are_its_own(tmp_path: Path, library: ModuleType) -> None:
    doctor = torchdoctor.watch(out=tmp_path, quiet=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
        library.fit("for the script")
    doctor.close()
    assert [str(w.message) for w in caught if "for the script" in str(w.message)] == ["for the script"]


def test_the_same_warning_with_other_numbers_is_quoted_once(tmp_path: Path, library: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
            train()
            for text in ("took 3 tries", "took 17 tries", "float16 is slow", "float32 is slow", 500 * "x"):
                library.fit(text)
    run = doctor.run()
    assert run is not None
    said = [fact.text for fact in run.facts(LibraryWarningFact)]
    assert said[:3] == ["took 3 tries", "float16 is slow", "float32 is slow"]
    assert len(said) == 4
    assert said[3].startswith("xxx")
