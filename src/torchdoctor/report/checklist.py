"""The checklist in the terminal: a line a check as it is made, then what failed and how to mend it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from torchdoctor.console import (
    BarColumn,
    Console,
    MofNCompleteColumn,
    Progress,
    RenderableType,
    SpinnerColumn,
    Text,
    TextColumn,
    TimeElapsedColumn,
)
from torchdoctor.findings import Severity
from torchdoctor.report.sheet import QUIET, STYLES, Page, Sheet, hang, indent, labelled, show, title, unbroken
from torchdoctor.report.text import count

PARTS = {"model": "Model", "data": "Data", "procedure": "Procedure", "cost": "Cost"}
MARKS = {True: ("ok", "green"), None: ("--", QUIET)}
BAD = {"error": "FAIL", "warning": "WARN", "info": "note"}
ENOUGH = 0.5
"""Of the checks: where fewer could be made, that no fault was found says little."""
REASONS_SHOWN = 6
MANY = 3


class CheckingProgress:
    """On a terminal: which check is being made, and how many there are."""

    def __init__(self, file: IO[str] | None = None) -> None:
        console = Console(file=file or sys.stderr, highlight=False, markup=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._bar.disable = not console.is_terminal
        self._task = self._bar.add_task("the script runs its first steps", total=None)
        self._asks: dict[str, str] = {}

    def __enter__(self) -> CheckingProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, line: dict[str, Any]) -> None:
        if "listed" in line:
            self._asks |= {c["name"]: c["asks"] for c in line["listed"]}
            self._bar.update(self._task, total=len(self._asks))
        elif "began" in line:
            self._bar.update(self._task, description=self._asks.get(line["began"], line["began"]))
        elif "made" in line:
            self._bar.update(self._task, advance=1)


@dataclass(frozen=True)
class ChecklistSheet:
    """`checks` as in the JSON; `findings` what the rules proved of the first steps and the checks did not say."""

    script: str
    steps: int
    checks: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    bottleneck: str | None = None
    problem: str | None = None
    output: str = ""
    cut_short: str | None = None

    def print(self, file: IO[str] | None = None) -> None:
        show(Sheet(self.write), file or sys.stdout)

    def write(self, page: Page, width: int) -> Iterator[RenderableType]:
        yield Text()
        yield title(f"torchdoctor check {self.script}", page, width)
        yield Text()
        if self.problem is not None:
            known = " This is why:" if self.findings else ""
            yield indent(page.line(f"Nothing could be checked: {self.problem}.{known}", STYLES[Severity.ERROR]), 2)
            if not known:
                yield from (indent(page.line(line, QUIET), 4) for line in self.output.splitlines()[-12:])
            yield Text()
        often = self._often()
        for part, heading in PARTS.items():
            here = [c for c in self.checks if c["part"] == part and (c["passed"] is not None or c["text"] not in often)]
            if here:
                yield page.heading(heading)
                yield from (_line(check, page) for check in here)
                yield Text()
        yield from self._failures(page)
        for text in often:
            names = [check["name"] for check in self.checks if check["passed"] is None and check["text"] == text]
            yield labelled("not made", f"{', '.join(names)}: {text}", page)
        yield from self._closing(page)

    def _often(self) -> list[str]:
        """Reasons for which many checks could not be made: they are told once."""
        reasons = Counter(check["text"] for check in self.checks if check["passed"] is None)
        return [text for text, times in reasons.items() if times >= MANY]

    def _failures(self, page: Page) -> Iterator[RenderableType]:
        bad = [*self.findings, *(c for c in self.checks if c["passed"] is False)]
        for entry in sorted(bad, key=lambda e: Severity(e["severity"]).rank):
            severity, name = Severity(entry["severity"]), entry.get("diagnosis") or entry["name"]
            yield indent(Text.assemble((severity.value.upper(), STYLES[severity]), "  ", page.line(name, "bold")), 2)
            yield indent(page.line(entry.get("title") or entry["text"]), 2)
            said = [str(e["text"]) for e in entry.get("evidence") or []]
            yield from (page.bulleted(page.line(text)) for text in said[:REASONS_SHOWN])
            places = [p for p in entry.get("where") or [] if p.get("file")]
            yield from (page.bulleted(page.line(f"{p['file']}:{p['line']}")) for p in places[:3])
            fix = entry.get("fix")
            if fix:
                yield labelled("to change", fix["text"], page)
                if fix.get("code"):
                    yield page.code(fix["code"], 8)
            yield Text()

    def _closing(self, page: Page) -> Iterator[RenderableType]:
        passed = sum(c["passed"] is True for c in self.checks)
        notes = sum(c["passed"] is False and c["severity"] == Severity.INFO for c in self.checks)
        failed = sum(c["passed"] is False for c in self.checks) - notes
        unknown = len(self.checks) - passed - failed - notes
        words = f"{count(passed, 'check')} passed, {failed} failed, {unknown} could not be made"
        words += f", {count(notes, 'note')}" if notes else ""
        if self.findings:
            words += f"; {count(len(self.findings), 'fault')} seen in the first {self.steps} steps"
        if self.checks:
            yield labelled("in all", words, page)
        short = shortfall(self.checks, self.cut_short)
        if short:
            yield indent(page.line(f"{short[0].upper()}{short[1:]}.", STYLES[Severity.WARNING]), 2)
        if self.bottleneck:
            yield labelled("bottleneck", self.bottleneck, page)
        bad = [e.get("diagnosis") for e in self.checks if e["passed"] is False] + [f["name"] for f in self.findings]
        named = next((name for name in bad if name), None)
        if named:
            yield unbroken("read more", f"torchdoctor explain {named}", page)
        elif self.checks and not failed and not short:
            yield unbroken("next", f"torchdoctor run {self.script}", page)


def shortfall(checks: list[dict[str, Any]], cut_short: str | None = None) -> str | None:
    """That too few checks could be made to tell much of the training, with the reason that most of them give; or that
    the list was `cut_short`, by what."""
    left_out = [check["text"] for check in checks if check["passed"] is None]
    made = len(checks) - len(left_out)
    if not checks or (made >= ENOUGH * len(checks) and cut_short is None):
        return None
    few = "" if made >= ENOUGH * len(checks) else ", so this says little of the training"
    reason = cut_short or Counter(left_out).most_common(1)[0][0].rstrip(".")
    told = f"only {made} of {len(checks)} checks" if made else f"none of {count(len(checks), 'check')}"
    return f"{told} could be made{few}: {reason}"


def _line(check: dict[str, Any], page: Page) -> RenderableType:
    mark, style = MARKS.get(check["passed"], ("", ""))
    if check["passed"] is False:
        mark, style = BAD[check["severity"]], STYLES[Severity(check["severity"])]
    said = Text.assemble(page.line(check["asks"]), page.line(f": {check['text']}", QUIET if check["passed"] else ""))
    return hang(Text(f"{mark:4}", style=style), said, 4)
