"""In a replay, files of the first run stay as they are."""

from __future__ import annotations

from pathlib import Path

from processes import run_python

SCRIPT = """
import os, sys
from pathlib import Path
from torchdoctor.experiments.shadow import keep_files

keep_files(Path(sys.argv[1]))
with open("log.txt", "a") as log:
    log.write("second\\n")
assert Path("log.txt").read_text() == "first\\nsecond\\n"
Path("model.tmp").write_text("new")
os.replace("model.tmp", "model.txt")
assert open("model.txt").read() == "new"
for name in ("a", "b", "c"):
    Path(name).write_text(name)
os.replace(src="a", dst="b")
Path("d").write_text("d")
assert [Path(name).read_text() for name in ("b", "c", "d")] == ["a", "c", "d"]
with open("kept.tmp", "w") as file:
    file.write("changed")
os.replace(file.name, "model.txt")
assert Path("model.txt").read_text() == "changed"
assert os.path.exists("c") and os.stat("c").st_size == 1
os.chmod("c", 0o600)
os.remove("c")
assert not os.path.exists("c")
os.remove("log.txt")
os.rename("kept.txt", "other.txt")
assert Path("kept.txt").read_text() == "kept"
"""


def test_what_is_written_renamed_or_removed_is_so_only_for_the_script(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    for name, text in (("log", "first\n"), ("model", "old"), ("kept", "kept")):
        (tmp_path / f"{name}.txt").write_text(text)
    done = run_python("-c", SCRIPT, str(tmp_path / "scratch"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.txt", "log.txt", "model.txt", "scratch"]
    assert [(tmp_path / f"{n}.txt").read_text() for n in ("log", "model", "kept")] == ["first\n", "old", "kept"]


CLEARED = """
import os, shutil, subprocess, sys, tempfile
from pathlib import Path
from torchdoctor.experiments.shadow import keep_files

made = []
keep_files(Path(sys.argv[1]), made.append)
shutil.rmtree("results")
assert not os.path.exists("results") and not Path("results/best/model.txt").exists()
os.makedirs("results")
assert os.path.isdir("results") and not Path("results/best/model.txt").exists()
Path("results/new.txt").write_text("new")
os.symlink("new.txt", "results/last.txt")
assert Path("results/last.txt").read_text() == "new"
Path("results/last.txt").write_text("other")
assert Path("results/new.txt").read_text() == "new"
open(b"bytes.txt", "w").write("bytes")
number = os.open("log.txt", os.O_WRONLY | os.O_APPEND)
os.write(number, b"second")
os.close(number)
assert Path("log.txt").read_text() == "firstsecond"
os.close(os.open("run.lock", os.O_CREAT | os.O_EXCL | os.O_RDWR))
os.remove("run.lock")
with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
    file.write(b"best")
os.replace(file.name, "best.txt")
assert Path("best.txt").read_text() == "best"
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "seen.txt").write_text("seen")
    assert subprocess.check_output(["cat", f"{folder}/seen.txt"]) == b"seen"
assert not Path(folder).exists() and not made
"""


def test_folders_may_be_cleared_and_temporary_files_are_real(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "results" / "best").mkdir(parents=True)
    (tmp_path / "results" / "best" / "model.txt").write_text("precious")
    (tmp_path / "log.txt").write_text("first")
    done = run_python("-c", CLEARED, str(tmp_path / "scratch"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.txt", "results", "scratch"]
    assert [p.name for p in (tmp_path / "results").rglob("*")] == ["best", "model.txt"]
    assert (tmp_path / "log.txt").read_text() == "first"


NATIVE = """
import sys
from pathlib import Path
from torchdoctor.experiments.shadow import keep_files

made = []
keep_files(Path(sys.argv[1]), made.append)
import torch
from safetensors.torch import load_file, save_file

save_file({"weight": torch.ones(2)}, "model.safetensors")
assert load_file("model.safetensors")["weight"].tolist() == [1.0, 1.0]
Path("out/logs").mkdir(parents=True)
assert [Path(folder).name for folder in made] == ["out", "logs"]
"""


def test_safetensors_are_kept_aside_and_folders_are_told(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "model.safetensors").write_bytes(b"the user's own")
    done = run_python("-c", NATIVE, str(tmp_path / "scratch"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.safetensors").read_bytes() == b"the user's own"
