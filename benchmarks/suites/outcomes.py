"""Running a suite bare or under `torchdoctor run`, and comparing how each of its tests ended."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from collection import Suite
from environment import CACHE, PYTHON, source_of

SECONDS = 2400


@dataclass(frozen=True)
class SuiteRun:
    """How one run of a suite ended."""

    status: int
    """exit status of pytest; negative: the signal that ended the process"""
    outcomes: dict[str, str]
    """passed, failed, error or skipped, by test"""
    cpu_seconds: float
    output: str
    """the last lines, to find out why a process died"""

    def counts(self) -> str:
        numbers = Counter(self.outcomes.values())
        text = ", ".join(
            f"{numbers[name]} {name}" for name in ("passed", "failed", "error", "skipped") if numbers[name]
        )
        return f"{text or 'no test ended'}, status {self.status}"


@dataclass(frozen=True)
class Comparison:
    """One suite bare and recorded."""

    suite: Suite
    bare: SuiteRun
    recorded: SuiteRun
    unsteady: frozenset[str]
    """tests that end differently from one bare run to the next"""

    @property
    def differences(self) -> list[str]:
        names = sorted(({*self.bare.outcomes, *self.recorded.outcomes}) - self.unsteady)
        rows = [(n, self.bare.outcomes.get(n, "not run"), self.recorded.outcomes.get(n, "not run")) for n in names]
        found = [f"{name}: {bare} bare, {recorded} recorded" for name, bare, recorded in rows if bare != recorded]
        if not any(outcome == "passed" for outcome in self.bare.outcomes.values()):
            found.append("no test passed bare, so nothing was compared")
        if self.bare.status != self.recorded.status:
            found.append(f"exit status {self.bare.status} bare, {self.recorded.status} recorded")
        return found


def compare(suite: Suite, sample: bool) -> Comparison:
    """Run the suite bare, recorded, and bare again where something differs, to leave out unsteady tests."""
    bare, recorded = run_suite(suite, False, sample), run_suite(suite, True, sample)
    comparison = Comparison(suite, bare, recorded, frozenset())
    if not comparison.differences:
        return comparison
    again = run_suite(suite, False, sample)
    unsteady = {n for n in {*bare.outcomes, *again.outcomes} if bare.outcomes.get(n) != again.outcomes.get(n)}
    return Comparison(suite, bare, recorded, frozenset(unsteady))


def run_suite(suite: Suite, recorded: bool, sample: bool) -> SuiteRun:
    """Run the suite's tests in a fresh copy of its source, with its own HOME and TMPDIR."""
    with tempfile.TemporaryDirectory(prefix="suite-", dir=CACHE) as name:
        folder = Path(name)
        source = folder / "source"
        shutil.copytree(source_of(suite), source)
        _leave_only_tests(suite, source)
        report, output = folder / "report.xml", folder / "output.txt"
        for made in ("home", "tmp"):
            (folder / made).mkdir()
        paths = suite.sample if sample and suite.sample else suite.tests
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", f"--junitxml={report}"]
        # a suite without settings of its own would get those of this checkout, and names with the folder of this run
        command = [*pytest, f"--rootdir={source}", *suite.options, *paths]
        under = ["-m", "torchdoctor", "run", "--quiet", "--out", str(folder / "runs")] if recorded else []
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("TORCHDOCTOR", "PYTEST"))},
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            **dict(suite.variables),
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with output.open("wb") as stream:
            words = [str(PYTHON), *under, *command]
            try:
                status = subprocess.run(
                    words, cwd=source, env=environment, stdout=stream, stderr=stream, timeout=SECONDS, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                status = 124
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return SuiteRun(status, _read_outcomes(report), cpu, output.read_text(errors="replace")[-4000:])


def _leave_only_tests(suite: Suite, source: Path) -> None:
    """Remove package code beside the tests, so that the installed package is tested."""
    keep = {Path(path).parts[0] for path in suite.tests}
    for path in source.iterdir():
        if path.is_dir() and path.name not in keep and (path / "__init__.py").exists():
            shutil.rmtree(path)


def _read_outcomes(report: Path) -> dict[str, str]:
    if not report.exists():
        return {}
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = next((word for word in ("error", "failure", "skipped") if word in kinds), "passed")
        name = f"{case.get('classname')}::{case.get('name')}"
        outcomes[name] = "failed" if outcome == "failure" else outcome
    return outcomes
