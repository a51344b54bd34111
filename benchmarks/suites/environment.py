"""The virtual environment and the unpacked sources in which the suites run, made once and kept."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from collection import SUITES, Suite

REPOSITORY = Path(__file__).parent.parent.parent
CACHE = REPOSITORY / "benchmarks" / ".cache" / "suites"
VENV = CACHE / "venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = REPOSITORY / "constraints.txt"


def prepare(suites: tuple[Suite, ...] = SUITES) -> None:
    """Install torch, torchdoctor of this checkout, pytest and the suites' packages; unpack the suites' sources."""
    if not PYTHON.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    done = VENV / "installed.txt"
    installed = done.read_text().split("\n") if done.exists() else []
    wanted = sorted({word for suite in suites for word in (suite.requirement, *suite.requires)})
    if not set(wanted) <= set(installed):
        _pip("install", "-c", str(CONSTRAINTS), "torch", "pytest>=8", "-e", str(REPOSITORY), *wanted)
        done.write_text("\n".join(sorted({*installed, *wanted})))
    for suite in suites:
        _unpack(suite)


def source_of(suite: Suite) -> Path:
    return CACHE / "sources" / f"{suite.name}-{suite.version}"


def _unpack(suite: Suite) -> None:
    target = source_of(suite)
    if target.exists():
        return
    downloads = CACHE / "downloads"
    _pip("download", "--no-deps", "--no-binary", ":all:", "-d", str(downloads), suite.requirement)
    stem = suite.name.replace("-", "_")
    archive = next(
        path for path in downloads.glob("*.tar.gz") if path.name.replace("-", "_").startswith(f"{stem}_{suite.version}")
    )
    with tarfile.open(archive) as content:
        content.extractall(target.with_suffix(".part"), filter="data")
    (inner,) = target.with_suffix(".part").iterdir()
    inner.rename(target)
    target.with_suffix(".part").rmdir()


def _pip(*words: str) -> None:
    subprocess.run([str(PYTHON), "-m", "pip", "--quiet", *words], check=True)
