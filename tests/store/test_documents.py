"""Nothing that holds a secret reaches a run folder, whoever writes it."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import torchdoctor.store
from torchdoctor.facts import BirthFact
from torchdoctor.findings import Finding, Fix, Severity, Verdict
from torchdoctor.report import json
from torchdoctor.report.text import clean
from torchdoctor.store.checked import Checked, Made, keep_check
from torchdoctor.store.journal import add_note
from torchdoctor.store.replays import Replayed, keep_replay
from torchdoctor.store.writer import Recorder

SECRET = "Zq7Vx9Lw2Rk4Tn8B"
TOLD = f"cannot reach https://u:{SECRET}@h with token={SECRET}"


def test_no_file_of_a_run_holds_a_secret(tmp_path: Path) -> None:
    recorder = Recorder.create(tmp_path / "run", {"argv": ["train.py", "-p", SECRET], "config": {"api_key": SECRET}})
    recorder.update_info(exception={"type": "RuntimeError", "message": TOLD}, notes=[TOLD])
    recorder.fact(BirthFact("mul", False, "nan", code=f"f(x); api_key = '{SECRET}'"), 0)
    recorder.close()
    add_note(tmp_path / "run", TOLD)
    keep_replay(
        tmp_path / "run", Replayed(time.time(), 1, "step-000001-nonfinite", ["t.py", "-p", SECRET], raised=TOLD)
    )
    made = Made("check", "part", "asks", TOLD)
    keep_check(tmp_path, Checked(time.time(), "t.py", "", ["t.py"], problem=TOLD, checks=[made], faults=[TOLD]))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 5
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


def test_nothing_in_the_store_writes_json_by_itself() -> None:
    folder = Path(torchdoctor.store.__file__).parent
    users = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("dumps", "dump")
        and getattr(node.value, "id", "") == "json"
    }
    # format.py: names of signals in a schema; replays.py: from one reader to the other; origin.py: what is signed
    assert users == {"documents.py", "format.py", "origin.py", "replays.py"}


def test_reports_hold_no_secret_of_an_older_run() -> None:
    finding = Finding("x", "T001", "f", Severity.INFO, 0.9, TOLD, TOLD, Fix(TOLD))
    verdict = Verdict(run={"exception": {"message": TOLD}}, findings=(finding,))
    assert SECRET not in json.dump(verdict) and SECRET not in clean(TOLD)


def test_what_a_mapping_calls_a_key_keeps_its_type(tmp_path: Path) -> None:
    """Names of signals and layers are no secrets, whatever they are called."""
    assert json.encode({"key": "layers.0.attn.1", "token": 3}) == '{\n  "key": "layers.0.attn.1",\n  "token": 3\n}\n'
