"""`torchdoctor note RUN "..."`: the journal of what was tried, kept with the run. Never imports torch."""

from __future__ import annotations

from pathlib import Path

import click

from torchdoctor.cli.names import find_named
from torchdoctor.errors import NotARunError
from torchdoctor.report.text import clean
from torchdoctor.shelf import is_run, journal_of
from torchdoctor.store.journal import add_note


@click.command("note")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("text", nargs=-1)
def command(run: Path, text: tuple[str, ...]) -> None:
    """Write a note into a run's journal; without a text, show the journal.

    Reports show the notes of a run and of earlier runs of the same script: what was tried, and what came of it.
    """
    folder = find_named(run)
    if not is_run(folder):
        raise NotARunError(f"{run} is no run; torchdoctor runs lists those in ./torchdoctor-runs")
    if text:
        add_note(folder, " ".join(text))
        return
    for note in journal_of(folder):
        click.echo(clean(f"{note['when']}  {note['run']}  {note['text']}"))
