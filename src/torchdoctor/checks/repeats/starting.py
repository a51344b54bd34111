"""Two starts of a script, compared over their first updates: `python -m torchdoctor.checks.repeats.starting REQUEST`.

A process of its own, since the one that checks leads all that is written aside. What came of it is printed as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchdoctor.attach.target import Target
from torchdoctor.errors import TorchdoctorError
from torchdoctor.facts import StartsFact
from torchdoctor.launching import own_module

MODULE = "torchdoctor.checks.repeats.starting"
TRACED = 1
"""The last step of a trace: starts without a seed part before it, if they do."""


@dataclass(frozen=True)
class Compared:
    """`why_not`: nothing could be compared."""

    fact: StartsFact = field(default_factory=lambda: StartsFact(0, 0))
    findings: list[dict[str, Any]] = field(default_factory=list)
    seeds: list[list[dict[str, Any]]] = field(default_factory=list)
    """that each start set by itself"""
    why_not: str | None = None


def compare(target: Target, *, traced: bool, updates: int, seconds: float, timeout: float, jobs: int) -> Compared:
    """Each ends after so many updates, or so many seconds after the first; none may take longer than `timeout`.
    `traced`: they are known to differ, and only where is asked."""
    request = {**asdict(target), "traced": traced, "updates": updates, "seconds": seconds, "timeout": timeout}
    request["jobs"] = jobs
    at_most = (2 if jobs > 1 else 4) * (timeout + 2)  # where two differ, two more are traced
    try:
        done = subprocess.run(
            own_module(MODULE, json.dumps(request)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=at_most,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Compared(why_not=f"two starts were not compared within {at_most:.0f} s")
    if done.returncode:
        return Compared(why_not=f"the starts could not be compared ({(done.stderr.splitlines() or [''])[-1][:200]})")
    told = json.loads(done.stdout.splitlines()[-1])
    return Compared(**{**told, "fact": StartsFact(**told["fact"])})


def main(text: str) -> None:
    from torchdoctor.experiments.board import Silent
    from torchdoctor.experiments.orphans import clear_up_when_ended, end_with_parent
    from torchdoctor.experiments.seed_passing import OWN, Passing
    from torchdoctor.experiments.seeds import Surroundings
    from torchdoctor.experiments.starts import compare_starts, trace_starts
    from torchdoctor.experiments.variants import Variant

    end_with_parent()
    clear_up_when_ended()
    asked = json.loads(text)
    target = Target(asked["kind"], asked["what"], tuple(asked["arguments"]))
    variant, first = Variant(target.stem, target, Passing(OWN)), {n: asked[n] for n in ("updates", "seconds")}
    with tempfile.TemporaryDirectory(prefix="torchdoctor-") as folder:
        temporary = Path(folder).resolve() / "t"
        temporary.mkdir()
        own = {"TMPDIR": str(temporary)}  # what a start leaves in it goes with the folder
        out, jobs, timeout = temporary.parent, asked["jobs"], asked["timeout"]
        at = Surroundings(out, jobs, timeout, everywhere=True, environment=own)
        try:
            if asked["traced"]:
                made = trace_starts(variant, "check", TRACED, at, Silent())
            else:
                made = compare_starts(variant, 2, "check", at, Silent(), first=first)
            told = Compared(made.fact, [f.to_dict() for f in made.findings], made.seeds)
        except TorchdoctorError as error:
            told = Compared(why_not=str(error).partition("; its output")[0])
    print(json.dumps(asdict(told)))


if __name__ == "__main__":
    main(sys.argv[1])
