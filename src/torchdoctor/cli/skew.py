"""`torchdoctor skew RUN SAMPLES`: samples from use against what a run was trained on. Only .pt files need torch."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from torchdoctor.cli.diagnose import FAILED_STATUS, status
from torchdoctor.cli.names import find_named
from torchdoctor.cli.wishes import read_settings
from torchdoctor.engine import examine
from torchdoctor.findings import Severity
from torchdoctor.instruments.serving.skew import compare_samples, with_skew
from torchdoctor.report import json
from torchdoctor.report.text import clean_block
from torchdoctor.rules import find
from torchdoctor.shelf import resolve
from torchdoctor.store.reader import open_run

LIMIT = 100_000


@click.command("skew")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--key", metavar="NAME", help="Which array of a file that holds several.")
@click.option("--columns", metavar="A,B", multiple=True, help="Columns of a table that the model gets, in its order.")
@click.option("--drop", metavar="A,B", multiple=True, help="Columns of a table that the model does not get.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=LIMIT, help="Samples that are looked at.")
@click.option("--json", "json_file", metavar="FILE", help="Write the comparison as JSON; - is the standard output.")
@click.option(
    "--fail-on",
    type=click.Choice([s.value for s in Severity]),
    help=f"Exit with status {FAILED_STATUS} if a finding of this severity, or a graver one, stands.",
)
@click.option("--threshold", metavar="NAME.T=X", multiple=True, help="Set a threshold: training-serving-skew.far=0.5.")
@click.option("--config", metavar="FILE", help="Settings; by default the nearest pyproject.toml that has any.")
@click.option("--quiet", "-q", is_flag=True, help="Print no table.")
def command(
    run: Path,
    samples: Path,
    key: str | None,
    columns: tuple[str, ...],
    drop: tuple[str, ...],
    limit: int,
    json_file: str | None,
    fail_on: str | None,
    threshold: tuple[str, ...],
    config: str | None,
    quiet: bool,
) -> None:
    """Compare samples from use with the inputs that a run was trained on.

    RUN is a run's folder, or its name in ./torchdoctor-runs. SAMPLES is a file of what the model gets in use, after all
    preprocessing, a sample a row: .npy, .npz, .pt, .safetensors, .csv, .tsv or .parquet.
    """
    settings = read_settings(config, (), (), (), threshold, ())
    directory, note = resolve(find_named(run))
    recorded = open_run(directory)
    skew = compare_samples(recorded, samples, key=key, columns=_split(columns), drop=_split(drop), limit=limit)
    rule = find("training-serving-skew")
    verdict = examine(with_skew(recorded, skew), [rule] if rule else [], settings)
    silenced = skew.finding is not None and not verdict.findings
    notes = [*skew.notes, "settings leave out what was found"] if silenced else skew.notes
    skew = replace(skew, finding=next(iter(verdict.findings), None), notes=notes)
    if note and not quiet:
        click.echo(f"torchdoctor: {note}", err=True)
    if not quiet:
        click.echo(clean_block(str(skew)), file=sys.stderr if json_file == "-" else sys.stdout)
    if json_file:
        json.write_text(json.encode(verdict.to_dict() | {"skew": skew.to_dict()}), json_file)
    sys.exit(status(verdict, fail_on or settings.fail_on))


def _split(given: tuple[str, ...]) -> list[str] | None:
    """Names, several of which may be joined by commas."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()] or None
