"""What is kept of replays and checks holds no secret that an exception quoted."""

from __future__ import annotations

from pathlib import Path

from torchdoctor.attach.target import read_target
from torchdoctor.checks.checking import Report
from torchdoctor.cli import check
from torchdoctor.cli.replay import summarise
from torchdoctor.experiments.changes import Changes
from torchdoctor.experiments.replay import Replay
from torchdoctor.store.checked import CHECKS
from torchdoctor.store.replays import REPLAYS, keep_replay

RAISED = "HTTPError: 403 for url https://ann:geheim@data.example/set?api_key=geheim"
ASKED = {"part": "model", "asks": "a", "passed": False, "severity": "error", "diagnosis": None, "seconds": 0.1}


def test_of_replays(tmp_path: Path) -> None:
    for found in (
        Replay(3, Path("step"), ("train.py", "--token", "geheim"), Changes(), raised=RAISED),
        Replay(3, Path("step"), ("train.py",), Changes(), reason=f"the script ended: {RAISED}"),
    ):
        keep_replay(tmp_path, summarise(found))
    kept = (tmp_path / REPLAYS).read_text()
    assert "geheim" not in kept and kept.count("403 for url https://***@data.example") == 2


def test_of_checks(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    finding = {"name": "x", "title": f"It raises {RAISED}", "severity": "error"}
    report = Report({"findings": [finding]}, checks=[ASKED | {"name": "n", "text": RAISED}], problem=RAISED)
    check._keep(tmp_path, read_target([str(tmp_path / "train.py")]), report, False)
    (kept,) = (tmp_path / CHECKS).iterdir()
    assert "geheim" not in kept.read_text() and kept.read_text().count("https://***@data.example") == 3
