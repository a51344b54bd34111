from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity, Silenced, Verdict
from torchdoctor.report.formats import dump


def finding(name: str, severity: Severity, **more: object) -> Finding:
    return Finding(
        name,
        code="T004",
        family="procedure",
        severity=severity,
        confidence=0.9,
        title="gradients add up: 100% | of_steps",
        summary="They are never cleared.",
        fix=Fix("Clear them.", "optimizer.zero_grad()"),
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    monkeypatch.chdir(tmp_path)
    places = (Place(file=str(tmp_path / "my train.py"), line=7), Place(parameter="fc.weight"))
    return Verdict(
        run={"steps": 60},
        findings=(
            finding("missing-zero-grad", Severity.ERROR, where=places, evidence=(Evidence("0 of 60 cleared"),)),
            finding("exploding-gradients", Severity.WARNING, consequence_of="missing-zero-grad"),
            finding("overfitting", Severity.INFO),
        ),
        ruled_out=(RuledOut("dead-relu", "at most 2 % dead"),),
        silenced=(Silenced("not-shuffled", "D007", "in order", "/elsewhere/data.py", 3),),
        examined=("missing-zero-grad",),
    )


def test_json_lists_what_is_silenced(verdict: Verdict) -> None:
    data = json.loads(dump("json", verdict))
    assert data["silenced"][0]["name"] == "not-shuffled"
    assert data["silenced"][0]["line"] == 3


def test_markdown(verdict: Verdict) -> None:
    text = dump("markdown", verdict)
    assert "### Error: gradients add up: 100% \\| of\\_steps" in text
    assert "- at `my train.py:7`" in text
    assert "- at `fc.weight`" in text
    assert "```python\noptimizer.zero_grad()\n```" in text
    assert "What follows from it:\n\n- `exploding-gradients`" in text
    assert "### Worth knowing\n\n- `overfitting`" in text
    assert "`dead-relu`: at most 2 % dead" in text
    assert "`not-shuffled` at `/elsewhere/data.py:3`" in text
    assert "No fault found in 60 steps" in dump("markdown", Verdict(run={"steps": 60}))


def test_sarif(verdict: Verdict) -> None:
    data = json.loads(dump("sarif", verdict))
    assert data["version"] == "2.1.0"
    (run,) = data["runs"]
    assert [r["ruleId"] for r in run["results"]] == [
        *("missing-zero-grad", "exploding-gradients", "overfitting", "not-shuffled")
    ]
    assert [r["level"] for r in run["results"]] == ["error", "warning", "note", "note"]
    first, *_, last = run["results"]
    physical = first["locations"][0]["physicalLocation"]
    assert physical == {"artifactLocation": {"uri": "my%20train.py"}, "region": {"startLine": 7}}
    assert first["locations"][1]["logicalLocations"][0]["fullyQualifiedName"] == "fc.weight"
    assert last["suppressions"] == [{"kind": "inSource"}]
    assert last["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///elsewhere/data.py"
    known = {r["id"] for r in run["tool"]["driver"]["rules"]}
    assert {r["ruleId"] for r in run["results"]} <= known


def test_github_annotations(verdict: Verdict) -> None:
    error, warning, notice = dump("github", verdict).splitlines()
    assert error.startswith("::error file=my train.py,line=7,title=gradients add up%3A 100%25 | of_steps (missing")
    assert error.endswith("::They are never cleared.%0AClear them.%0Aoptimizer.zero_grad()")
    assert warning.startswith("::warning title=")
    assert "This follows from missing-zero-grad." in warning
    assert notice.startswith("::notice ")
    assert dump("github", Verdict(run={})) == ""


def test_text_is_the_letter(verdict: Verdict) -> None:
    text = dump("text", verdict)
    assert "ERROR  missing-zero-grad (T004)" in text
    assert "not-shuffled (allowed at /elsewhere/data.py:3)" in text


@pytest.mark.parametrize("line", [9, "nine", None])
def test_an_error_that_is_explained_stands_in_text_and_markdown(line: object) -> None:
    told = {"text": "exp kept its result.", "instead": "Write it anew.", "code": "h = h + 1"}
    told["changed"] = {"file": "train.py", "line": line, "module": 3}  # type: ignore[assignment]
    crashed = Verdict(run={"steps": 60, "status": "crashed", "exception": {"explanation": told}})
    for form in ("text", "markdown"):
        written = dump(form, crashed)
        assert "error explained" in written.lower()
        assert all(words in written for words in ("exp kept its result.", "Write it anew.", "h = h + 1"))
