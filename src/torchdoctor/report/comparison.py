"""Two runs beside each other in the terminal: one table, and one sentence that concludes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchdoctor.compare import Comparison
from torchdoctor.findings import Finding
from torchdoctor.report.letter import headline
from torchdoctor.report.sheet import QUIET, Page, Sheet, indent, labelled, title
from torchdoctor.report.text import clean, count, number

SIGNALS_SHOWN = 12


def render(comparison: Comparison, findings: Sequence[Finding] = (), width: int | None = None) -> RenderableType:
    return Sheet(lambda page, w: _write(comparison, findings, page, w), width)


def _write(comparison: Comparison, findings: Sequence[Finding], page: Page, width: int) -> Iterator[RenderableType]:
    yield Text()
    yield title("torchdoctor diff", page, width)
    yield Text()
    yield labelled("good", comparison.good, page)
    yield labelled("bad", comparison.bad, page)
    yield Text()
    yield indent(_table(comparison, page), 2)
    hidden = len(comparison.deviations) - SIGNALS_SHOWN
    if hidden > 0:
        yield indent(
            page.line(f"and {count(hidden, 'other signal')} that differ; --json FILE lists them all", QUIET), 2
        )
    if comparison.same:
        yield indent(page.line(f"{count(len(comparison.same), 'signal')} equal bit for bit", QUIET), 2)
    yield Text()
    yield indent(page.line(comparison.conclusion, "bold"), 2)
    yield Text()
    for finding in findings:
        yield headline(finding, page)
        yield indent(page.line(finding.summary), 2)
        yield indent(page.line(finding.fix.text), 2)
        yield Text()


def _table(comparison: Comparison, page: Page) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for heading in ("", "what", "good", "bad", "from step", "beyond noise"):
        table.add_column(
            heading, overflow="fold", justify="right" if heading in ("from step", "beyond noise") else "left"
        )
    part = ""
    for d in comparison.differences:
        shown = "" if d.part == part else d.part
        table.add_row(Text(shown, style=QUIET), page.line(d.name), _value(d.good, page), _value(d.bad, page), "", "")
        part = d.part
    for i, s in enumerate(comparison.deviations[:SIGNALS_SHOWN]):
        table.add_row(
            Text("" if i else "signals", style=QUIET),
            page.line(s.label),
            number(s.good),
            number(s.bad),
            _step(s.first_step),
            _step(s.apart_step),
        )
    if not comparison.differences and not comparison.deviations:
        table.add_row("", "nothing differs", "", "", "", "")
    return table


def _value(value: Any, page: Page) -> Text:
    if value is None or value == "":
        return Text("-", style=QUIET)
    text = number(value) if isinstance(value, float) else clean(value, page.ascii_only)
    return Text(text if len(text) <= 60 else text[:57] + "...")


def _step(step: int | None) -> str:
    return "-" if step is None else f"{step:,}"
