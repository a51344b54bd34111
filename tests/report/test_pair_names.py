"""Two runs of one script are told apart by what differs, not by the times in their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recording import record
from torchdoctor.compare.records import Difference
from torchdoctor.report.html import write_page
from torchdoctor.report.pair_names import LETTERS, label_runs
from torchdoctor.telling import tell, tell_apart

TIMED = ("cnn-20261118-124025-5064", "cnn-20261118-124036")


def said(*held: tuple[str, str, Any, Any], names: tuple[str, str] = TIMED) -> tuple[str, str]:
    return label_runs(names, [Difference(*each) for each in held]).short


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([("arguments", "--lr", "1e-3", "0.3")], ("cnn (--lr 1e-3)", "cnn (--lr 0.3)")),
        ([("arguments", "--amp", True, None)], ("cnn (--amp)", "cnn (no --amp)")),
        ([("configuration", "optimizer lr", 0.1, 0.3)], ("cnn (optimizer lr 0.1)", "cnn (optimizer lr 0.3)")),
        ([("arguments", "--lr", "1", "2"), ("configuration", "lr", 1, 2)], ("cnn (--lr 1)", "cnn (--lr 2)")),
        ([("arguments", f"--{i}", "1", "2") for i in range(3)], TIMED),
        ([("packages", "numpy", "1", "2")], TIMED),
        ([], TIMED),
    ],
)
def test_what_differs_is_added_where_it_is_little(held: Any, expected: tuple[str, str]) -> None:
    assert said(*held) == expected


def test_names_that_tell_stay_as_they_are() -> None:
    for names in (("sick", "well"), ("cnn-20261118-124025-5064", "lm-20261118-124036")):
        assert label_runs(names, [Difference("arguments", "--lr", "1", "2")]) == (names, names)


def test_long_values_are_cut_and_never_to_the_same() -> None:
    first, second = said(("arguments", "--data", "/a" + "x" * 200, "/b" + "x" * 200))
    assert first != second and len(first) <= LETTERS + len("cnn ()")
    assert said(("arguments", "--d", "x" * 99 + "a" + "x" * 99, "x" * 99 + "b" + "x" * 99)) == TIMED


def test_a_page_of_two_runs_has_the_labels(tmp_path: Path) -> None:
    rates = ("0.1", "<b>0.3")
    argvs = [["cnn.py", "--lr", rate] for rate in rates]
    opened = [tell(record(tmp_path / name, argv=argv)) for name, argv in zip(TIMED, argvs, strict=True)]
    compared = tell_apart(opened)
    assert compared.names == tuple(f"{name} (--lr {rate})" for name, rate in zip(TIMED, rates, strict=True))
    assert re.search(r"cnn \(--lr 0\.1\) 0\.5\d*, cnn \(--lr <b>0\.3\) 0\.5", compared.charts[0].title)
    assert "cnn (--lr &lt;b>0.3)" in [trace.get("name") for trace in compared.charts[0].data], "Plotly reads tags"
    page = write_page([each.told for each in opened], compared)
    assert f'<h2 class="runname">{TIMED[0]} (--lr 0.1)</h2>' in page
    assert f"{TIMED[1]} (--lr &lt;b&gt;0.3)</h2>" in page and "(--lr <b>" not in page
