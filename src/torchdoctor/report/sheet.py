"""Paper for the terminal: a width, a way to write what comes from a run, and lines without trailing blanks.

Everything is built of rich's Text objects, never of markup, so nothing in a run can style or move what is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from torchdoctor.console import (
    Console,
    ConsoleOptions,
    Group,
    Padding,
    RenderableType,
    RenderResult,
    Segment,
    Table,
    Text,
)
from torchdoctor.findings import Severity
from torchdoctor.opening import current_folder
from torchdoctor.report.text import clean, clean_block

WIDTH_LEAST, WIDTH_MOST = 60, 120
LABEL_WIDTH = 12
_DRAWN = str.maketrans("•─━│┃└", "*--||`")
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
HEADING = "bold"
CODE = "green"
QUIET = "dim"


@dataclass(frozen=True)
class Page:
    """How the terminal at hand shows things."""

    ascii_only: bool = False
    cwd: Path = field(default_factory=current_folder)

    @property
    def bullet(self) -> str:
        return "*" if self.ascii_only else "•"

    @property
    def branch(self) -> str:
        return "`-" if self.ascii_only else "└─"

    @property
    def arrow(self) -> str:
        return "->" if self.ascii_only else "→"

    def line(self, text: object, style: str = "") -> Text:
        return Text(clean(text, self.ascii_only), style=style)

    def code(self, text: object, indent: int, style: str = CODE) -> Text:
        """Lines to paste: never wrapped, so that they stay whole; nothing but spaces before them."""
        lines = clean_block(text, self.ascii_only).splitlines()
        indented = "\n".join(" " * indent + line for line in lines)
        return Text(indented, style=style, no_wrap=True, overflow="ignore")

    def heading(self, text: str) -> Padding:
        return indent(Text(text, style=HEADING), 2)

    def bulleted(self, content: RenderableType, left: int = 4) -> Padding:
        return hang(Text(self.bullet), content, left)


def indent(content: RenderableType, left: int) -> Padding:
    return Padding(content, (0, 0, 0, left))


def hang(mark: Text, content: RenderableType, left: int) -> Padding:
    """A mark with its text hanging beside it."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, content)
    return indent(grid, left)


def shorten(path: str | Path, cwd: Path) -> str:
    """Relative to the current folder where it lies under it."""
    try:
        return str(Path(path).relative_to(cwd))
    except ValueError:
        return str(path)


@dataclass(frozen=True)
class Sheet:
    """What `write` yields for a page, WIDTH_LEAST to WIDTH_MOST wide; print it with `crop=False`."""

    write: Callable[[Page, int], Iterable[RenderableType]]
    width: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(WIDTH_LEAST, min(self.width or options.max_width, WIDTH_MOST))
        page = Page(ascii_only=options.ascii_only)
        parts = console.render(Group(*self.write(page, width)), options.update(width=width))
        for line in Segment.split_lines(parts):
            yield from _stripped(_ascii(line) if page.ascii_only else line)
            yield Segment.line()


def show(sheet: RenderableType, file: IO[str] | None = None) -> None:
    """Print to a file, the standard output unless told otherwise; in colour only on a terminal."""
    console = Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False, force_jupyter=False)
    console.print(sheet, crop=False)


def title(words: str, page: Page, width: int) -> Text:
    mark = "-" if page.ascii_only else "─"
    return Text(f"{mark * 2} {clean(words, page.ascii_only)} ".ljust(width, mark), style=QUIET)


def labelled(label: str, content: str | Text, page: Page, width: int = LABEL_WIDTH) -> RenderableType:
    body = page.line(content) if isinstance(content, str) else content
    return hang(Text(clean(label, page.ascii_only).ljust(width), style=QUIET), body, 2)


def labelled_lines(label: str, lines: list[str], page: Page) -> Iterator[RenderableType]:
    for i, line in enumerate(lines):
        yield labelled("" if i else label, line, page)


def unbroken(label: str, content: str, page: Page) -> Text:
    """A path or command: never wrapped, so that it can be copied."""
    text = Text.assemble("  ", (label.ljust(LABEL_WIDTH), QUIET), " ", page.line(content))
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _ascii(line: list[Segment]) -> list[Segment]:
    """What rich itself draws (bullets, rules) in the same width."""
    return [
        Segment(s.text.translate(_DRAWN).encode("ascii", "replace").decode("ascii"), s.style, s.control) for s in line
    ]


def _stripped(line: list[Segment]) -> list[Segment]:
    """Without the blanks that fill it up to the width: what is piped or copied should not end in them."""
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style, kept[-1].control)
    return kept
