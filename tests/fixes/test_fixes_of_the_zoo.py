"""Every fix that is printed as code runs in the script that it is printed for: broken programs of the zoo, executed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from script_scopes import run_pasted
from torchdoctor import zoo
from torchdoctor.engine import examine
from torchdoctor.findings import Place
from torchdoctor.fixes.fitting import COMMAND, fit_code
from torchdoctor.settings import Settings
from torchdoctor.store.reader import open_run

SUITE = (
    "constant-inputs/rnn",
    "dead-relu/mlp",
    "clipping-by-value/mlp",
    "division-by-zero/last-batch",
    "learning-rate-too-high/mlp",
    "overfitting/mlp",
)
"""One program of each family that prints code, but for throughput: what is slow depends on the machine. The sweep runs
all of them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE)
def test_code_of_a_fix_runs_in_the_script(name: str, tmp_path: Path) -> None:
    case = zoo.find(name)
    assert case is not None
    assert run_fixes(case.path, tmp_path) >= 1


@pytest.mark.sweep
@pytest.mark.parametrize("case", [c for c in zoo.cases() if not c.healthy and not c.needs_cuda], ids=lambda c: c.name)
def test_code_of_every_fix_runs_in_its_script(case: zoo.Case, tmp_path: Path) -> None:
    run_fixes(case.path, tmp_path)


def is_meant_to_raise(code: str, failure: str) -> bool:
    """Return whether the code is there to raise in the state that the broken script ends in."""
    stops = "error_if_nonfinite=True" in code and "norm" in failure
    return stops or (code.startswith("assert ") and "AssertionError" in failure)


def run_fixes(script: Path, folder: Path) -> int:
    """Record the script, paste the code of each finding where its names hold, and return how many ran."""
    words = [sys.executable, "-m", "torchdoctor", "run", "--quiet", "--out", str(folder), "--name", "run"]
    verdict = folder / "verdict.json"
    subprocess.run([*words, "--json", str(verdict), script.name], cwd=script.parent, capture_output=True, check=False)
    findings = json.loads(verdict.read_text())["findings"]
    printed = {f["name"]: f["fix"]["code"] for f in findings if f["fix"]["code"] and COMMAND not in f["fix"]["code"]}
    run, settings = open_run(folder / "run"), Settings(folders=(str(script.parent),))
    ran = 0
    for finding in examine(run, settings=settings).findings:
        code = printed.get(finding.name)
        if code is None:
            continue
        fitted = fit_code(code, finding.where or [Place()], run, (str(script.parent),))
        assert fitted is not None, f"{finding.name} printed {code!r}, whose names hold nowhere in the script"
        failure = run_pasted(Path(fitted.file), fitted.scope, code)
        if not is_meant_to_raise(code, failure):
            assert failure == "", f"{finding.name}: {code!r} in {fitted.scope}"
        ran += 1
    return ran
