"""`torchdoctor report` and `torchdoctor note` on recorded runs."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from capturing import capture_pictures
from processes import preloaded_torchdoctor
from recording import record
from torchdoctor.findings import Severity
from torchdoctor.report.markdown import dump_report, wanted_charts
from torchdoctor.store.replays import Replayed, keep_replay
from torchdoctor.telling import tell


def test_one_file_that_holds_everything(tmp_path: Path) -> None:
    record(tmp_path / "torchdoctor-runs" / "a", cleared=0.0)
    done = preloaded_torchdoctor("report", cwd=tmp_path)
    assert done.returncode == 0 and "torchdoctor-report.html" in done.stderr
    page = (tmp_path / "torchdoctor-report.html").read_text()
    assert "missing-zero-grad" in page and "Content-Security-Policy" in page
    outside = page.split("<script", 1)[0]
    assert "http://" not in outside and "https://" not in outside and len(page) < 8_000_000


def test_to_the_standard_output_and_wrong_use(tmp_path: Path) -> None:
    run = record(tmp_path / "a")
    assert preloaded_torchdoctor("report", str(run), "-o", "-", cwd=tmp_path).stdout.startswith("<!doctype html>")
    done = preloaded_torchdoctor("report", *[str(run)] * 3, cwd=tmp_path)
    assert done.returncode == 2 and "compares two" in done.stderr
    done = preloaded_torchdoctor("report", str(tmp_path / "none"), cwd=tmp_path)
    assert done.returncode == 2 and "none" in done.stderr
    done = preloaded_torchdoctor("report", str(run), "-o", "no/such/report.html", cwd=tmp_path)
    assert done.returncode == 2 and "no folder" in done.stderr


def test_a_journal_is_kept_and_shown_with_later_runs_of_the_script(tmp_path: Path) -> None:
    first = record(tmp_path / "runs" / "first")
    second = record(tmp_path / "runs" / "second")
    assert preloaded_torchdoctor("note", str(first), "lower rate,", "no change", cwd=tmp_path).returncode == 0
    assert preloaded_torchdoctor("note", str(second), "zero_grad added", cwd=tmp_path).returncode == 0
    told = preloaded_torchdoctor("note", str(second), cwd=tmp_path).stdout.splitlines()
    assert "lower rate, no change" in told[0] and "first" in told[0] and "zero_grad added" in told[1]
    page = preloaded_torchdoctor("report", str(second), "-o", "-", cwd=tmp_path).stdout
    assert "lower rate, no change" in page and "zero_grad added" in page
    assert preloaded_torchdoctor("runs", "remove", "--yes", str(first), cwd=tmp_path).returncode == 0
    assert not first.exists()


def test_notes_that_cannot_be_kept(tmp_path: Path) -> None:
    run = record(tmp_path / "a")
    for words, said in ((("x", "note"), "no run"), ((str(run), "  "), "empty"), ((str(run), "a" * 5000), "characters")):
        done = preloaded_torchdoctor("note", *words, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr
    (run / "journal.jsonl").write_text('{"when": 1, "text": "good"}\nnot json\n{"text": 3}\n[1]\n')
    assert preloaded_torchdoctor("note", str(run), cwd=tmp_path).stdout.count("\n") == 1


@pytest.mark.skipif(shutil.which("chromium") is None, reason="pictures need a browser")
def test_markdown_with_pictures(tmp_path: Path) -> None:
    run = record(tmp_path / "a", cleared=0.0)
    done = preloaded_torchdoctor("report", str(run), "--format", "markdown", "-o", "comment.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "comment.md").read_text()
    assert "missing-zero-grad" in text and "](comment/loss.png)" in text
    assert (tmp_path / "comment" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_comment_has_the_picture_of_a_finding_beside_it_and_once(tmp_path: Path) -> None:
    told = replace(tell(record(tmp_path / "a", cleared=0.0)).told, pictures={"missing-zero-grad": "loss"})
    text = dump_report([(told, {"loss": "drawn.png"})])
    assert text.count("drawn.png") == 1 and text.index("drawn.png") < text.index("What to change")


def test_a_comment_shows_the_loss_where_only_a_remark_is_about_it(tmp_path: Path) -> None:
    told = tell(record(tmp_path / "a", cleared=0.0)).told
    (finding,) = (f for f in told.verdict.findings if f.name == "missing-zero-grad")
    info = replace(told.verdict, findings=(replace(finding, severity=Severity.INFO),))
    told = replace(told, verdict=info, pictures={"missing-zero-grad": "loss"})
    assert dump_report([(told, {"loss": "drawn.png"})]).count("drawn.png") == 1
    assert [chart.name for chart in wanted_charts(replace(told, pictures={"missing-zero-grad": "memory"}))] == ["loss"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="pictures need a browser")
def test_two_runs_as_a_comment(tmp_path: Path) -> None:
    runs = [record(tmp_path / folder / "same name", cleared=value) for folder, value in (("a", 0.0), ("b", 1.0))]
    words = ("report", *map(str, runs), "--format", "markdown", "-o", "our comment.md")
    done = preloaded_torchdoctor(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "our comment.md").read_text()
    assert "| finding: missing-zero-grad | stands | - |" in text and "No fault found" in text
    linked = re.findall(r"\]\((\S+)\)", text)
    assert len(set(linked)) >= 3
    for link in linked:
        assert (tmp_path / unquote(link)).read_bytes().startswith(b"\x89PNG")


def test_a_comment_has_the_journal(tmp_path: Path) -> None:
    run = record(tmp_path / "a")
    preloaded_torchdoctor("note", str(run), "lower *rate*, no change", cwd=tmp_path)
    text = preloaded_torchdoctor("report", str(run), "--format", "markdown", "-o", "-", cwd=tmp_path).stdout
    assert "### Journal" in text and r"lower \*rate\*, no change" in text


def test_captures_are_told_and_their_pictures_only_if_asked_for(tmp_path: Path) -> None:
    run = record(tmp_path / "a")
    capture_pictures(run)
    keep_replay(run, Replayed(1.8e9, 30, "step-000030-nonfinite", ["train.py"], change="float32 throughout", gone=True))
    plain = preloaded_torchdoctor("report", str(run), "-o", "-", cwd=tmp_path).stdout
    said, charts = plain.split('id="charts"')
    assert "Step 30: the loss or a gradient was not finite" in said and "The failure is gone." in said
    assert "torchdoctor replay a --step 30" in said and "data:image/png" not in charts.partition("</script>")[0]
    shown = preloaded_torchdoctor("report", str(run), "--with-captures", "-o", "-", cwd=tmp_path).stdout
    assert "data:image/png" in shown.split('id="charts"')[1].partition("</script>")[0] and len(shown) < 8_000_000
    comment = preloaded_torchdoctor("report", str(run), "--format", "markdown", "-o", "-", cwd=tmp_path).stdout
    assert "- step 30 with float32 throughout: The failure is gone." in comment
