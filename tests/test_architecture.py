"""Who may import whom: the layers of DESIGN, held by import-linter and by looking at what a command loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from processes import run_python
from recording import record

ROOT = Path(__file__).parents[1]

LOADED = """
import sys
from torchdoctor.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    status = end.code or 0
print(status, 'torch' in sys.modules)
"""


def test_imports_go_down_only() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["explain"],
        ["explain", "environment-differs"],
        ["demo", "--list"],
        ["runs"],
        ["runs", "show", "RUN"],
        ["diagnose", "RUN"],
        ["diff", "RUN", "RUN"],
    ],
    ids=" ".join,
)
def test_commands_that_only_read_never_import_torch(arguments: list[str], tmp_path: Path) -> None:
    run = record(tmp_path / "torchdoctor-runs" / "a")
    given = [str(run) if a == "RUN" else a for a in arguments]
    done = run_python("-c", LOADED.format(arguments=given), cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["0 False"], done.stdout + done.stderr


def test_importing_torchdoctor_imports_nothing_heavy() -> None:
    code = "import sys, torchdoctor; print([m for m in ('torch', 'numpy', 'rich', 'click') if m in sys.modules])"
    assert run_python("-c", code).stdout.strip() == "[]"
