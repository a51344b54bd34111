"""torchdoctor check: what can be known to be wrong before hours are spent."""

from __future__ import annotations

import json
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from torchdoctor.attach.target import COMMAND, FILE, Target, read_target
from torchdoctor.cli.names import FOLDER
from torchdoctor.cli.run import WORDS_KEY, RunCommand
from torchdoctor.cli.running import FOUND_STATUS
from torchdoctor.cli.wishes import check_output, read_severity
from torchdoctor.errors import ScriptError, UsageError
from torchdoctor.findings import Severity
from torchdoctor.opening import absolute

FAIL_ON = "warning"


class CheckCommand(RunCommand):
    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "SCRIPT | -m MODULE", "[ARGUMENTS]..."]


@click.command(cls=CheckCommand)
@click.option("--quick", is_flag=True, help="Ten seconds instead of a minute: leave out what trains.")
@click.option("--only", metavar="NAME", multiple=True, help="Make this check only; may be repeated.")
@click.option("--list", "listed", is_flag=True, help="List the checks, and make none.")
@click.option("--json", "json_file", metavar="FILE", help="Write what was found as JSON, too.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Keep the outcome there, for the pages of runs; without it in ./{FOLDER}, where that is there already.",
)
@click.option(
    "--fail-on", metavar="SEVERITY", default=FAIL_ON, show_default=True, help="Exit with 3 on such a failure."
)
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(1), default=600.0, show_default=True, help="At most."
)
@click.pass_context
def command(
    ctx: click.Context,
    quick: bool,
    only: tuple[str, ...],
    listed: bool,
    json_file: str | None,
    out: Path | None,
    fail_on: str,
    timeout: float,
) -> None:
    """Check your training script before hours are spent.

    A copy of it runs for seconds; then its loop is taken over and every check is made on its own model, data and loss.
    What it writes from Python is thrown away, and its folders stay as they are.
    """
    if listed:
        _list(quick, only)
        return
    words, _ = ctx.meta[WORDS_KEY]
    if not words:
        raise UsageError("which script? torchdoctor check train.py ...")
    target = read_target(words)
    if target.kind == COMMAND:
        raise ScriptError("check takes a python script or -m MODULE, not a command")
    if only:
        from torchdoctor.checks.performing import choose

        choose(quick, only)  # a wrong name is refused before the script starts
    severity = read_severity(fail_on)
    output = check_output(json_file, "--json") if json_file else None

    from torchdoctor.checks.checking import Request, check_script
    from torchdoctor.report.checklist import CheckingProgress, ChecklistSheet, shortfall

    with CheckingProgress() as progress:
        report = check_script(Request(target, only, quick, timeout), progress.tell)
    findings = report.findings
    sheet = ChecklistSheet(
        shlex.join(target.words),
        report.steps,
        report.checks,
        [f for f in findings if f["name"] not in {c["diagnosis"] for c in report.checks}],
        report.bottleneck,
        report.problem,
        report.output,
        report.cut_short,
    )
    sheet.print()
    if output is not None:
        _write(output, report, findings)
    if not only and (out is not None or FOLDER.is_dir()):
        _keep(out or FOLDER, target, report, quick)
    found = [f["severity"] for f in findings] + [c["severity"] for c in report.checks if c["passed"] is False]
    if severity is not None and any(Severity(s).at_least(severity) for s in found):
        sys.exit(FOUND_STATUS)
    if report.problem or shortfall(report.checks, report.cut_short):
        sys.exit(1)


def _list(quick: bool, only: tuple[str, ...]) -> None:
    from torchdoctor.checks.performing import choose

    for loaded in choose(quick, only):
        click.echo(f"{loaded.check.name:24} {loaded.check.asks}")


def _write(path: Path, report: Any, findings: list[dict[str, Any]]) -> None:
    from torchdoctor.report.checklist import shortfall

    verdict = report.verdict or {"schema": 1, "run": {}, "ruled_out": [], "not_examined": []}
    told = {**verdict, "findings": findings, "checks": report.checks, "bottleneck": report.bottleneck}
    problem = report.problem or shortfall(report.checks, report.cut_short)
    told |= {"problem": problem} if problem else {}
    path.write_text(json.dumps(told, indent=2) + "\n")


def _keep(runs: Path, target: Target, report: Any, quick: bool) -> None:
    """For the pages of this script's runs. One of chosen names is not kept: it stands for no check of the script."""
    from torchdoctor.report.checklist import shortfall
    from torchdoctor.scrubbing import scrub_argv, scrub_text
    from torchdoctor.store.checked import Checked, Made, keep_check, script_of
    from torchdoctor.store.environment import digest_script, without_home

    known = script_of((report.verdict or {}).get("run") or {})
    script = without_home(absolute(target.what)) if target.kind == FILE else known
    names = {check["diagnosis"] for check in report.checks}
    fields = tuple(Made.__dataclass_fields__)
    problem = report.problem or shortfall(report.checks, report.cut_short)
    made = [Made(**{name: check[name] for name in fields}) for check in report.checks]
    checked = Checked(
        when=time.time(),
        script=script,
        digest=digest_script(Path(script).expanduser()),
        command=scrub_argv(target.words),
        quick=quick,
        problem=scrub_text(problem) if problem else None,  # an exception may quote a URL with its login
        checks=[replace(check, text=scrub_text(check.text)) for check in made],
        faults=[scrub_text(finding["title"]) for finding in report.findings if finding["name"] not in names],
    )
    try:
        keep_check(runs, checked)
    except OSError as error:
        click.echo(f"torchdoctor: the outcome was not kept: {error.strerror or error}", err=True)
