"""Tools that a program can be run under: one build of torchdoctor, or a peer (field/peers has a wrapper for each)."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from environments import VirtualEnvironment
from field.environment import BASE, BUILD, CACHE
from field.outcomes import name_of_build
from field.peers.meanings import MEANINGS
from field.peers.wrapper import Wrapper
from field.programs import Case
from field.running import Result, Verdict, run_under

PEERS_FOLDER = Path(__file__).parent / "peers"
PEERS = {
    "torchmortem": "torchmortem",
    "torch-audit": "torch_audit",
    "torchdiag": "torchdiag",
    "neural-observatory": "neural_observatory",
    "mldoct": "mldoct",
}
"""Module of each peer's wrapper in field/peers."""


@dataclass(frozen=True)
class Tool:
    """A tool that runs a program and says what is wrong with it."""

    title: str
    records: str
    """name of its records, which changes with everything that can change a verdict"""
    run: Callable[[Case, int], tuple[Result, Verdict]]
    """run a case with a seed"""
    meanings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """diagnoses that each of its findings may stand for, where it has names of its own"""

    def translate(self, verdict: Verdict) -> Verdict:
        """Return a verdict whose findings have the diagnoses that they may stand for."""
        findings = [{**finding, "names": self.meanings.get(finding["name"], ())} for finding in verdict.findings]
        return replace(verdict, findings=findings)


def torchdoctor(source: Path) -> Tool:
    """Return the torchdoctor whose source lies in a folder."""
    build = name_of_build(source)

    def words(folder: Path) -> list[str]:
        return ["-m", "torchdoctor", "run", "--quiet", "--out", str(folder), "--json", str(folder / "verdict.json")]

    return Tool(
        f"torchdoctor {build}", build, lambda case, seed: run_under(case, seed, words, {BUILD: str(source.resolve())})
    )


def peer(name: str) -> Tool:
    """Return a peer by its name on the package index."""
    wrapper = wrapper_of(name)
    environment = VirtualEnvironment(CACHE / "peers" / wrapper.requirement.replace("==", "-"), BASE)

    def words(folder: Path) -> list[str]:
        packages, verdict = str(environment.packages), str(folder / "verdict.json")
        return [str(PEERS_FOLDER), PEERS[name], packages, verdict]

    def run(case: Case, seed: int) -> tuple[Result, Verdict]:
        # Without dependencies, since pip would install torch again. `Wrapper.needs` says what is missing in the base.
        environment.install((wrapper.requirement, *wrapper.needs), prepend=("--no-deps",))
        return run_under(case, seed, words, {})

    version = hashlib.sha256(b"".join(path.read_bytes() for path in _sources_of(name))).hexdigest()[:8]
    title = wrapper.requirement.replace("==", " ")
    return Tool(title, f"{title.replace(' ', '-')}-{version}", run, MEANINGS[name])


def wrapper_of(name: str) -> Wrapper:
    wrapper: Wrapper = importlib.import_module(f"field.peers.{PEERS[name]}").wrapper
    return wrapper


def _sources_of(name: str) -> list[Path]:
    """Return the files on which a peer's findings depend: its wrapper and what all wrappers share."""
    others = {*PEERS.values(), "meanings"}
    shared = [path for path in PEERS_FOLDER.glob("*.py") if path.stem not in others]
    return [PEERS_FOLDER / f"{PEERS[name]}.py", *sorted(shared)]
