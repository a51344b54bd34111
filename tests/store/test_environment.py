"""What is written about a run's surroundings: enough to run it again, no secrets, and without waiting."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from torchdoctor.store import environment
from torchdoctor.store.environment import MAX_DIFF, describe, read_git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "nobody")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "nobody@example.org")
    (folder / "train.py").write_text("lr = 0.1\n")
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], check=True)
    return folder


def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_it_says_how_to_run_it_again(repository: Path) -> None:
    found = describe(["train.py", "--lr", "0.1"])
    assert found["argv"] == ["train.py", "--lr", "0.1"]
    assert found["git"]["branch"] == "main" and found["git"]["dirty"] is False and len(found["git"]["commit"]) == 40
    assert {"torch", "numpy", "pyarrow"} <= found["packages"].keys()
    assert found["hardware"]["cores"] == os.cpu_count() and found["hardware"]["cpu"]
    assert found["cwd"].endswith("project") and found["python"]["version"].startswith("3.")
    json.dumps(found)


def test_a_diff_is_kept_scrubbed_and_cut(repository: Path) -> None:
    (repository / "train.py").write_text('lr = 0.2\nWANDB_API_KEY = "0123456789abcdef"\n')
    git = read_git(repository)
    assert git["dirty"] and "+lr = 0.2" in git["diff"] and git["diff_cut"] is False
    assert "0123456789abcdef" not in git["diff"] and "WANDB_API_KEY" in git["diff"]
    (repository / "train.py").write_text("x = 1\n" * MAX_DIFF)
    git = read_git(repository)
    assert len(git["diff"]) <= MAX_DIFF and git["diff_cut"] is True


def test_programs_that_a_repository_configures_are_not_started(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    (repository / ".gitattributes").write_text("*.py diff=evil\n")
    settings = {"core.fsmonitor": trap, "diff.external": trap, "diff.evil.textconv": trap, "core.pager": trap}
    for name, value in settings.items():
        subprocess.run(["git", "config", name, str(value)], check=True)
    (repository / "train.py").write_text("lr = 0.3\n")
    assert "+lr = 0.3" in read_git(repository)["diff"]
    assert not (tmp_path / "sprung").exists()


def test_outside_a_repository_or_without_git_there_is_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "git" not in describe(["x"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git" not in describe(["x"])


def test_a_slow_git_is_not_waited_for_and_comes_later(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_git(tmp_path, monkeypatch, "sleep 0.4; echo 0123456789012345678901234567890123456789")
    late: list[dict[str, Any]] = []
    come = threading.Event()

    def on_git(found: dict[str, Any]) -> None:
        late.append(found)
        come.set()

    begin = time.monotonic()
    found = describe(["x"], on_git)
    assert time.monotonic() - begin < 1.0
    assert "git" not in found and not late
    assert come.wait(20) and late[0]["commit"].startswith("0123")


def test_a_git_that_hangs_is_ended(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_git(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(environment, "GIT_SECONDS", 0.3)
    begin = time.monotonic()
    assert read_git(repository) == {}
    assert time.monotonic() - begin < 5


def test_a_folder_that_is_gone_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = describe(["train.py"])
    assert found["argv"] == ["train.py"] and "cwd" not in found


def test_only_named_variables_are_written_and_the_home_folder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "somebody"
    (home / "code").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_TOKEN", "very-secret-value")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.chdir(home / "code")
    found = describe(["train.py", "--api-key", "very-secret-value"])
    text = json.dumps(found)
    assert found["environment"]["WORLD_SIZE"] == "8" and "HF_TOKEN" not in text
    assert "very-secret-value" not in text and "somebody" not in text
    assert found["cwd"] == "~/code"
