"""`torchdoctor diff GOOD BAD`: what differs between two runs, and from which step on. Never imports torch."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from torchdoctor.cli.names import find_named
from torchdoctor.cli.wishes import read_settings
from torchdoctor.compare import compare, with_baseline
from torchdoctor.engine import examine
from torchdoctor.findings import Severity
from torchdoctor.report import json
from torchdoctor.report.comparison import render
from torchdoctor.report.sheet import show
from torchdoctor.rules import find
from torchdoctor.shelf import resolve
from torchdoctor.store.reader import open_run


@click.command("diff")
@click.argument("good", type=click.Path(path_type=Path))
@click.argument("bad", type=click.Path(path_type=Path))
@click.option("--json", "json_file", metavar="FILE", help="Write the comparison as JSON; - is the standard output.")
@click.option("--quiet", "-q", is_flag=True, help="Print no table.")
def command(good: Path, bad: Path, json_file: str | None, quiet: bool) -> None:
    """Compare two runs: configuration, environment and signals.

    GOOD and BAD are runs' folders, or their names in ./torchdoctor-runs. The exit status is 0 whether or not they
    differ.
    """
    (good_folder, _), (bad_folder, _) = resolve(find_named(good)), resolve(find_named(bad))
    good_run, bad_run = open_run(good_folder), open_run(bad_folder)
    comparison = compare(good_run, bad_run, (str(good_folder), str(bad_folder)))
    rule = find("environment-differs")
    findings = examine(with_baseline(bad_run, comparison), [rule] if rule else []).findings
    settings = read_settings(None, (), (), (), (), ())
    known = {f.name for f in examine(good_run, settings=settings).findings}
    only_bad = [
        f
        for f in examine(bad_run, settings=settings).findings
        if f.severity is not Severity.INFO and f.name not in known
    ]
    if not quiet:
        show(render(comparison, findings, only_bad=only_bad), sys.stderr if json_file == "-" else sys.stdout)
    if json_file:
        json.write_text(json.encode(comparison.to_dict(findings, only_bad)), json_file)
