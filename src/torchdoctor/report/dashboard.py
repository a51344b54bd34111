"""A run at a glance, for any terminal from 60 x 10 on: `torchdoctor top` and `run --live` draw it again and again.

From the vital signs to lines of text: nothing is read or measured in here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from torchdoctor.console import Console, ConsoleOptions, RenderResult, Segment, Text
from torchdoctor.findings import Finding
from torchdoctor.report.canvas import Canvas, Scale
from torchdoctor.report.flow import draw_flow
from torchdoctor.report.sheet import QUIET, STYLES, Page
from torchdoctor.report.text import clean, count, number, share, size
from torchdoctor.report.vitals import RUNNING, Curve, Vitals

LEAST = (60, 10)
"""Columns and rows under which it is cut off instead of drawn smaller."""
SHORT = 16
"""Rows under which headings, the time split and the details of findings make room for the pictures."""
SIDE_BY_SIDE, SIDE_BY_SIDE_SHORT = 100, 76
"""Columns from which on loss and gradients stand beside each other; rows that are few ask for it sooner."""
FLOW_SHORT = 42
"""Columns that gradients take there, at least: a name, a bar and two figures."""
ROOMY = 20
"""Rows for loss, gradients and speed from which on the time split has a bar beside its figures."""
GAP = 2
"""Columns between them."""
AXIS = 9
"""Columns for the figures beside the loss."""
SPLIT_MARKS = "█▓▒░▚·"
SPLIT_MARKS_ASCII = "#=+-~."
TRAINED, VALIDATED = ("cyan", "magenta", "blue"), "yellow"
STATES = {RUNNING: "bold green", "finished": "bold green", "interrupted": "bold yellow"}
BROKEN_STATE = "bold red"
"""Of a run that crashed or died."""

Draw = Callable[[int, int], list[Text]]
"""Lines for so many columns and at most so many rows."""


@dataclass(frozen=True)
class Dashboard:
    """One frame. `note` is a remark about the reading itself, `hint` says which keys there are; `framed` sets it off
    from what stands above it."""

    vitals: Vitals
    now: float | None = None
    note: str = ""
    hint: str = ""
    framed: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        for line in self.lines(options.max_width, height, options.ascii_only):
            yield from line.render(console)
            yield Segment.line()

    def lines(self, width: int, height: int, ascii_only: bool = False) -> list[Text]:
        """At most `height` lines, each at most `width` wide; those of a smaller terminal than LEAST are cut off."""
        wide, tall = max(width, LEAST[0]), max(height, LEAST[1])
        page = Page(ascii_only)
        if tall < SHORT:
            return [cut(line, width, page) for line in self._short(page, wide, tall)[:height]]
        findings = self._findings(page, wide, max(3, tall // 4))
        room = tall - 1 - len(findings)
        body = self._columns(page, wide, room) if wide >= SIDE_BY_SIDE else self._stack(page, wide, room)
        drawn = [self._header(page, wide), *body, *findings]
        return [cut(line, width, page) for line in drawn[:height]]

    def _short(self, page: Page, width: int, height: int) -> list[Text]:
        """The same with few rows: one for speed and memory, findings without a heading."""
        findings = self._findings(page, width, height // 4 + 1)[1:]
        speed = self._speed(page, width)
        room = height - 2 - len(findings)
        if width < SIDE_BY_SIDE_SHORT:
            rows = (room - 1) // 2 if self.vitals.layers else 2
            flow = draw_flow(self.vitals.layers, page, width, rows)
            body = [*self._loss(page, width, room - len(flow)), *flow]
        else:
            flow_width = max(FLOW_SHORT, width // 2)
            left = self._loss(page, width - flow_width - GAP, room)
            body = _beside(left, draw_flow(self.vitals.layers, page, flow_width, room), width - flow_width - GAP, page)
        return [self._header(page, width), *body, speed[0], *findings]

    def _header(self, page: Page, width: int) -> Text:
        vitals = self.vitals
        spent = vitals.elapsed(time.time() if self.now is None else self.now)
        parts = [
            (vitals.status, STATES.get(vitals.status, BROKEN_STATE)),
            (count(vitals.steps, "step"), ""),
            (lasting(spent) if spent is not None else "", ""),
            (self.note, "yellow"),
            (self.hint, QUIET),
        ]
        tail = Text()
        for words, style in parts:
            if words:
                tail.append("  ")
                tail.append(page.line(words, style))
        name = page.line(vitals.name or "torchdoctor", "bold")
        if not self.framed:
            return Text.assemble(cut(name, max(10, width - tail.cell_len), page), tail)
        rule = "-" if page.ascii_only else "─"
        line = Text.assemble((f"{rule * 2} ", QUIET), cut(name, max(10, width - tail.cell_len - 5), page), tail, " ")
        return line.append(rule * max(0, width - line.cell_len), style=QUIET)

    def _stack(self, page: Page, width: int, room: int) -> list[Text]:
        speed = self._speed(page, width)
        if room < ROOMY and len(speed) > 1:
            speed.pop()
        left = room - len(speed)
        rows = min(len(self.vitals.layers) + 1, max(4, left // 2)) if self.vitals.layers else 2
        flow = draw_flow(self.vitals.layers, page, width, min(rows, left))
        return [*self._loss(page, width, left - len(flow)), *flow, *speed]

    def _columns(self, page: Page, width: int, room: int) -> list[Text]:
        left = (width - GAP) // 2
        speed = [heading("speed and memory", page, left), *self._speed(page, left)]
        right = width - GAP - left
        flow = draw_flow(self.vitals.layers, page, right, room)
        if len(flow) + len(speed) <= room:
            one, other = self._loss(page, left, room), [*flow, *[Text()] * (room - len(flow) - len(speed)), *speed]
        else:
            one, other = [*self._loss(page, left, room - len(speed)), *speed], flow
        return _beside(one, other, left, page)

    def _loss(self, page: Page, width: int, rows: int) -> list[Text]:
        vitals = self.vitals
        curves = [*vitals.losses, *([vitals.validation] if vitals.validation else [])]
        if not curves:
            waits = "waiting for the first loss" if vitals.status == RUNNING else "no loss was recorded"
            return [heading("loss", page, width), Text(f"  {waits}", QUIET), *[Text()] * (rows - 2)]
        legends = [self._legend(curve, page) for curve in curves]
        if sum(legend.cell_len + 2 for legend in legends) > width - len("-- loss "):
            legends = [self._legend(curve, page, brief=True) for curve in curves]
        top = heading("loss", page, width, legends)
        values = [part for c in curves for part in (c.trace.low, c.trace.high)]
        scale, tall = Scale.over(*values), rows - 2
        last = max(int(c.trace.steps[-1]) for c in curves)
        canvas = Canvas(width - AXIS, tall, page.ascii_only)
        for curve, style in zip(vitals.losses, TRAINED, strict=False):
            trace = curve.trace
            canvas.draw(trace.steps, trace.low, trace.high, scale or Scale(0, 0), last, style)
        if vitals.validation is not None:
            trace = vitals.validation.trace
            canvas.draw(trace.steps, trace.values, trace.values, scale or Scale(0, 0), last, VALIDATED)
            canvas.points(trace.steps, trace.values, scale or Scale(0, 0), last, _diamond(page), VALIDATED)
        drawn = canvas.lines()
        middle = ["log" if scale and scale.is_log else "", *[""] * tall][: tall - 2]
        labels = [_axis_figure(scale.high), *middle, _axis_figure(scale.low)] if scale else ["NaN"]
        sides = [
            Text.assemble((f"{label:>{AXIS - 2}} ", QUIET), ("|" if page.ascii_only else "│", QUIET), line)
            for label, line in zip_longest(labels[:tall], drawn, fillvalue="")
        ]
        return [top, *sides, self._steps_axis(page, width, last)]

    def _legend(self, curve: Curve, page: Page, brief: bool = False) -> Text:
        is_validation = curve is self.vitals.validation
        style = VALIDATED if is_validation else TRAINED[self.vitals.losses.index(curve)]
        name = f"{_diamond(page)} {'val' if brief else curve.name}" if is_validation else curve.name
        words = "" if brief or curve.trend == "too short to tell" else f", {curve.trend}"
        return Text.assemble((clean(name, page.ascii_only), style), f" {number(curve.last)}{words}")

    def _steps_axis(self, page: Page, width: int, last: int) -> Text:
        """Where findings begin is marked on it, beside its label at the latest."""
        rule, corner, mark = ("-", "+", "^") if page.ascii_only else ("─", "└", "▲")
        wide, label = width - AXIS, f" step {last:,}"
        cells = [(c, QUIET) for c in (rule * (wide - len(label)) + label)]
        for finding in reversed(self.vitals.findings or ()):
            if finding.first_step is not None and 0 <= finding.first_step <= last:
                place = min(round(finding.first_step / max(last, 1) * (wide - 1)), wide - len(label) - 1)
                cells[place] = (mark, STYLES[finding.severity])
        return Text.assemble((" " * (AXIS - 1) + corner, QUIET), *cells)

    def _speed(self, page: Page, width: int) -> list[Text]:
        """Rates, memory, the shares of a step's time and, last, those as a bar."""
        vitals = self.vitals
        if not vitals.step_seconds:
            return [Text("  speed is not known yet", QUIET)]
        rate = f"{number(_digits(1 / vitals.step_seconds))} steps/s"
        if vitals.samples_per_second is not None:
            rate += f", {number(_digits(vitals.samples_per_second))} samples/s"
        held = ", ".join(f"{name} {size(amount)}" for name, amount in vitals.memory)
        together = Text(f"  {rate}  {held}")
        lines = [together] if together.cell_len <= width else [Text(f"  {rate}"), Text(f"  {held}")]
        marks = SPLIT_MARKS_ASCII if page.ascii_only else SPLIT_MARKS
        named = [(f"{mark} {n} {share(part)}", part) for mark, (n, part) in zip(marks, vitals.shares, strict=False)]
        legend = Text("  " + "  ".join(words for words, part in named if part >= 0.005))
        if legend.cell_len > width:
            largest = sorted(named, key=lambda pair: -pair[1])[:3]
            legend = Text("  " + "  ".join(words for words, _ in largest))
        bar = "".join(m * round((width - 4) * part) for m, (_, part) in zip(marks, vitals.shares, strict=False))
        return [*lines, legend, Text(f"  {bar[: width - 4]}", style="cyan")] if named else lines

    def _findings(self, page: Page, width: int, rows: int) -> list[Text]:
        found = self.vitals.findings
        if found is None:
            return [heading("findings", page, width), Text("  being examined", QUIET)]
        if not found:
            words = "  nothing found"
            if self.vitals.status == RUNNING:
                known = self.vitals.examined
                words += " so far" if known is None else f" in the first {count(known, 'step')}"
            elif self.vitals.ending.fault:
                words = f"  no cause found, but {self.vitals.ending.fault}"
                return [heading("findings", page, width), cut(Text(words, "yellow"), width, page)]
            elif self.vitals.ending.unseen:
                words += f"; {' and '.join(self.vitals.ending.unseen)}"
            return [heading("findings", page, width), Text(words, "green")]
        room = rows - 1
        shown = found if len(found) <= room else found[: max(1, room - 1)]
        lines = [cut(_headline(f, page), width, page) for f in shown]
        if len(found) > len(shown):
            lines.append(Text(f"  and {count(len(found) - len(shown), 'finding')} more", QUIET))
        first, spare = found[0], room - len(lines)
        if spare > 0 and _headline(first, page).cell_len > width:
            title = Text.assemble("    ", page.line(first.title))
            lines[:1] = [cut(_headline(first, page, titled=False), width, page), cut(title, width, page)]
            spare -= 1
        if spare > 0 and first.fix.text:
            change = Text.assemble("    ", ("change: ", "bold"), page.line(first.fix.text))
            lines.insert(len(lines) - len(shown) + 1, cut(change, width, page))
        return [heading("findings", page, width), *lines]


