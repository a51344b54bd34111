"""Two runs beside each other in the terminal: one table, and one sentence that concludes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchdoctor.compare import Comparison, Deviation
from torchdoctor.console import RenderableType, Table, Text
from torchdoctor.findings import Finding
from torchdoctor.report.letter import headline
from torchdoctor.report.sheet import QUIET, Page, Sheet, indent, labelled, title
from torchdoctor.report.text import clean, count, number

VALUE_WIDTH, STEP_WIDTH, GAP = 24, 6, 2


def render(
    comparison: Comparison,
    findings: Sequence[Finding] = (),
    width: int | None = None,
    only_bad: Sequence[Finding] = (),
) -> RenderableType:
    """`findings` come of the comparison; `only_bad` are those of the second run alone."""
    return Sheet(lambda page, w: _write(comparison, findings, only_bad, page, w), width)


def _write(
    comparison: Comparison, findings: Sequence[Finding], only_bad: Sequence[Finding], page: Page, width: int
) -> Iterator[RenderableType]:
    yield Text()
    yield title("torchdoctor diff", page, width)
    yield Text()
    yield labelled("good", comparison.good, page)
    yield labelled("bad", comparison.bad, page)
    yield Text()
    yield indent(_table(comparison, page, width - 2), 2)
    hidden = len(comparison.deviations) - len(_first_of_each(comparison))
    if hidden:
        words = f"and {count(hidden, 'signal')} of the same kinds; --json FILE lists them all"
        yield indent(page.line(words, QUIET), 2)
    if comparison.same:
        yield indent(page.line(f"{count(len(comparison.same), 'signal')} equal bit for bit", QUIET), 2)
    yield Text()
    yield indent(page.line(comparison.conclusion, "bold"), 2)
    yield Text()
    if only_bad:
        yield page.heading("Found in bad and not in good")
        for finding in only_bad:
            words = Text.assemble((finding.name, "bold"), f" ({finding.code}): ", page.line(finding.title))
            yield page.bulleted(words)
        yield Text()
    for finding in findings:
        yield headline(finding, page)
        yield indent(page.line(finding.summary), 2)
        yield indent(page.line(finding.fix.text), 2)
        yield Text()


def _table(comparison: Comparison, page: Page, width: int) -> Table:
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="bold", pad_edge=False)
    left = width - 2 * STEP_WIDTH - 5 * GAP
    value_width = min(VALUE_WIDTH, left * 3 // 10)
    table.add_column("what", overflow="fold", max_width=left - 2 * value_width)
    for heading in ("good", "bad"):
        table.add_column(heading, overflow="fold", max_width=value_width)
    for heading in ("from step", "beyond noise"):
        table.add_column(heading, justify="right", width=STEP_WIDTH)
    part = ""
    for d in comparison.differences:
        if d.part != part:
            table.add_row(Text(d.part, style=QUIET))
            part = d.part
        table.add_row(indent(page.line(d.name), 2), _value(d.good, page), _value(d.bad, page))
    shown = _first_of_each(comparison)
    if shown:
        table.add_row(Text("signals", style=QUIET))
    for s in shown:
        steps = (_step(s.first_step), _step(s.apart_step))
        table.add_row(indent(page.line(s.label), 2), number(s.good), number(s.bad), *steps)
    if not comparison.differences and not shown:
        table.add_row("nothing differs")
    return table


def _first_of_each(comparison: Comparison) -> list[Deviation]:
    """Of each kind of signal (loss, gradient, weight ...) the one that differs earliest, in that order, and those
    that the conclusion names."""
    first: dict[str, Deviation] = {}
    for deviation in comparison.deviations:
        first.setdefault(deviation.signal.partition(".")[0], deviation)
    shown = [*first.values(), comparison.first, comparison.apart]
    return [d for d in comparison.deviations if d in shown]


def _value(value: Any, page: Page) -> Text:
    if value is None or value == "":
        return Text("-", style=QUIET)
    text = number(value) if isinstance(value, float) else clean(value, page.ascii_only)
    if len(text) <= VALUE_WIDTH:
        return Text(text)
    return Text(f"...{text[3 - VALUE_WIDTH :]}" if "/" in text else f"{text[: VALUE_WIDTH - 3]}...")


def _step(step: int | None) -> str:
    return "-" if step is None else f"{step:,}"
