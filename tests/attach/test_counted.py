"""What a script counts of its own operations is what it counts without us, and no site fails on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent / "counted_script.py"
WATCHED = """
import runpy, sys, torchdoctor
from torchdoctor.attach import guard
with torchdoctor.watch(out=sys.argv[2], quiet=True):
    runpy.run_path(sys.argv[1])
    print(guard.disabled())
"""


def lines(*command: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.splitlines()


def test_counts_are_those_of_a_bare_run(tmp_path: Path) -> None:
    bare: dict[str, Any] = json.loads(lines(str(SCRIPT))[-1])
    *_, watched, disabled = lines("-c", WATCHED, str(SCRIPT), str(tmp_path))
    assert json.loads(watched) == bare
    assert disabled == "{}"
