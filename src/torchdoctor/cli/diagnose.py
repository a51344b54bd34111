"""`torchdoctor diagnose PATH`: a verdict on a run that was recorded before. Never imports torch."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from torchdoctor.cli.choices import with_choices, write_flags
from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.cli.wishes import read_settings
from torchdoctor.engine import examine
from torchdoctor.findings import Severity, Verdict
from torchdoctor.report import json
from torchdoctor.report.formats import dump
from torchdoctor.report.terminal import print_verdict
from torchdoctor.shelf import resolve
from torchdoctor.store.reader import open_run

FAILED_STATUS = 3


@click.command("diagnose")
@click.argument("path", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--json", "json_file", metavar="FILE", help="Write the verdict as JSON; - is the standard output.")
@click.option(
    "--fail-on",
    type=click.Choice([s.value for s in Severity]),
    help=f"Exit with status {FAILED_STATUS} if a finding of this severity, or a graver one, stands.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no letter.")
@with_choices
def command(
    path: Path,
    json_file: str | None,
    fail_on: str | None,
    quiet: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    severity: tuple[str, ...],
    threshold: tuple[str, ...],
    config: str | None,
    form: str,
    output: str | None,
) -> None:
    """Examine a recorded run and say what is wrong with it.

    PATH is a run's folder, its name in ./torchdoctor-runs, or a folder of runs: then the newest is taken. Without PATH
    it is ./torchdoctor-runs.
    """
    settings = read_settings(config, select, ignore, severity, threshold, ())
    flags = write_flags(select, ignore, severity, threshold, config)
    directory, note = resolve(find_named(path))
    run = open_run(directory)
    verdict = examine(run, settings=settings)
    if note and not quiet:
        click.echo(f"torchdoctor: {note}", err=True)
    if not quiet:
        paper = sys.stderr if "-" in (json_file, output) else sys.stdout
        if form == "text" or output is not None:
            print_verdict(verdict, run, directory=directory, file=paper, settings=settings, flags=flags)
        else:
            paper.write(dump(form, verdict, run, directory, settings, flags))
    if json_file:
        json.write(verdict, json_file)
    if output:
        json.write_text(dump(form, verdict, run, directory, settings, flags), output)
    sys.exit(status(verdict, fail_on or settings.fail_on))


def status(verdict: Verdict, fail_on: str | None) -> int:
    """0, or FAILED_STATUS where a finding as grave as the user named stands."""
    if fail_on is None or verdict.worst is None:
        return 0
    return FAILED_STATUS if verdict.worst.at_least(Severity(fail_on)) else 0
