"""`torchdoctor report RUN`: a run as one page to keep, mail or print. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.errors import UsageError
from torchdoctor.report.json import write_text

if TYPE_CHECKING:
    from torchdoctor.plots.chart import Chart
    from torchdoctor.report.html import Compared, Told
    from torchdoctor.telling import Opened

MOST_RUNS = 2
NAMES = {"html": "torchdoctor-report.html", "markdown": "torchdoctor-report.md"}


@click.command("report")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", help="Where to write; - is standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(NAMES)),
    default="html",
    show_default=True,
    help="markdown is for a comment; its figures are PNG files in a folder beside it.",
)
@click.option(
    "--with-captures",
    is_flag=True,
    help="With pictures of captured batches. Without it they are left out: a report is mailed, and they are your data.",
)
def command(runs: tuple[Path, ...], output: str | None, form: str, with_captures: bool) -> None:
    """Write a run as one self-contained HTML page, or as markdown.

    RUN is a run's folder, its name in ./torchdoctor-runs, or a folder of runs: then the newest is taken. Two runs are
    compared: what differs in configuration, curves and findings. The page opens offline and asks for nothing.
    """
    if len(runs) > MOST_RUNS:
        raise UsageError(f"{len(runs)} runs were given; a report shows one, or compares two")
    from torchdoctor.telling import tell_apart

    opened = [_open(path) for path in runs or (FOLDER,)]
    target = output or NAMES[form]
    told = [_with_kept(each, with_captures) for each in opened]
    comparison = tell_apart(opened) if len(opened) > 1 else None
    if form == "markdown":
        _write_markdown(told, comparison, target)
    else:
        from torchdoctor.report.html import write_page

        write_text(write_page(told, comparison), target)
    if target != "-":
        click.echo(f"report: {target}", err=True)


def _open(path: Path) -> Opened:
    from torchdoctor.shelf import resolve
    from torchdoctor.telling import tell

    directory, note = resolve(find_named(path))
    if note:
        click.echo(f"torchdoctor: {note}", err=True)
    return tell(directory)


def _with_kept(opened: Opened, previews: bool) -> Told:
    """With what lies beside the record: captures, replays, the check of the script."""
    from torchdoctor.telling import tell_kept

    return replace(opened.told, kept=tell_kept(Path(opened.run.info["path"]), opened.run, previews))


def _write_markdown(told: Sequence[Told], comparison: Compared | None, target: str) -> None:
    from torchdoctor.report.markdown import dump_report, wanted_charts
    from torchdoctor.report.pictures import find_browser

    folder: Path | None = Path(target).with_suffix("" if Path(target).suffix else ".pictures")
    if target == "-" or find_browser() is None:
        why = "standard output has no folder for them" if target == "-" else "no browser was found to draw them"
        click.echo(f"torchdoctor: without figures, since {why}", err=True)
        folder = None
    parts = [""] if comparison is None else ["first", "second"]
    drawn = [(each, _draw(wanted_charts(each), folder, part)) for each, part in zip(told, parts, strict=True)]
    both = None if comparison is None else (comparison, _draw(comparison.charts, folder, "both"))
    write_text(dump_report(drawn, both), target)


def _draw(charts: Sequence[Chart], folder: Path | None, part: str) -> dict[str, str]:
    """Pictures in this part of the folder, as links from beside it."""
    from torchdoctor.report.pictures import write_pictures

    if folder is None:
        return {}
    written = write_pictures(charts, folder / part)
    return {name: quote((Path(folder.name) / part / file.name).as_posix()) for name, file in written.items()}
