"""`torchdoctor runs`: the runs that were recorded; list, show, remove. Never imports torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from torchdoctor import shelf
from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.console import RenderableType, Text
from torchdoctor.errors import NotARunError, RunError, UsageError
from torchdoctor.last_seen import RUNNING
from torchdoctor.report.sheet import Page, Sheet, indent, labelled, show, title, unbroken
from torchdoctor.report.text import clean, count, cut_middle, number, share, size
from torchdoctor.store.listing import RunEntry, list_runs, remove_run

LONG_TEXT = 200
"""Longer entries of run.json, such as a git diff, are shown by their size."""
RECORD_WIDTH, FIGURE_WIDTH = 16, 26
GAP = 2
ARGUMENTS, FIGURES, GO_FIRST = "arguments", ("steps", "size"), ("started", "size")
ARGUMENTS_LEAST, ARGUMENTS_MOST = 16, 400
"""Letters of a run's arguments in a list."""
NOT_SHOWN = frozenset({"status", "path", "name", "format", "process", "sessions", "rank", "started", "ended", "steps"})
"""Entries of run.json that are told apart, or of no use to people."""


@click.group("runs", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and remove recorded runs. Alone it lists those in ./torchdoctor-runs."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_command, directory=FOLDER)


@command.command("list")
@click.argument("directory", type=click.Path(path_type=Path), default=FOLDER, metavar="[DIR]")
def list_command(directory: Path) -> None:
    """List the runs in a folder, newest first."""
    held = shelf.newest_first(directory)
    if not held:
        where = f"in {directory}" if directory.is_dir() else f"in {directory}, which does not exist"
        click.echo(f"torchdoctor: there are no runs {where}; torchdoctor run train.py makes one", err=True)
        return
    show(Sheet(lambda page, width: _write_list(held, page, width)))


@command.command("show")
@click.argument("path", type=click.Path(path_type=Path), default=FOLDER, metavar="[RUN]")
def show_command(path: Path) -> None:
    """Show one run's record and figures: a run's folder, its name in ./torchdoctor-runs, or the newest."""
    from torchdoctor.store.reader import open_run
    from torchdoctor.summary import summary

    directory, _ = shelf.resolve(find_named(path))
    run = open_run(directory)
    figures = summary(run)
    show(Sheet(lambda page, width: _write_run(directory, run.info, figures, page, width)))


@command.command("remove")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[RUN or DIR]...")
@click.option("--older-than", metavar="AGE", help="Only runs last written longer ago: 30d, 12h, 90m, 2w.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the N newest of a folder.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove_command(paths: tuple[Path, ...], older_than: str | None, keep: int | None, yes: bool) -> None:
    """Remove runs: those named, or those of a folder that --older-than and --keep choose."""
    age = shelf.parse_age(older_than) if older_than else None
    chosen = _choose(paths, keep, age)
    for run in (r for r in chosen if r.status == RUNNING):
        click.echo(f"torchdoctor: {run.path} is still being recorded, so it stays", err=True)
    doomed = [r for r in chosen if r.status != RUNNING]
    if not doomed:
        click.echo("torchdoctor: nothing to remove", err=True)
        return
    for run in doomed:
        click.echo(f"{clean(run.path)}  {_when(run.started)}  {size(run.size_bytes)}")
    total = f"{count(len(doomed), 'run')} ({size(sum(r.size_bytes for r in doomed))})"
    if not yes and not _confirm(total):
        click.echo("torchdoctor: nothing was removed", err=True)
        return
    for run in doomed:
        remove_run(run.path)
    click.echo(f"torchdoctor: removed {total}", err=True)


def _confirm(total: str) -> bool:
    try:
        return click.confirm(f"Remove {total}?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise UsageError("there is no terminal to ask at; give -y to remove without asking") from None


def _choose(paths: Sequence[Path], keep: int | None, age: timedelta | None) -> list[RunEntry]:
    chosen: list[RunEntry] = []
    chooses = keep is not None or age is not None
    if not paths and not chooses:
        raise UsageError("say which: name runs, or give --older-than 30d or --keep 10")
    for path in (find_named(p) for p in paths or [FOLDER]):
        if path.is_symlink():
            raise NotARunError(f"{path} is a link, so it is left alone; name the run's own folder")
        if shelf.is_run(path):
            named = [e for e in list_runs(path.absolute().parent) if e.path.name == path.absolute().name]
            chosen += shelf.select(named, None, age, time.time())
        elif not path.is_dir():
            raise NotARunError(f"there is no run at {path}; torchdoctor runs lists what there is")
        elif not chooses:
            raise UsageError(f"{path} is not a run; to remove runs in it give --older-than 30d or --keep 10")
        else:
            chosen += shelf.select(shelf.newest_first(path), keep, age, time.time())
    return list({run.path.resolve(): run for run in chosen}.values())


def _write_list(held: list[RunEntry], page: Page, width: int) -> Iterator[RenderableType]:
    yield Text()
    yield from _line_up(_columns(held, page), width)
    yield Text()
    total = size(sum(r.size_bytes for r in held))
    yield indent(page.line(f"{count(len(held), 'run')} in {held[0].path.parent}, {total}"), 2)
    yield Text()


def _columns(held: list[RunEntry], page: Page) -> dict[str, list[Text]]:
    return {
        "run": [page.line(run.name) for run in held],
        ARGUMENTS: [page.line(cut_middle(run.arguments, ARGUMENTS_MOST)) for run in held],
        "started": [page.line(_when(run.started)) for run in held],
        "status": [page.line(run.status) for run in held],
        "steps": [page.line(f"{_steps(run):,}") for run in held],
        "size": [page.line(size(run.size_bytes)) for run in held],
    }


def _line_up(columns: dict[str, list[Text]], width: int) -> Iterator[Text]:
    """A line for each run, its name whole so that it can be copied: the arguments are cut, then columns go."""
    room = {name: max(len(name), *(cell.cell_len for cell in cells)) for name, cells in columns.items()}
    if not any(columns[ARGUMENTS]):
        del room[ARGUMENTS]
    whole = room.get(ARGUMENTS, 0)
    least = min(whole, ARGUMENTS_LEAST)
    over = sum(room.values()) + GAP * len(room) - width
    for name in GO_FIRST:
        if whole - over < least:
            over -= room.pop(name) + GAP
    if ARGUMENTS in room:
        room[ARGUMENTS] = max(least, min(whole, whole - over))
    yield _join({name: Text(name, style="bold") for name in room}, room)
    for cells in zip(*columns.values(), strict=True):
        yield _join(dict(zip(columns, cells, strict=True)), room)


def _join(cells: Mapping[str, Text], room: Mapping[str, int]) -> Text:
    line = Text(no_wrap=True, overflow="ignore")
    for name, wide in room.items():
        cell = cells[name] if name != ARGUMENTS else Text(cut_middle(cells[name].plain, wide), style=cells[name].style)
        fill = " " * (wide - cell.cell_len)
        line.append(" " * GAP).append_text(Text(fill) + cell if name in FIGURES else cell + Text(fill))
    return line


def _steps(entry: RunEntry) -> int:
    """As a verdict counts them: the record's own count has a look after the last update, too."""
    from torchdoctor.store.reader import open_run

    try:
        return open_run(entry.path).steps
    except (RunError, OSError):
        return entry.steps


def _write_run(
    directory: Path, info: Mapping[str, Any], figures: Mapping[str, Any], page: Page, width: int
) -> Iterator[RenderableType]:
    yield Text()
    yield title(directory.absolute().name, page, width)
    yield Text()
    yield labelled("status", f"{info.get('status')}, started {_when(info.get('started'))}", page, RECORD_WIDTH)
    for label, value in _record(info):
        yield labelled(label, value, page, RECORD_WIDTH)
    yield Text()
    for label, value in _figures(figures):
        yield labelled(label, value, page, FIGURE_WIDTH)
    yield Text()
    yield unbroken("run", str(directory), page)
    yield unbroken("verdict", f"torchdoctor diagnose {directory}", page)
    yield Text()


def _record(info: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The short entries of run.json, nested ones one level deep."""
    for key, value in info.items():
        if key in NOT_SHOWN or value in (None, "", [], {}):
            continue
        if isinstance(value, dict):
            shown = ", ".join(f"{k} {_short(v)}" for k, v in value.items() if v not in (None, "", [], {}))
        elif isinstance(value, list):
            shown = " ".join(_short(v) for v in value)
        else:
            shown = _short(value)
        yield str(key).replace("_", " "), shown


def _short(value: Any) -> str:
    text = clean(value)
    return text if len(text) <= LONG_TEXT else f"({len(str(value)):,} characters)"


def _figures(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in figures.items():
        if value is None or key in ("loss_key", "finished"):
            continue
        is_share = key in ("clip_frequency", "overhead", "final_validation_accuracy")
        shown = share(value) if is_share else number(value) if isinstance(value, float) else str(value)
        yield key.replace("_", " "), shown


def _when(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return "unknown"
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return "unknown"
