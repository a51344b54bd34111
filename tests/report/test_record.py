"""The record of a run as tables: whatever its file holds, it opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recording import record
from torchdoctor.engine import examine
from torchdoctor.facts import OptimizerFact
from torchdoctor.findings import Verdict
from torchdoctor.report.html import write_page
from torchdoctor.report.record import describe_figures, describe_record
from torchdoctor.store.reader import open_run
from torchdoctor.telling import tell, tell_kept

FIELDS = [
    "argv",
    "cwd",
    "seeds",
    "torch_threads",
    "git",
    "packages",
    "python",
    "hardware",
    "platform",
    "process",
    "sessions",
    "started",
    "ended",
    "steps",
]
FIELDS += [
    "hyperparameters",
    "dropped",
    "captures",
    "exception",
    "script_sha256",
    "overhead",
    "config",
    "name",
    "rank",
    "torchdoctor",
    "thinned",
]
WRONG = [None, True, 0, -1, 1e18, float("nan"), float("inf"), "x", "", [], [1], [[1]], [{}], {}, {"a": {"b": [1]}}]


def shown(**run: Any) -> dict[str, str]:
    """All rows of the record, by name."""
    parts = describe_record(Verdict(run={"steps": 3, **run}, findings=()))
    return {name: value for part in parts for name, value in part["rows"]}


@pytest.mark.parametrize(
    ("value", "said"), [(float("nan"), "NaN"), (float("inf"), "Inf"), (1e18, "1.0e18"), (2e9, "2.0e9")]
)
def test_a_large_number_is_a_number_and_no_time(value: float, said: str) -> None:
    assert shown(config={"lr": value}, tokens=value)["config.lr"] == said
    held = [{"optimizer": "SGD", "groups": [{"lr": value}]}]
    assert shown(hyperparameters=held)["SGD group 0"] == f"lr {said}"


def test_times_are_times_and_what_is_none_is_left_out() -> None:
    rows = shown(started=1794984173.6, ended=float("nan"))
    assert rows["started"].startswith("2026-") and "ended" not in rows


def test_a_setting_of_zero_is_shown() -> None:
    group = {"lr": 0.0, "momentum": 0.9, "nesterov": False, "foreach": None}
    assert shown(hyperparameters=[{"optimizer": "SGD", "groups": [group]}])["SGD group 0"] == "lr 0, momentum 0.9"


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_any_field_of_any_type_is_described(wrong: Any) -> None:
    for field in FIELDS:
        verdict = Verdict(run={"steps": 3, field: wrong} if field != "steps" else {}, findings=())
        json.dumps([describe_record(verdict), describe_figures(verdict, {})], allow_nan=False)
    describe_record(Verdict(run=dict.fromkeys(FIELDS, wrong), findings=()))


@pytest.mark.parametrize("wrong", ["x", [1], 7.5, float("nan"), {"a": [{}]}], ids=repr)
def test_a_page_is_written_of_a_run_whose_every_field_is_of_a_wrong_type(tmp_path: Path, wrong: Any) -> None:
    directory = record(
        tmp_path / "run", facts=(OptimizerFact(key="0", type="SGD", groups=[{"lr": wrong}], parameters=1),)
    )
    held = json.loads((directory / "run.json").read_text())
    kept = {name: held[name] for name in ("format", "torchdoctor")}  # without them it is no run at all
    (directory / "run.json").write_text(json.dumps({**dict.fromkeys(FIELDS, wrong), **kept}))
    opened = tell(directory)
    tell_kept(directory, opened.run)
    assert "SGD group 0" in write_page([opened.told])


def test_tables_within_tables_without_end_are_cut() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep}
    listed: Any = 1
    for _ in range(100_000):
        listed = [listed]
    rows = shown(config=deep, other=listed)
    assert "..." in rows.values() and rows["other"] == "too long to show"


def test_an_lr_of_nan_reaches_the_page(tmp_path: Path) -> None:
    fact = OptimizerFact(key="0", type="SGD", groups=[{"lr": float("nan"), "eps": 1e18}], parameters=1)
    verdict = examine(open_run(record(tmp_path / "run", facts=(fact,))), rules=[])
    assert describe_record(verdict)[0]["rows"] == [("SGD group 0", "lr NaN, eps 1.0e18")]


@pytest.mark.parametrize(("status", "name"), [("running", "status"), ("finished", "ended"), ("died", "ended")])
def test_a_run_that_still_trains_has_not_ended(status: str, name: str) -> None:
    figures = describe_figures(Verdict(run={"steps": 3, "status": status}, findings=()), {})
    assert {"name": name, "value": status} in figures
