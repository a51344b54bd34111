"""The post-import callback: when it comes, and that the import looks like any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WATCH = """
import sys
from torchdoctor.attach.importing import after_import
def seen(module):
    print("callback", module.__name__, hasattr(module, "done"), module is sys.modules[module.__name__])
after_import("torch", seen)
"""


@pytest.fixture
def fake_torch(tmp_path: Path) -> Path:
    """A package called torch that says when its code runs."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("print('torch runs')\nfrom torch import nn\ndone = True\n")
    (package / "nn.py").write_text("print('torch.nn runs')\n")
    return tmp_path


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)


def lines(code: str, folder: Path) -> list[str]:
    done = run(code, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "statement", ["import torch", "import torch.nn", "from torch.nn import __name__", "import user"]
)
def test_comes_once_after_the_whole_package(statement: str, fake_torch: Path) -> None:
    (fake_torch / "user.py").write_text("import torch\nprint('user goes on')\n")
    told = lines(WATCH + statement + "\nimport torch", fake_torch)
    assert told[:3] == ["torch runs", "torch.nn runs", "callback torch True True"]
    assert "".join(told).count("callback") == 1


def test_comes_at_once_for_a_module_that_is_there(fake_torch: Path) -> None:
    assert lines("import torch" + WATCH, fake_torch)[-1] == "callback torch True True"


def test_waits_for_the_end_when_asked_in_the_middle_of_the_import(fake_torch: Path) -> None:
    (fake_torch / "torch" / "__init__.py").write_text("import asker\nprint('torch ends')\ndone = True\n")
    (fake_torch / "asker.py").write_text(WATCH)
    assert lines("import torch", fake_torch) == ["torch ends", "callback torch True True"]


def test_never_comes_for_a_module_that_is_only_looked_for(fake_torch: Path) -> None:
    code = WATCH + "import importlib.util; print(repr(importlib.util.find_spec('torch'))[:27])"
    assert lines(code, fake_torch) == ["ModuleSpec(name='torch', lo"]


def test_a_submodule_can_be_waited_for(fake_torch: Path) -> None:
    code = WATCH.replace('after_import("torch"', 'after_import("torch.nn"') + "import torch"
    assert lines(code, fake_torch) == ["torch runs", "torch.nn runs", "callback torch.nn False True"]


def test_the_module_looks_as_if_nobody_had_waited(fake_torch: Path) -> None:
    show = (
        "\nimport torch, importlib; print(type(torch.__spec__), type(torch.__loader__), torch.__spec__.loader is "
        "torch.__loader__, vars(torch.__spec__).keys(), list(vars(torch))); importlib.reload(torch)"
    )
    plain = lines("import sys" + show, fake_torch)
    waited = [line for line in lines(WATCH + show, fake_torch) if not line.startswith("callback")]
    assert waited == plain


@pytest.mark.parametrize(
    "body", ["import nothing_of_that_name", "1 / 0", "raise ImportError('libcudart.so.12: cannot open')", "x ="]
)
def test_a_failing_import_shows_the_same_traceback(body: str, fake_torch: Path) -> None:
    (fake_torch / "torch" / "__init__.py").write_text(body + "\n")
    script = fake_torch / "script.py"
    results = []
    for prelude in ("", WATCH):
        above = prelude.splitlines()
        script.write_text("\n".join([*above, *[""] * (9 - len(above)), "import torch"]))
        results.append(
            subprocess.run([sys.executable, script.name], cwd=fake_torch, capture_output=True, text=True, timeout=60)
        )
    plain, waited = results
    assert waited.stderr == plain.stderr
    assert waited.returncode == plain.returncode == 1
    assert "callback" not in waited.stdout


def test_a_second_try_after_a_failure_still_calls_back(fake_torch: Path) -> None:
    (fake_torch / "torch" / "__init__.py").write_text(
        "import builtins\nif not hasattr(builtins, 'again'):\n    builtins.again = 1\n    raise ImportError('first')\n"
        "done = True\n"
    )
    code = (
        WATCH + "try:\n    import torch\nexcept ImportError:\n    print('failed', 'torch' in sys.modules)\nimport torch"
    )
    assert lines(code, fake_torch) == ["failed False", "callback torch True True"]


def test_a_missing_module_is_missing_as_ever(tmp_path: Path) -> None:
    done = run(WATCH.replace('after_import("torch"', 'after_import("no_such_torch"') + "import no_such_torch", tmp_path)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_torch'"


def test_other_import_hooks_keep_working(fake_torch: Path) -> None:
    hook = """
import importlib.abc, importlib.util
class Hook(importlib.abc.MetaPathFinder):
    inside = False
    def find_spec(self, name, path, target=None):
        if name != "torch" or Hook.inside:
            return None
        Hook.inside = True
        spec = importlib.util.find_spec(name)
        Hook.inside = False
        print("hook")
        return spec
sys.meta_path.insert(0, Hook())
"""
    assert lines(WATCH + hook + "import torch", fake_torch)[-1] == "callback torch True True"


def test_many_threads_importing_at_once_call_back_once(fake_torch: Path) -> None:
    code = WATCH + (
        "import threading\ndef go():\n    import torch\n    assert torch.done\n"
        "threads = [threading.Thread(target=go) for _ in range(8)]\n[t.start() for t in threads]\n"
        "[t.join() for t in threads]\n"
    )
    assert lines(code, fake_torch) == ["torch runs", "torch.nn runs", "callback torch True True"]
