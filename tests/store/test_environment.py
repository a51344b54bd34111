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

from torchdoctor.store import repository as repositories
from torchdoctor.store.environment import describe
from torchdoctor.store.repository import MAX_DIFF, read_git


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


def run_git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def test_programs_that_a_repository_configures_are_not_started(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    (repository / "data.bin").write_bytes(b"abc\n")
    run_git("add", ".")
    run_git("commit", "-qm", "second")
    (repository / ".gitattributes").write_text("*.py diff=evil\n*.bin filter=evil diff=evil merge=evil\n")
    settings = ["core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command", "core.pager"]
    settings += ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.sshCommand", "core.askPass"]
    settings += ["credential.helper", "core.editor", "core.alternateRefsCommand", "pager.ls-files", "gpg.program"]
    for name in settings:
        run_git("config", name, str(trap))
    included = tmp_path / "included"
    included.write_text(f"[alias]\n\trev-parse = !{trap}\n\tls-files = !{trap}\n[core]\n\thooksPath = {tmp_path}\n")
    run_git("config", "include.path", str(included))
    run_git("config", "includeIf.gitdir:/.path", str(included))
    run_git("config", "extensions.partialClone", "origin")
    run_git("config", "remote.origin.url", f"ext::{trap}")
    run_git("config", "remote.origin.promisor", "true")
    for hook in ("post-index-change", "fsmonitor-watchman", "post-checkout"):
        for place in (repository / ".git" / "hooks", tmp_path):
            place.mkdir(exist_ok=True)
            (place / hook).write_text(trap.read_text())
            (place / hook).chmod(0o755)
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_PAGER", "GIT_ASKPASS", "GIT_EDITOR"):
        monkeypatch.setenv(name, str(trap))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "sprung"))
    (repository / "train.py").write_text("lr = 0.3\n")
    (repository / "data.bin").write_bytes(b"secret of a filter\n")
    found = read_git(repository)
    assert "+lr = 0.3" in found["diff"] and "data.bin" in found["diff"] and "secret of" not in found["diff"]
    os.utime(repository / "data.bin", (1, 1))
    head = found["commit"]
    missing = repository / ".git" / "objects" / head[:2] / head[2:]
    missing.unlink()  # a partial clone fetches what is missing
    read_git(repository)
    assert not (tmp_path / "sprung").exists()


def test_a_file_that_only_its_filter_could_compare_is_not_called_clean(repository: Path) -> None:
    (repository / ".gitattributes").write_text("train.py filter=any\n")
    run_git("add", ".")
    run_git("commit", "-qm", "attributes")
    assert read_git(repository)["dirty"] is False
    text = (repository / "train.py").read_text()
    (repository / "train.py").write_text(text[::-1])
    os.utime(repository / "train.py", (1, 1))
    assert "dirty" not in read_git(repository)


def test_a_work_tree_elsewhere_is_not_read(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.py").write_text("private = 1\n")
    run_git("config", "core.worktree", str(tmp_path / "elsewhere"))
    assert read_git(repository)["dirty"] is False


def test_links_lead_nowhere(repository: Path, tmp_path: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "a.py").write_text("x = 1\n")
    run_git("add", ".")
    run_git("commit", "-qm", "second")
    (tmp_path / "elsewhere").mkdir()
    for path in (repository / "sub" / "a.py", repository / "train.py"):
        path.unlink()
    (repository / "sub").rmdir()
    (repository / "sub").symlink_to(tmp_path / "elsewhere")
    for file in (tmp_path / "elsewhere" / "a.py", tmp_path / "private"):
        file.write_text("private = 1\n")
    (repository / "train.py").symlink_to(tmp_path / "private")
    found = read_git(repository)
    assert found["dirty"] and "private" not in found["diff"]


def test_new_removed_staged_and_odd_files_are_told(repository: Path) -> None:
    names = [
        "ümlaut name.py",
        "-dash.py",
        "tab\tname.py",
        "gone.py",
        "staged.py",
        ":(glob)x.py",
        "crlf.py",
        "touched.py",
    ]
    for name in names:
        (repository / name).write_text("a = 1\nb = 2\n")
    run_git("add", ".")
    run_git("commit", "-qm", "second")
    assert read_git(repository)["dirty"] is False
    os.utime(repository / "touched.py", (5, 5))
    (repository / "crlf.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    assert read_git(repository)["dirty"] is False
    for name in names[:3] + names[5:6]:
        (repository / name).write_text("a = 1\nb = 3\n")
    (repository / "gone.py").unlink()
    (repository / "staged.py").write_text("c = 3\n")
    (repository / "new.py").write_text("n = 1\n")
    (repository / "untracked.py").write_text("u = 1\n")
    run_git("add", "staged.py", "new.py")
    diff = read_git(repository / ".git" / "..")["diff"]
    assert diff.count("+b = 3") == 4 and diff.count("diff --git") == 7
    assert "+c = 3" in diff and "+n = 1" in diff and "+++ /dev/null" in diff and "u = 1" not in diff


def test_from_a_folder_below_the_repository_is_the_same(repository: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "train.py").write_text("lr = 0.2\n")
    assert "+lr = 0.2" in read_git(repository / "sub")["diff"]


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
    monkeypatch.setattr(repositories, "SECONDS", 0.3)
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
