"""The verdict in the terminal, written like a good doctor's letter.

It is built of rich's Text objects only, never of markup, so nothing in a run can style or move what is printed.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from torchdoctor import signals
from torchdoctor.findings import Finding, Severity, Verdict
from torchdoctor.report import found
from torchdoctor.report.letter import QUIET, STYLES, Page, aside, brief, hang, indent, passage, shorten
from torchdoctor.report.text import count, number, spark
from torchdoctor.run import Run
from torchdoctor.summary import summary

WIDTH_LEAST, WIDTH_MOST = 60, 120
LABEL_WIDTH = 12
FEW_STEPS = 20
"""Under this many updates most statistics have nothing to stand on."""

ENDINGS = {
    "crashed": "The script crashed; this is what was seen until then.",
    "interrupted": "The script was interrupted; this is what was seen until then.",
    "running": "The run has not been closed: it still trains, or was killed. This is what was seen so far.",
}


def render(
    verdict: Verdict, run: Run | None = None, *, directory: Path | None = None, width: int | None = None
) -> RenderableType:
    """The letter, for `console.print(..., crop=False)`."""
    return Letter(verdict, run, directory, width)


def print_verdict(
    verdict: Verdict,
    run: Run | None = None,
    *,
    directory: Path | None = None,
    width: int | None = None,
    file: IO[str] | None = None,
) -> None:
    """Print the letter to `file` (the standard error unless told otherwise); in colour only on a terminal."""
    console = Console(file=file or sys.stderr, highlight=False, markup=False, emoji=False)
    console.print(render(verdict, run, directory=directory, width=width), crop=False)


def announce(finding: Finding, step: int | None = None, ascii_only: bool = False) -> Text:
    """A finding in one line, for a run that still trains."""
    page = Page(ascii_only)
    at = f"step {step:,}: " if step is not None else ""
    return Text.assemble(
        f"torchdoctor: {at}",
        (finding.severity.value, STYLES[finding.severity]),
        f" {finding.name} ({finding.code}): ",
        page.line(finding.title),
    )


@dataclass(frozen=True)
class Letter:
    verdict: Verdict
    run: Run | None
    directory: Path | None
    width: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(WIDTH_LEAST, min(self.width or options.max_width, WIDTH_MOST))
        page = Page(ascii_only=options.ascii_only)
        parts = console.render(Group(*self._parts(page, width)), options.update(width=width))
        for line in Segment.split_lines(parts):
            yield from _stripped(line)
            yield Segment.line()

    def _parts(self, page: Page, width: int) -> Iterator[RenderableType]:
        yield Text()
        yield _title(page, width)
        yield Text()
        yield from self._ending(page)
        if self.run is not None and self.run.steps == 0 and self.verdict.healthy:
            yield from self._no_training(page)
        elif self.verdict.healthy:
            yield from self._clean_bill(page)
        else:
            yield from self._diagnoses(page)
        yield from self._asides(page)
        yield from self._closing(page)

    def _ending(self, page: Page) -> Iterator[RenderableType]:
        words = ENDINGS.get(str(self.verdict.run.get("status")))
        if words:
            yield indent(page.line(words, QUIET), 2)
            yield Text()

    def _no_training(self, page: Page) -> Iterator[RenderableType]:
        yield Text("  NO TRAINING SEEN", style="bold yellow")
        yield indent(
            page.line("No optimizer made a step, so there is nothing to examine and this is no clean bill."), 2
        )
        yield Text()

    def _clean_bill(self, page: Page) -> Iterator[RenderableType]:
        verdict, steps = self.verdict, int(self.verdict.run.get("steps") or 0)
        asked = len(verdict.examined) + len(verdict.not_examined)
        yield Text("  NO FAULT FOUND", style="bold green")
        words = (
            f"Nothing in {count(steps, 'step')} points at a fault. "
            f"{len(verdict.examined)} of {asked} diagnoses were examined."
        )
        if steps < FEW_STEPS:
            words += " So few steps say little about rates, trends and dead units: train longer to be sure."
        yield indent(page.line(words), 2)
        yield Text()
        yield from self._progress(page)
        families = Counter(verdict.families.get(name, "other") for name in verdict.examined)
        if families:
            yield _labelled("examined", ", ".join(f"{family} {n}" for family, n in families.items()), page)

    def _progress(self, page: Page) -> Iterator[RenderableType]:
        if self.run is None:
            return
        figures = summary(self.run)
        if figures["final_loss"] is None:
            return
        trace = self.run.scalar(signals.LOSS_TRAIN, figures["loss_key"])
        words = (
            f"{number(figures['first_loss'])} {page.arrow} {number(figures['final_loss'])}, "
            f"best {number(figures['best_loss'])} at step {figures['best_step']:,}, {figures['trend']}"
        )
        drawn = Text.assemble(page.line(words), "\n", (spark(trace.values.tolist(), page.ascii_only), "cyan"))
        yield _labelled("loss", drawn, page)

    def _diagnoses(self, page: Page) -> Iterator[RenderableType]:
        findings = self.verdict.findings
        first, *others = _roots(findings)
        yield from passage(first, findings, page)
        if others:
            yield Text("  ALSO FOUND", style="bold")
            yield Text()
            for finding in others:
                yield from brief(finding, findings, page)
        if self.verdict.ruled_out:
            yield page.heading("Ruled out")
            for cause in self.verdict.ruled_out[:3]:
                yield page.bulleted(Text.assemble((cause.name, "bold"), ": ", page.line(cause.text)))
            yield Text()

    def _asides(self, page: Page) -> Iterator[RenderableType]:
        grave = {f.name for f in self.verdict.findings if f.severity is not Severity.INFO}
        infos = [f for f in self.verdict.findings if f.severity is Severity.INFO and f.consequence_of not in grave]
        if infos:
            if self.verdict.healthy:
                yield Text()
            yield page.heading("Worth knowing")
            for finding in infos:
                yield aside(finding, page)
            yield Text()

    def _closing(self, page: Page) -> Iterator[RenderableType]:
        if self.run is not None:
            yield _labelled("found", found.describe_found(self.run), page)
            yield from _labelled_lines("unknown", found.describe_unknown(self.run), page)
        yield from _labelled_lines("not examined", found.describe_not_examined(self.verdict), page)
        if self.run is not None:
            yield from _labelled_lines("torchdoctor", found.describe_health(self.run), page)
        yield Text()
        yield from self._next(page)

    def _next(self, page: Page) -> Iterator[RenderableType]:
        if self.directory is not None:
            yield _unbroken("run", shorten(self.directory, page.cwd), page)
        names = [f.name for f in self.verdict.findings if f.consequence_of is None]
        if names:
            yield _unbroken("read more", f"torchdoctor explain {names[0]}", page)
        if self.directory is not None:
            command = f"torchdoctor diagnose {shlex.quote(shorten(self.directory, page.cwd))}"
            yield _unbroken("again", command, page)
        yield Text()


def _roots(findings: tuple[Finding, ...]) -> list[Finding]:
    """The errors and warnings that are told by themselves: those not told under a cause."""
    grave = [f for f in findings if f.severity is not Severity.INFO]
    names = {f.name for f in grave}
    return [f for f in grave if f.consequence_of not in names] or grave


def _stripped(line: list[Segment]) -> list[Segment]:
    """Without the blanks that fill it up to the width: what is piped or copied should not end in them."""
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style, kept[-1].control)
    return kept


def _title(page: Page, width: int) -> Text:
    mark = "-" if page.ascii_only else "─"
    return Text(f"{mark * 2} torchdoctor ".ljust(width, mark), style=QUIET)


def _labelled(label: str, content: str | Text, page: Page) -> RenderableType:
    body = page.line(content) if isinstance(content, str) else content
    return hang(Text(label.ljust(LABEL_WIDTH), style=QUIET), body, 2)


def _labelled_lines(label: str, lines: list[str], page: Page) -> Iterator[RenderableType]:
    for i, line in enumerate(lines):
        yield _labelled("" if i else label, line, page)


def _unbroken(label: str, content: str, page: Page) -> Text:
    """A path or command: never wrapped, so that it can be copied."""
    text = Text.assemble("  ", (label.ljust(LABEL_WIDTH), QUIET), " ", page.line(content))
    text.no_wrap, text.overflow = True, "ignore"
    return text
