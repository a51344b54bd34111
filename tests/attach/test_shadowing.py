"""Modules beside the script that have our modules' names, or our dependencies': each side gets its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import torchdoctor_command
from torchdoctor.attach.shadowing import _find_shadowed
from torchdoctor.search_path import bring_back_own_folders, find_own_folders, set_aside_own_folders

NAMES = ("html", "jinja2", "pyarrow", "rich", "rules", "safetensors", "click", "tomllib", "resource", "plotly", "cmd")
SCRIPT = """
import click, html, jinja2, pyarrow, rich, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=16)
for epoch in range(8):
    for batch in data:
        optimizer.zero_grad()
        (model(batch) - batch[:, :2]).square().mean().backward()
        optimizer.step()
import safetensors
print([module.__file__ for module in (click, html, jinja2, pyarrow, rich, safetensors)])
print(sys.path[0])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("__file__ = 'mine'\n")
    (tmp_path / "rich.py").unlink()
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("__file__ = 'mine'\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_a_run_is_recorded_and_told_and_the_script_gets_its_own(folder: Path) -> None:
    done = torchdoctor_command("run", "train.py", cwd=folder)
    assert done.stdout == f"{['mine'] * 6}\n{folder}\n"
    assert "32 steps" in done.stderr
    assert not any(word in done.stderr for word in ("Traceback", "dropped", "report this", "not recorded"))


@pytest.mark.parametrize("entry", ["modules", "{folder}/modules"])
def test_modules_in_a_folder_of_pythonpath(folder: Path, entry: str) -> None:
    (folder / "scripts").mkdir()
    (folder / "modules").mkdir()
    for name in ("click", "html", "pyarrow", "rich", "tomllib"):
        (folder / "modules" / f"{name}.py").write_text("__file__ = 'mine'\n")
    script = folder / "scripts" / "train.py"
    names = "click, html, pyarrow, rich"
    script.write_text(SCRIPT.replace("jinja2, ", "").replace("sys.path[0]", f"sys.path[:2], [{names}] and sys.argv"))
    done = torchdoctor_command("run", "scripts/train.py", cwd=folder, PYTHONPATH=entry.format(folder=folder))
    assert done.stdout.splitlines()[0].count("'mine'") == 4, done.stderr
    assert done.stdout.splitlines()[1] == f"{[str(script.parent), str(folder / 'modules')]} ['scripts/train.py']"
    assert "32 steps" in done.stderr


def test_a_command_that_is_followed(folder: Path) -> None:
    done = torchdoctor_command("run", "--", sys.executable, "train.py", cwd=folder, PYTHONPATH=".")
    assert done.stdout == f"{['mine'] * 6}\n{folder}\n"
    assert "32 steps" in done.stderr


def test_folders_that_packages_are_installed_in_are_searched_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("own", "target", "site-packages", "checkout")]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "click-8.1.dist-info").mkdir()
    (folders[3] / "torch").mkdir()
    path = [str(folder) for folder in folders]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *path, "elsewhere"])
    assert find_own_folders(sys.path) == path[:1]
    set_aside_own_folders()
    assert sys.path == [str(tmp_path), *path[1:], "elsewhere", path[0]]
    sys.path.append("added")
    assert bring_back_own_folders() == path[:1]
    assert sys.path == [str(tmp_path), *path, "elsewhere", "added"]


def test_a_command_that_takes_the_script_over(folder: Path) -> None:
    done = torchdoctor_command("overfit", "train.py", cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not any(word in done.stdout + done.stderr for word in ("Error", "could not be recorded"))


def test_an_exchange_leaves_everything_as_it_was(folder: Path) -> None:
    """In a python of its own, since this one has imported far more than a script has."""
    source = f"""
import click, rich.text, sys
from torchdoctor.attach.shadowing import hide_own_modules, own_modules
own, path = sys.modules["click"], sys.path[1:]
sys.path[0] = {str(folder)!r}
hide_own_modules([sys.path[0]], path)
import click
assert click.__file__ == "mine"
sys.path.insert(0, "added later")
before, there = dict(sys.modules), sys.path[:]
with own_modules():
    with own_modules():
        import click as ours, rich.console, html.entities
    assert ours is own and rich.text and {str(folder)!r} not in sys.path
assert sys.path == there and all(sys.modules[name] is module for name, module in before.items())
assert not [name for name in sys.modules if name.startswith(("rich.", "html."))]
with own_modules():
    assert sys.modules["html.entities"] and sys.modules["click"] is own
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stderr == ""


def test_only_names_that_stand_for_something_else_are_shadowed(folder: Path) -> None:
    (folder / "my_model.py").touch()
    (folder / "os.py").touch()
    (folder / "sys.py").touch()
    (folder / "json").mkdir()
    path = [entry for entry in sys.path if entry and not entry.endswith("tests")]
    assert set(_find_shadowed(str(folder), path)) == set(NAMES) - {"rules"}
