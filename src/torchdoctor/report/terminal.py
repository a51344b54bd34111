"""The verdict in the terminal, written like a good doctor's letter.

First the cause with all that shows it, then other findings in short, then what was found, not examined and done.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchdoctor import signals
from torchdoctor.console import RenderableType, Text
from torchdoctor.facts import BirthFact
from torchdoctor.findings import Finding, Severity, Verdict
from torchdoctor.last_seen import DIED
from torchdoctor.report import found
from torchdoctor.report.endings import describe_ending, describe_ranks, rank_headline
from torchdoctor.report.headlines import FEW_STEPS, NONE, headline_of
from torchdoctor.report.letter import aside, brief, explained, passage
from torchdoctor.report.sheet import (
    QUIET,
    STYLES,
    Page,
    Sheet,
    indent,
    labelled,
    labelled_lines,
    shorten,
    show,
    title,
    unbroken,
)
from torchdoctor.report.text import count, number, spark
from torchdoctor.rules import remedies
from torchdoctor.run import Run
from torchdoctor.settings import Settings
from torchdoctor.summary import summary


def render(
    verdict: Verdict,
    run: Run | None = None,
    *,
    directory: Path | None = None,
    width: int | None = None,
    settings: Settings | None = None,
    flags: Sequence[str] = (),
) -> RenderableType:
    """The letter, for `console.print(..., crop=False)`. `flags`: what the command line said of the settings."""
    return Sheet(Letter(verdict, run, directory, settings or Settings(), tuple(flags)).write, width)


def print_verdict(
    verdict: Verdict,
    run: Run | None = None,
    *,
    directory: Path | None = None,
    width: int | None = None,
    file: IO[str] | None = None,
    settings: Settings | None = None,
    flags: Sequence[str] = (),
) -> None:
    """Print the letter to `file` (the standard error unless told otherwise); in colour only on a terminal."""
    letter = render(verdict, run, directory=directory, width=width, settings=settings, flags=flags)
    show(letter, file or sys.stderr)


@dataclass(frozen=True)
class Letter:
    verdict: Verdict
    run: Run | None
    directory: Path | None
    settings: Settings
    flags: tuple[str, ...] = ()

    def write(self, page: Page, width: int) -> Iterator[RenderableType]:
        yield Text()
        yield title("torchdoctor", page, width)
        yield Text()
        yield from self._ending(page)
        yield from explained(self.verdict, page)
        if self.run is not None and self.run.steps == 0 and self.verdict.healthy:
            yield from self._no_training(page)
        elif self.verdict.healthy:
            yield from self._clean_bill(page)
        else:
            yield from self._diagnoses(page)
        yield from self._asides(page)
        yield from self._closing(page)

    def _ending(self, page: Page) -> Iterator[RenderableType]:
        lost = rank_headline(self.verdict.run)
        if lost is not None:
            yield indent(page.line(lost, STYLES[Severity.ERROR]), 2)
            yield Text()
            yield from labelled_lines("ranks", describe_ranks(self.verdict.run, page.cwd), page)
            yield Text()
            return
        words = describe_ending(self.verdict.run, page.cwd)
        if words:
            yield indent(page.line(words, QUIET), 2)
            yield Text()

    def _no_training(self, page: Page) -> Iterator[RenderableType]:
        yield Text("  NO TRAINING SEEN", style="bold yellow")
        why = "No optimizer made a step" if self.verdict.run.get("status") != DIED else "No step was recorded"
        yield indent(page.line(f"{why}, so there is nothing to examine and this is no clean bill."), 2)
        yield Text()

    def _clean_bill(self, page: Page) -> Iterator[RenderableType]:
        verdict, steps = self.verdict, int(self.verdict.run.get("steps") or 0)
        asked = found.describe_asked(verdict, self.settings)
        top = headline_of(verdict)
        if top.severity == NONE and steps:
            yield Text(f"  {top.badge.upper()}", style="bold yellow")
            words = f"{top.title}. {top.summary}"
        else:
            other = "other " if verdict.explanation or rank_headline(verdict.run) else ""
            yield Text(f"  NO {other.upper()}FAULT FOUND", style="bold green")
            words = f"Nothing {'else ' if other else ''}in {count(steps, 'step')} points at a fault. {asked}"
            if steps < FEW_STEPS:
                words += " So few steps say little about rates, trends and dead units: train longer to be sure."
        yield indent(page.line(words), 2)
        yield Text()
        yield from self._progress(page)
        families = Counter(verdict.families.get(name, "other") for name in verdict.examined)
        if families:
            yield labelled("examined", ", ".join(f"{family} {n}" for family, n in families.items()), page)

    def _progress(self, page: Page) -> Iterator[RenderableType]:
        if self.run is None:
            return
        figures = summary(self.run)
        if figures["final_loss"] is None:
            return
        trace = self.run.scalar(signals.LOSS_TRAIN, figures.get("loss_key", ""))
        words = f"{number(figures['first_loss'])} {page.arrow} {number(figures['final_loss'])}, {figures['trend']}"
        if figures["best_step"] is not None:
            words += f", best {number(figures['best_loss'])} at step {figures['best_step']:,}"
        drawn = Text.assemble(page.line(words), "\n", (spark(trace.values.tolist(), page.ascii_only), "cyan"))
        yield labelled("loss", drawn, page)
        if self.verdict.ending.validation:
            yield labelled("validation", page.line(self.verdict.ending.validation), page)

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
        yield from labelled_lines("warned", found.describe_warnings(self.verdict, page.cwd), page)
        if self.run is not None:
            yield labelled("found", found.describe_found(self.run), page)
            yield from labelled_lines("unknown", found.describe_unknown(self.run), page)
        yield from labelled_lines("not examined", found.describe_not_examined(self.verdict), page)
        yield from labelled_lines("silenced", found.describe_silenced(self.verdict, page.cwd), page)
        strays = found.describe_strays(self.verdict, self.settings, page.cwd)
        yield from labelled_lines("not allowed", strays, page)
        if self.run is not None:
            yield from labelled_lines("non-finite", remedies.describe(self.run), page)
            yield from labelled_lines("torchdoctor", found.describe_health(self.run), page)
        yield Text()
        yield from self._next(page)

    def _next(self, page: Page) -> Iterator[RenderableType]:
        if self.directory is not None:
            yield unbroken("run", shorten(self.directory, page.cwd), page)
            yield from self._captures(self.directory, page)
        names = [f.name for f in self.verdict.findings if f.consequence_of is None]
        if names:
            yield unbroken("read more", f"torchdoctor explain {names[0]}", page)
        if self.directory is not None:
            words = ["torchdoctor", "diagnose", shorten(self.directory, page.cwd), *self.flags]
            yield unbroken("again", shlex.join(words), page)
        yield Text()

    def _captures(self, directory: Path, page: Page) -> Iterator[RenderableType]:
        """Those that are still there: a retention, or the user, may have removed some."""
        written, failed = found.captures(self.run) if self.run is not None else ([], [])
        there = [path for name in written if (path := directory / "captures" / name).is_dir()]
        for path in there[:1]:
            more = f" and {len(there) - 1} more" if len(there) > 1 else ""
            yield unbroken("capture", f"{shorten(path, page.cwd)}{more} (holds your data)", page)
        unknown = self.run is not None and not self.run.facts(BirthFact)
        if unknown and any("-nonfinite" in path.name for path in there):
            words = ["torchdoctor", "replay", shorten(directory, page.cwd)]
            yield unbroken("next", f"{shlex.join(words)} (names the operation)", page)
        yield from labelled_lines("capture", [] if there else failed[:1], page)


def _roots(findings: tuple[Finding, ...]) -> list[Finding]:
    """The errors and warnings that are told by themselves: those not told under a cause."""
    grave = [f for f in findings if f.severity is not Severity.INFO]
    names = {f.name for f in grave}
    return [f for f in grave if f.consequence_of not in names] or grave
