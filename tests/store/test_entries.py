"""A run.json that anybody may have written is read as far as it makes sense, and harms no other run."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recording import record
from torchdoctor.cli import main
from torchdoctor.errors import RunError
from torchdoctor.store.info import read_info
from torchdoctor.store.listing import list_runs
from torchdoctor.store.reader import open_run
from torchdoctor.ui.library import Library
from torchdoctor.ui.overview import survey

ENTRIES: dict[str, Any] = {
    "argv": ["train.py", "--lr", "0.1"],
    "cwd": "/work",
    "script_sha256": "0" * 64,
    "origin": "0" * 64,
    "python": {"version": "3.11", "executable": "/bin/python"},
    "platform": "Linux",
    "packages": {"torch": "2.13"},
    "hardware": {"cpu": "x", "cores": 2, "memory_bytes": 1, "gpus": ["x"]},
    "environment": {"RANK": "0"},
    "git": {"commit": "0" * 40, "branch": "main", "dirty": True, "diff": "+a\n", "diff_cut": False},
    "seeds": {"torch": 2**63 + 1, "PYTHONHASHSEED": None},
    "torch_threads": 1,
    "overhead": 0.01,
    "overhead_budget": 0.01,
    "exception": {"type": "RuntimeError", "message": "x", "file": "train.py", "line": 3},
    "captures": [{"step": 3, "reason": "nonfinite", "name": "step-000003-nonfinite"}],
    "dropped": {"scalars: queue full": 3},
    "thinned": {"scalars": 2},
    "options": {"seed_run": {"digest": "0"}},
    "hyperparameters": [{"optimizer": "SGD", "groups": [{"lr": 0.1}]}],
    "notes": ["a"],
}
DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]
MISSING = object()
ODD = [
    *(float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e18, 10**30, 10**400, -1, 0, True, None, MISSING),
    *("", "x" * 100_000, "\ud800x", "a\0b", "\u202e\x1b[2J", "running", [], {}, [None], {"a": None}, DEEP),
    *({"\udc80": "\udfff"}, [1e300, "\ud800", {}]),
]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = at = copy.deepcopy(data)
    for key in path[:-1]:
        at = at[key]
    if value is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("bad", "good"):
        run = record(tmp_path / "runs" / name)
        info = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(info | ENTRIES | {"name": name}))
    return tmp_path / "runs"


def write(path: Path, data: Any) -> None:
    numbers = str(10**400)
    path.write_text(json.dumps(data).replace(f'"{numbers}"', numbers))


def test_every_entry_may_be_anything(runs: Path) -> None:
    file = runs / "bad" / "run.json"
    whole = json.loads(file.read_text())
    library = Library(runs)
    for path in places(whole):
        for value in ODD:
            write(file, replaced(whole, path, value))
            try:
                info = read_info(file)
            except RunError:
                assert path[0] in ("format", "torchdoctor")
                continue
            json.dumps(info, allow_nan=False).encode()
            "".join(map(str, info.values())).encode()
        assert {entry.name for entry in list_runs(runs)} >= {"good"}
    assert "good" in survey(library).html
    library.close()


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_commands_read_a_run_of_which_everything_is_odd(
    runs: Path, value: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs.parent)
    file = runs / "bad" / "run.json"
    whole = json.loads(file.read_text())
    write(
        file,
        {
            key: (v if key in ("format", "torchdoctor") else value)
            for key, v in whole.items()
            if value is not MISSING or key in ("format", "torchdoctor")
        },
    )
    library = Library(runs)
    assert "good" in survey(library).html
    library.close()
    assert open_run(runs / "bad").steps == open_run(runs / "good").steps
    bad, good = str(runs / "bad"), str(runs / "good")
    for words in (
        ["runs", "list", str(runs)],
        ["runs", "show", bad],
        ["diagnose", bad],
        ["top", bad, "--once"],
        ["diff", good, bad],
        ["note", bad, "x"],
        ["replay", bad],
    ):
        with pytest.raises(SystemExit):
            main(words)
    said = capsys.readouterr()
    assert "please report" not in said.err + said.out and "good" in said.out


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "1", '"x"', "[" * 100_000, '{"format": 1e999, "torchdoctor": 1}', "\ud800"]
)
def test_what_is_no_run_is_refused_with_a_sentence(runs: Path, text: str) -> None:
    (runs / "bad" / "run.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(RunError):
        read_info(runs / "bad" / "run.json")
    assert [entry.name for entry in list_runs(runs)] == ["good"]
