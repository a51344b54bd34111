"""`torchdoctor runs`: the runs that were recorded; list, show, remove. Never imports torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchdoctor import shelf
from torchdoctor.errors import NotARunError, UsageError
from torchdoctor.report.sheet import Page, Sheet, indent, labelled, show, title, unbroken
from torchdoctor.report.text import clean, count, number, share, size

FOLDER = Path("torchdoctor-runs")
RUNNING = "running"
QUIET_SECONDS = 60.0
"""A run that says it is running and wrote nothing for this long was killed."""

folder_argument = click.argument("directory", type=click.Path(path_type=Path), default=FOLDER, metavar="[DIR]")


@click.group("runs", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and remove recorded runs. Alone it lists those in ./torchdoctor-runs."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_runs, directory=FOLDER)


@command.command("list")
@folder_argument
def list_runs(directory: Path) -> None:
    """List the runs in a folder, newest first."""
    held = shelf.entries(directory)
    if not held:
        where = f"in {directory}" if directory.is_dir() else f"in {directory}, which does not exist"
        click.echo(f"torchdoctor: there are no runs {where}; torchdoctor run train.py makes one", err=True)
        return
    show(Sheet(lambda page, width: _write_list(held, page)))


@command.command("show")
@click.argument("path", type=click.Path(path_type=Path), default=FOLDER, metavar="[RUN]")
def show_run(path: Path) -> None:
    """Show one run's record and figures: a run's folder, its name in ./torchdoctor-runs, or the newest."""
    from torchdoctor.store.reader import open_run
    from torchdoctor.summary import summary

    directory, _ = shelf.resolve(_named(path))
    run = open_run(directory)
    entry, figures = shelf.entry(directory), summary(run)
    show(Sheet(lambda page, width: _write_run(entry, run.info, figures, page, width)))


@command.command("remove")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[RUN or DIR]...")
@click.option("--older-than", metavar="AGE", help="Only runs last written longer ago: 30d, 12h, 90m, 2w.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the N newest of a folder.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove_runs(paths: tuple[Path, ...], older_than: str | None, keep: int | None, yes: bool) -> None:
    """Remove runs: those named, or those of a folder that --older-than and --keep choose."""
    age = shelf.parse_age(older_than) if older_than else None
    doomed = _choose(paths, keep, age)
    running = [e for e in doomed if _is_running(e)]
    for entry in running:
        click.echo(f"torchdoctor: {entry.path} is still being written, so it stays", err=True)
    doomed = [e for e in doomed if e not in running]
    if not doomed:
        click.echo("torchdoctor: nothing to remove", err=True)
        return
    total = size(sum(e.bytes for e in doomed))
    for entry in doomed:
        click.echo(f"{entry.path}  {_when(entry.changed)}  {size(entry.bytes)}")
    if not yes and not click.confirm(f"Remove {count(len(doomed), 'run')} ({total})?", err=True):
        click.echo("torchdoctor: nothing was removed", err=True)
        return
    for entry in doomed:
        shelf.remove(entry)
    click.echo(f"torchdoctor: removed {count(len(doomed), 'run')} ({total})", err=True)


def _choose(paths: Sequence[Path], keep: int | None, age: Any) -> list[shelf.Entry]:
    chosen: list[shelf.Entry] = []
    chooses = keep is not None or age is not None
    if not paths and not chooses:
        raise UsageError("say which: name runs, or give --older-than 30d or --keep 10")
    for path in (_named(p) for p in paths or [FOLDER]):
        if path.is_symlink():
            raise NotARunError(f"{path} is a link, so it is left alone; name the run's own folder")
        if shelf.is_run(path):
            chosen += shelf.select([shelf.entry(path)], None, age, time.time())
        elif not path.is_dir():
            raise NotARunError(f"there is no run at {path}; torchdoctor runs lists what there is")
        elif not chooses:
            raise UsageError(f"{path} is not a run; to remove runs in it give --older-than 30d or --keep 10")
        else:
            chosen += shelf.select(shelf.entries(path), keep, age, time.time())
    return list({entry.path.resolve(): entry for entry in chosen}.values())


def _named(path: Path) -> Path:
    """The path, or the run of that name in the usual folder."""
    return FOLDER / path if not path.exists() and (FOLDER / path).is_dir() else path


def _is_running(entry: shelf.Entry) -> bool:
    return entry.status == RUNNING and time.time() - entry.changed < QUIET_SECONDS


def _write_list(held: list[shelf.Entry], page: Page) -> Iterator[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("run", "last written", "status", "size"):
        table.add_column(heading, justify="right" if heading == "size" else "left", overflow="fold")
    for entry in held:
        stale = entry.status == RUNNING and not _is_running(entry)
        status = "killed" if stale else entry.status
        table.add_row(page.line(entry.path.name), _when(entry.changed), page.line(status), size(entry.bytes))
    yield Text()
    yield indent(table, 2)
    yield Text()
    total = size(sum(e.bytes for e in held))
    yield indent(page.line(f"{count(len(held), 'run')} in {held[0].path.parent}, {total}"), 2)
    yield Text()


def _write_run(
    entry: shelf.Entry, info: Any, figures: dict[str, Any], page: Page, width: int
) -> Iterator[RenderableType]:
    yield Text()
    yield title(entry.path.name, page, width)
    yield Text()
    yield labelled("status", f"{entry.status}, last written {_when(entry.changed)}, {size(entry.bytes)}", page)
    for label, value in _record(info):
        yield labelled(label, value, page)
    yield Text()
    for label, value in _figures(figures):
        yield labelled(label, value, page)
    yield Text()
    yield unbroken("run", str(entry.path), page)
    yield unbroken("verdict", f"torchdoctor diagnose {entry.path}", page)
    yield Text()


def _record(info: Any) -> Iterator[tuple[str, str]]:
    """The short entries of run.json, nested ones one level deep; long texts such as a diff are only counted."""
    for key, value in info.items():
        if isinstance(value, dict):
            shown = ", ".join(f"{k} {_short(v)}" for k, v in value.items() if v not in (None, "", [], {}))
        elif isinstance(value, list):
            shown = " ".join(_short(v) for v in value)
        else:
            shown = _short(value)
        if shown and key != "status":
            yield str(key).replace("_", " "), shown


def _short(value: Any) -> str:
    text = clean(value)
    return text if len(text) <= 200 else f"({len(str(value)):,} characters)"


def _figures(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in figures.items():
        if value is None or value == "":
            continue
        share_of = key in ("clip_frequency", "overhead", "final_validation_accuracy")
        shown = share(value) if share_of else number(value) if isinstance(value, float) else str(value)
        yield key.replace("_", " "), shown


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
