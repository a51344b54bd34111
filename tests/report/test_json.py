from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor.engine import examine
from torchdoctor.errors import UsageError
from torchdoctor.findings import Confirm, Evidence, Finding, Fix, NotExamined, Place, RuledOut, Severity, Verdict
from torchdoctor.report.json import dump, strict, write

FINDING = Finding(
    name="learning-rate-too-high",
    code="H001",
    family="hyperparameters",
    severity=Severity.ERROR,
    confidence=0.91234,
    title="diverges",
    summary="The loss diverges.",
    fix=Fix("Lower it.", "lr=0.01"),
    where=(Place(file="train.py", line=3),),
    first_step=3,
    evidence=(Evidence("the loss is NaN", "loss.train", math.nan, math.inf, (1.0, 2.0)),),
    confirm=Confirm("again", "torchdoctor diagnose x"),
    docs="torchdoctor explain learning-rate-too-high",
)


def test_the_contract_has_its_keys_and_no_others() -> None:
    verdict = Verdict(
        run={"argv": ["train.py"]},
        findings=(FINDING,),
        ruled_out=(RuledOut("missing-zero-grad", "cleared", "gradients.cleared", 1.0),),
        not_examined=(NotExamined("overfitting", ("loss.validation",)),),
    )
    data = json.loads(dump(verdict), parse_constant=pytest.fail)
    assert list(data) == ["schema", "run", "findings", "ruled_out", "checks", "not_examined", "ending"]
    (finding,) = data["findings"]
    assert set(finding) == {
        "name", "code", "family", "severity", "confidence", "title", "summary", "where", "first_step", "last_step",
        "evidence", "consequence_of", "symptoms", "fix", "confirm", "docs",
    }  # fmt: skip
    assert finding["severity"] == "error"
    assert finding["confidence"] == 0.912
    assert finding["where"] == [{"module": None, "parameter": None, "file": "train.py", "line": 3}]
    assert finding["evidence"] == [
        {"text": "the loss is NaN", "signal": "loss.train", "value": None, "threshold": None}
    ]
    assert data["not_examined"] == [{"name": "overfitting", "needs": ["loss.validation"]}]


def test_a_verdict_on_a_run_round_trips() -> None:
    verdict = examine(RunBuilder().info(git={"commit": None}).optimizer("SGD", lr=math.inf).build())
    data = json.loads(dump(verdict))
    assert data["run"]["git"] == {"commit": None}
    assert data["run"]["hyperparameters"][0]["groups"] == [{"lr": None}]
    assert {n["name"] for n in data["not_examined"]} == {n.name for n in verdict.not_examined}


def test_any_plain_data_becomes_strict() -> None:
    odd = {
        1: np.float32(math.nan),
        "a": np.arange(2),
        "p": Path("x"),
        "s": Severity.INFO,
        "t": (True, {3, 1}),
        "l": "\udc80",
    }
    assert strict(odd) == {"1": None, "a": [0, 1], "p": "x", "s": "info", "t": [True, [1, 3]], "l": "\udc80"}


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "verdict.json"
    target.write_text("old")
    write(Verdict(run={}), target)
    assert json.loads(target.read_text())["schema"] == 1
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write(Verdict(run={}), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["findings"] == []


def test_dash_is_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write(Verdict(run={}), "-")
    assert json.loads(capsys.readouterr().out)["schema"] == 1


@pytest.mark.parametrize("where", ["missing/verdict.json", "."])
def test_what_cannot_be_written_is_said_in_one_sentence(tmp_path: Path, where: str) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write(Verdict(run={}), tmp_path / where)
