"""A stage on which `torchdoctor run` can be tried in milliseconds: a torch, a session and a store of cardboard.

The cardboard torch is a module with `train(...)`, which stands for a training step. The session that torchdoctor
starts on it keeps a diary (one line an event) instead of a record. All of it comes in through a sitecustomize, so
that child processes, however they are started, find the same stage.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

TORCH = '''
import os, sys
threads = os.environ.get("OMP_NUM_THREADS")
def train(fault=None):
    """A step of training, in which `fault` can be seen."""
    session = getattr(sys.modules.get("torchdoctor.attach.session"), "current", None)
    if session is not None and session.pid == os.getpid():
        session.step(fault)
'''

SITECUSTOMIZE = """
import os, sys, types

def note(*words):
    with open(os.environ["STAGE_DIARY"], "a") as diary:
        print(*words, file=diary)

def make_verdict(info):
    from torchdoctor.findings import Finding, Fix, Severity, Verdict
    faults = [info["fault"]] if info.get("fault") else []
    return Verdict(run=info, findings=tuple(
        Finding(name=f, code="X001", family="data", severity=Severity.WARNING, confidence=0.9, title=f"It is {f}",
                summary="Summary.", fix=Fix("Mend it.")) for f in faults))

class Session:
    def __init__(self, options, examine):
        self.options, self.examine, self.pid = options, examine, os.getpid()
        self.live = types.SimpleNamespace(listeners=[]) if examine else None
        self.trained, self.fault, self.place, self.failure = False, None, None, None
        note("start", self.pid, sorted(n for n in sys.modules if n in ("numpy", "pyarrow", "rich")))

    @property
    def directory(self):
        return self.options.directory(self.place[0] if self.place else self.options.name)

    def step(self, fault):
        from torchdoctor.attach.ranks import take_place
        from torchdoctor.errors import StopTraining
        if not self.trained:
            self.trained, self.place = True, take_place(self.options)
            self.directory.mkdir(parents=True, exist_ok=True)
            note("train", *self.place, "in", self.directory)
        self.fault = fault or self.fault
        self.write("running")
        for listener in self.live.listeners if fault and self.live else ():
            listener(make_verdict(self.info("running")).findings[0])
        if fault in self.options.stop_on:
            raise StopTraining(f"stopped on {fault}: It is {fault}")

    def info(self, status):
        return {"status": status, "fault": self.fault, "steps": 1}

    def write(self, status):
        import json
        (self.directory / f"run-r{self.place[1]}.json").write_text(json.dumps(self.info(status)))

    def finish(self, status, exception=None, untrained=False):
        told = f"{exception['type']} at {os.path.basename(exception.get('file', '?'))}:{exception.get('line')}" \\
            if exception else ""
        note("finish", status, *filter(None, [told]))
        if os.environ.get("STAGE_FINISH_FAILS"):
            raise OSError("the disk is full")
        if not self.trained:
            return None
        self.write(status)
        return self.examine(open_run(self.directory)) if self.examine else None

def start(options, examine=None):
    if os.environ.get("STAGE_START_FAILS"):
        raise RuntimeError("this torch is too strange")
    session.current = Session(options, examine)
    return session.current

def open_run(directory):
    import json
    from torchdoctor.run import Run, Trace
    infos = [json.loads(f.read_text()) for f in sorted(directory.glob("run-r*.json"))]
    info = dict(infos[0], fault=next((i["fault"] for i in infos if i["fault"]), None))
    return Run(info=info, available=frozenset(), load=lambda *_: Trace.empty(), seen=(), steps=1)

def record_without_torch(options, argv, status, exception=None):
    from torchdoctor.run import Run, Trace
    info = {"status": status, "path": str(options.directory(options.name))}
    return Run(info=info, available=frozenset(), load=lambda *_: Trace.empty(), seen=(), steps=0)

torchless = types.ModuleType("torchdoctor.attach.torchless")
torchless.record_without_torch = record_without_torch
session = types.ModuleType("torchdoctor.attach.session")
session.start = start
reader = types.ModuleType("torchdoctor.store.reader")
reader.open_run = open_run
engine = types.ModuleType("torchdoctor.engine")
engine.examine = lambda run, settings=None: make_verdict(dict(run.info))
sys.modules.update({m.__name__: m for m in (session, torchless, reader, engine)})
"""


@dataclass
class Stage:
    """A folder with cardboard on its PYTHONPATH."""

    folder: Path

    @classmethod
    def build(cls, folder: Path) -> Stage:
        (folder / "cardboard" / "torch").mkdir(parents=True)
        (folder / "cardboard" / "torch" / "__init__.py").write_text(TORCH)
        (folder / "cardboard" / "sitecustomize.py").write_text(SITECUSTOMIZE)
        (folder / "diary").touch()
        return cls(folder)

    def write(self, name: str, source: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source).lstrip("\n"))
        return path

    def environment(self, **more: str) -> dict[str, str]:
        ours = {"PYTHONPATH": str(self.folder / "cardboard"), "STAGE_DIARY": str(self.folder / "diary")}
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHDOCTOR", "TORCHELASTIC", "SLURM"))}
        return {**keep, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100", **ours, **more}

    def run(self, *arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """`torchdoctor run` with these words."""
        return self.call(sys.executable, "-m", "torchdoctor", "run", *arguments, given=given, **environment)

    def call(self, *command: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environment(**environment),
        )

    @property
    def diary(self) -> list[str]:
        """What happened to sessions, in order, without the starts."""
        lines = (self.folder / "diary").read_text().splitlines()
        return [line for line in lines if not line.startswith("start")]

    @property
    def starts(self) -> list[str]:
        return [line for line in (self.folder / "diary").read_text().splitlines() if line.startswith("start")]

    @property
    def runs(self) -> list[str]:
        return sorted(p.name for p in (self.folder / "torchdoctor-runs").glob("*"))
