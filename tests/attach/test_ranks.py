"""Which rank a process is, and the name its record goes under."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchdoctor.attach.options import Options
from torchdoctor.attach.ranks import RANK_KEYS, find_rank, last_written, speaks, take_place, taken_places


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in RANK_KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed(None))


def distributed(rank: int | None) -> SimpleNamespace:
    return SimpleNamespace(is_available=lambda: True, is_initialized=lambda: rank is not None, get_rank=lambda: rank)


@pytest.mark.parametrize(
    ("environment", "rank", "speaking"),
    [
        ({}, None, True),
        ({"RANK": "0"}, 0, True),
        ({"RANK": "3"}, 3, False),
        ({"RANK": "", "SLURM_PROCID": "2"}, 2, False),
        ({"OMPI_COMM_WORLD_RANK": "1"}, 1, False),
        ({"RANK": "nonsense"}, None, True),
    ],
)
def test_the_rank_comes_from_the_launcher(environment: dict[str, str], rank: int | None, speaking: bool) -> None:
    assert find_rank(environment) == rank
    assert speaks(environment) is speaking


def test_the_process_group_knows_better_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed(2))
    assert find_rank({"RANK": "0"}) == 2


def test_a_run_that_shares_its_name_with_nobody_keeps_it(tmp_path: Path) -> None:
    options = Options(out=str(tmp_path), name="n")
    (tmp_path / "n").mkdir()
    assert take_place(options) == ("n", 0)


def test_ranks_meet_under_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(out=str(tmp_path), name="n", shared=True)
    (tmp_path / "n").mkdir()
    monkeypatch.setenv("RANK", "1")
    assert take_place(options) == ("n", 1)


def test_processes_without_a_rank_take_a_name_each(tmp_path: Path) -> None:
    options = Options(out=str(tmp_path / "runs"), name="n", shared=True)
    assert [take_place(options) for _ in range(3)] == [("n", 0), ("n-2", 0), ("n-3", 0)]


def test_what_was_written_is_found_again_but_not_what_is_older(tmp_path: Path) -> None:
    """By the clock of the disk, which may be an hour behind ours, and not by ours."""
    options = Options(out=str(tmp_path), name="n", shared=True)
    assert last_written(options) == 0.0
    for name, age in (("other", 10), ("n", 100), ("n-2", 0), ("n-10", 0), ("n-x", 0), ("n-3", 0)):
        (tmp_path / name).mkdir()
        if name == "n-2":
            before = last_written(options)
        if name != "n-3":
            (tmp_path / name / "run.json").touch()
            os.utime(tmp_path / name / "run.json", (time.time() - 3600 - age,) * 2)
    assert [p.name for p in taken_places(options, before)] == ["n-2", "n-10"]
    assert [p.name for p in taken_places(options, 0.0)] == ["n", "n-2", "n-10"]
    assert taken_places(Options(out=str(tmp_path / "nowhere"), name="n"), 0.0) == []


def name_in_child(*command: str, **environment: str) -> str:
    code = "from torchdoctor.attach.ranks import make_name; print(make_name('train'))"
    words = [*command, f'{sys.executable} -c "{code}"; true'] if command else [sys.executable, "-c", code]
    keep = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID")}
    return subprocess.run(words, env={**keep, **environment}, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the start of a process is read from /proc")
def test_names_of_one_launch_agree_and_others_differ() -> None:
    first = name_in_child(TORCHELASTIC_RUN_ID="none", RANK="0")
    time.sleep(1.1)
    assert name_in_child(TORCHELASTIC_RUN_ID="none", RANK="1", WORLD_SIZE="2") == first
    assert name_in_child(TORCHELASTIC_RUN_ID="none", GROUP_RANK="2") == f"{first}-node2"
    assert first.startswith("train-") and first.endswith(f"-{os.getpid()}")
    assert name_in_child() != name_in_child() != first
    assert name_in_child(WORLD_SIZE="1") != first


def test_behind_a_shell_every_process_has_a_name_of_its_own() -> None:
    names = {name_in_child("sh", "-c", WORLD_SIZE="2") for _ in range(2)}
    assert len(names) == 2
