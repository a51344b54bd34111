"""Virtual environments and unpacked source distributions that benchmarks need, made once and kept in .cache."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
CACHE = REPOSITORY / "benchmarks" / ".cache"
CONSTRAINTS = REPOSITORY / "constraints.txt"
INSTALLED = "installed.txt"


class InstallError(Exception):
    """pip could not install what was asked for; the message holds its last lines."""


class VirtualEnvironment:
    """A virtual environment in a folder. Where it has a base, it sees the base's packages, too."""

    def __init__(self, folder: Path, base: VirtualEnvironment | None = None) -> None:
        self.folder = folder.resolve()  # the cache may be a link to one that several checkouts share
        self.base = base
        self.python = self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def install(self, words: Sequence[str], prepend: Sequence[str] = ()) -> None:
        """Install requirements that were not installed before. `prepend` are further words for pip."""
        with _locked(self.folder):
            if not self.python.exists():
                subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
                if self.base is not None:
                    (self.packages / "base.pth").write_text(f"{self.base.packages}\n")
            record = self.folder / INSTALLED
            known = record.read_text().split("\n") if record.exists() else []
            if set(words) <= set(known):
                return
            self.pip("install", "-c", str(CONSTRAINTS), *prepend, *words)
            record.write_text("\n".join(sorted({*known, *words} - {""})))

    def pip(self, *words: str) -> None:
        done = subprocess.run(
            [str(self.python), "-m", "pip", "--quiet", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise InstallError(f"pip {' '.join(words)}: {done.stderr.strip()[-1500:]}")


def unpack_source(requirement: str, environment: VirtualEnvironment, folder: Path) -> Path:
    """Download a pinned source distribution and return the folder of its unpacked content."""
    name, _, version = requirement.partition("==")
    target = folder / "sources" / f"{name}-{version}"
    if target.exists():
        return target
    with _locked(target):
        if target.exists():
            return target
        downloads = folder / "downloads"
        environment.pip("download", "--no-deps", "--no-binary", ":all:", "-d", str(downloads), requirement)
        stem = f"{_normal(name)}_{version}"
        archive = next(path for path in downloads.glob("*.tar.gz") if _normal(path.name).startswith(stem))
        part = target.with_suffix(".part")
        with tarfile.open(archive) as content:
            content.extractall(part, filter="data")
        (inner,) = part.iterdir()
        inner.rename(target)
        part.rmdir()
    return target


def _normal(name: str) -> str:
    return name.replace("-", "_").lower()


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Keep another process from making the same thing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