def _beside(one: Sequence[Text], other: Sequence[Text], width: int, page: Page) -> list[Text]:
    """Two columns, the first one so wide."""
    pairs = zip_longest(one, other, fillvalue=Text())
    return [Text.assemble(cut(a, width, page, pad=True), " " * GAP, b) for a, b in pairs]


def heading(words: str, page: Page, width: int, details: Sequence[Text] = ()) -> Text:
    rule = "-" if page.ascii_only else "─"
    text = Text.assemble((f"{rule * 2} ", QUIET), (words, "bold"), (" ", ""))
    for detail in details:
        text.append(" ")
        text.append(detail)
        text.append(" ")
    text.append(rule * max(0, width - text.cell_len), style=QUIET)
    return cut(text, width, page)


def cut(text: Text, width: int, page: Page, pad: bool = False) -> Text:
    """At most so wide; with a sign that something is missing where the terminal has one."""
    kept = text.copy()
    kept.truncate(width, overflow="crop" if page.ascii_only else "ellipsis", pad=pad)
    return kept


def lasting(seconds: float) -> str:
    """8 s, 3 min 20 s, 2 h 5 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _headline(finding: Finding, page: Page, titled: bool = True) -> Text:
    since = f" since step {finding.first_step:,}" if finding.first_step is not None else ""
    style = STYLES[finding.severity]
    text = Text.assemble("  ", (finding.severity.value.upper(), style), " ")
    text.append(page.line(finding.name, style.removeprefix("bold ")))
    return text.append(f"{since}: ").append(page.line(finding.title)) if titled else text.append(since)


def _axis_figure(value: float) -> str:
    """4.7e28 in the room that there is for it."""
    text = number(value)
    return text if len(text) <= AXIS - 2 else f"{value:.1e}".replace("e+", "e")


def _digits(value: float) -> float:
    """Three of them are enough for a rate."""
    return float(f"{value:.3g}")


def _diamond(page: Page) -> str:
    return "o" if page.ascii_only else "◆"
