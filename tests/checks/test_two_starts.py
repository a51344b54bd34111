"""Two starts of a script as processes: what is said of them, and that they are told apart."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchdoctor.attach.target import read_target
from torchdoctor.checks import two_starts
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome, failed
from torchdoctor.checks.repeats.starting import Compared
from torchdoctor.experiments.seed_notes import SeedNotes
from torchdoctor.facts import StartsFact
from torchdoctor.facts.repeats import OUTSIDE, RANDOM
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.subject import Subject

SCRIPT = """
import random
import numpy as np
import torch
from torch import nn

{seeds}
x = torch.randn(64, 6)
model = nn.Linear(6, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range({steps}):
    {batch}
    opt.zero_grad()
    model(rows).square().mean().backward()
    opt.step()
"""
PLAIN = "rows = x[torch.randperm(64)[:8]]"


def bench_of(folder: Path, seeded: bool | None = True, **parts: str) -> Bench:
    given = {"seeds": "torch.manual_seed(0)", "batch": PLAIN, "steps": "100000", **parts}
    (folder / "train.py").write_text(SCRIPT.format(**given))
    bench = Bench(Subject(nn.Linear(6, 2)), [])
    bench.target, bench.seeded, bench.setup = read_target([str(folder / "train.py")]), seeded, 1.0
    return bench


# -- with processes ---------------------------------------------------------------------------------


def test_a_seeded_script_is_the_same_twice_and_nothing_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = bench_of(tmp_path, batch=f"{PLAIN}; torch.save(x, 'x.pt')")
    outcome = two_starts.perform(bench)
    assert outcome.passed and "8 updates" in outcome.text
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]


def test_files_of_the_user_in_other_folders_are_neither_removed_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start is a real one: it may begin with clearing the folder of its results, wherever that is."""
    here, results = tmp_path / "here", tmp_path / "results"
    (results / "best").mkdir(parents=True)
    (results / "best" / "model.pt").write_text("precious")
    here.mkdir()
    monkeypatch.chdir(here)
    clear = f"import os, shutil; out = {str(results)!r}; shutil.rmtree(out); os.makedirs(out); "
    seeds = f"{clear}open(out + '/log', 'w').write('x'); torch.manual_seed(0)"
    outcome = two_starts.perform(bench_of(here, seeds=seeds, batch=f"{PLAIN}; torch.save(x, out + '/x.pt')"))
    assert outcome.passed, outcome.text
    assert [p.name for p in results.rglob("*")] == ["best", "model.pt"]


def test_a_script_that_seeds_and_still_differs(tmp_path: Path) -> None:
    batch = "rows = torch.from_numpy(np.random.default_rng().normal(size=(8, 6))).float()"
    outcome = two_starts.perform(bench_of(tmp_path, batch=batch))
    assert outcome.passed is False and outcome.severity is Severity.WARNING
    assert outcome.diagnosis == "unseeded-randomness" and "the script seeds torch (train.py:7)" in outcome.text
    assert "train.py:12" in outcome.text


def test_a_script_without_a_seed(tmp_path: Path) -> None:
    outcome = two_starts.perform(bench_of(tmp_path, seeded=False, seeds="", steps="3"))
    assert outcome.passed is False and outcome.severity is Severity.INFO
    assert "sets no seed" in outcome.text and "in the setup" in outcome.text and "train.py:8" in outcome.text


# -- what is said -----------------------------------------------------------------------------------


def said(folder: Path, monkeypatch: pytest.MonkeyPatch, made: Compared, script: str = "") -> Outcome:
    bench = bench_of(folder)
    (folder / "train.py").write_text(script)
    monkeypatch.setattr(two_starts, "compare", lambda *_args, **_kwargs: made)
    return two_starts.perform(bench)


def call(given: int, line: int = 3, whose: str = "torch") -> dict[str, Any]:
    return {"whose": whose, "given": str(given), "file": "/x/train.py", "line": line}


def test_a_seed_from_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fact = StartsFact(2, 8, first_step=0, signal="loss.train")
    outcome = said(tmp_path, monkeypatch, Compared(fact, [], [[call(1700000000)], [call(1700000001)]]))
    assert outcome.severity is Severity.INFO and "1700000000 and 1700000001, train.py:3" in outcome.text


def test_a_seed_that_is_set_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {"operator": "uniform_", "at_step": -1, "file": "/x/train.py", "line": 2, "cause": RANDOM}
    fact = StartsFact(2, 8, first_step=0, signal="loss.train", **drawn)
    outcome = said(tmp_path, monkeypatch, Compared(fact, [], [[call(0)], [call(0)]]))
    assert outcome.severity is Severity.WARNING and "set after that, in line 3" in outcome.text
    fact = StartsFact(2, 8, first_step=0, signal="loss.train", **{**drawn, "cause": OUTSIDE})
    assert "after that" not in said(tmp_path, monkeypatch, Compared(fact, [], [[call(0)], [call(0)]])).text


def test_an_option_for_the_seed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed', type=int)\n"
    fact = StartsFact(2, 8, first_step=0, signal="loss.train")
    outcome = said(tmp_path, monkeypatch, Compared(fact, [], [[], []]), script)
    assert outcome.fix is not None and outcome.fix.listing == "--seed=0"


def test_what_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_starts, "compare", lambda *_args, **_kwargs: pytest.fail("it was started"))
    bench = bench_of(tmp_path)
    bench.setup = 60.0
    slow = two_starts.perform(bench)
    assert slow.passed is None and "60 s" in slow.text and "torchdoctor seeds --same 2" in slow.text
    bench.setup, bench.outcomes = 1.0, {"repeated-start": failed("", None, Fix(""))}
    assert two_starts.perform(bench).passed is None
    bench.target = None
    assert two_starts.perform(bench).passed is None


def test_a_start_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = said(tmp_path, monkeypatch, Compared(why_not="the script timed out"))
    assert outcome.passed is None and "timed out" in outcome.text


# -- seeds that are noted -----------------------------------------------------------------------------


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def test_seeds_that_the_script_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for holder, name in ((random, "seed"), (np.random, "seed"), (torch, "manual_seed"), (torch.random, "manual_seed")):
        monkeypatch.setattr(holder, name, getattr(holder, name))  # put back afterwards
    state = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    notes = SeedNotes()
    notes.place()
    seed_everything(3)
    assert [(c["whose"], c["given"]) for c in notes.calls] == [("random", "3"), ("NumPy", "3"), ("torch", "3")]
    assert all(c["file"] == __file__ for c in notes.calls)
    assert torch.initial_seed() == 3
    random.seed()
    torch.Generator().manual_seed(1)
    np.random.default_rng(0)
    assert len(notes.calls) == 3
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.random.set_rng_state(state[2])


def test_seeds_that_a_library_sets_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchdoctor.experiments import seed_notes

    monkeypatch.setattr(seed_notes, "is_user_file", lambda file: file == __file__ + ".user")
    assert seed_notes._asking(None) is None
    notes = SeedNotes()
    notes._noted("torch", lambda _seed: None)(1)
    assert notes.calls == []
