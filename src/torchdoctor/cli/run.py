"""torchdoctor run: the user's own script, as it is, and a verdict at the end.

What the script does, prints and returns is its own; our words go to the standard error. Until the script imports
torch, nothing is imported here that could change what it does: no torch, no numpy, no rich.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from torchdoctor.attach.bottom import Departure
from torchdoctor.attach.options import RUNS_FOLDER, Options, is_disabled
from torchdoctor.attach.ranks import make_name, speaks
from torchdoctor.attach.script import Around, conclude, die_by
from torchdoctor.attach.target import read_target
from torchdoctor.cli import USAGE_STATUS, fail
from torchdoctor.cli.choices import with_choices, write_flags
from torchdoctor.cli.running import Request, perform
from torchdoctor.cli.wishes import (
    check_folder,
    find_obstacle,
    name_output,
    prove_recordable,
    read_names,
    read_run_name,
    read_settings,
    read_severity,
    read_view_rows,
)
from torchdoctor.errors import TorchdoctorError
from torchdoctor.opening import absolute

WORDS_KEY = "torchdoctor.words"


class RunCommand(click.Command):
    """Its own options end where the script begins; everything after that is the script's."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "SCRIPT | -m MODULE | -c CODE | -- COMMAND", "[ARGUMENTS]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, words, after_dashes = self._split(args)
        ctx.meta[WORDS_KEY] = (words, after_dashes)
        return super().parse_args(ctx, ours)

    def _split(self, args: Sequence[str]) -> tuple[list[str], list[str], bool]:
        options = [p for p in self.params if isinstance(p, click.Option)]
        valued = {name for option in options if not option.is_flag for name in option.opts}
        i = 0
        while i < len(args):
            word = args[i]
            if word == "--":
                return list(args[:i]), list(args[i + 1 :]), True
            if word == "-" or not word.startswith("-") or word[:2] in ("-m", "-c"):
                return list(args[:i]), list(args[i:]), False
            i += 2 if word in valued else 1
        return list(args), [], False


@click.command(
    cls=RunCommand,
    epilog="Under torchrun: torchrun ... -m torchdoctor run train.py, or torchdoctor run -- torchrun ... train.py. "
    "TORCHDOCTOR_DISABLE=1 runs the script as if torchdoctor were not there.",
)
@click.option("--out", metavar="DIR", default=RUNS_FOLDER, show_default=True, help="Folder that runs go to.")
@click.option("--name", metavar="NAME", help="The run's name in it; by default the script's and the time.")
@click.option("--require-recording", is_flag=True, help="Do not start the script if its run cannot be recorded.")
@click.option("--json", "json_file", metavar="FILE", help="Write the verdict as JSON, too.")
@click.option("--quiet", is_flag=True, help="Say one line if something is wrong, else nothing.")
@click.option("--live", is_flag=True, help="Watch it train: a view in this terminal, a live page, findings.")
@click.option("--view-rows", metavar="N", type=click.IntRange(0), help="Rows of that view; half by default, 0: none.")
@click.option("--fail-on", metavar="SEVERITY", help="Exit with 3 on a finding: error, warning or info.")
@click.option("--stop-on", metavar="NAME", multiple=True, help="End the run on this diagnosis; may be repeated.")
@click.option("--overhead", metavar="X", type=float, help="Share of time for measuring; 0.01 by default.")
@click.option("--modules", metavar="GLOB", multiple=True, help="Measure these modules only; may be repeated.")
@click.option("--every-step", is_flag=True, help="Take every signal on every step, whatever it costs.")
@click.option("--capture", metavar="WHEN", help="Write failing steps: nonfinite,exception by default; spike; none.")
@click.option("--capture-limit", metavar="SIZE", help="Most that one capture takes; 2GiB by default.")
@click.option("--keep-captures", metavar="N", type=click.IntRange(1), help="How many captures stay; 5 by default.")
@click.option("--on-nonfinite", metavar="MODE", help="NaN or Inf in a step: report (default), skip, halt, rollback.")
@click.option("--rollback-limit", metavar="SIZE", help="Most memory for a rollback's snapshot; 2GiB by default.")
@with_choices
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run your training script as it is, and get a verdict.

    The script keeps its arguments, its output and its exit status, also where it cannot be recorded.
    """
    try:
        words, after_dashes = ctx.meta[WORDS_KEY]
        request = read_request(words, after_dashes, **given)
        steps = _say_errors(perform(request))
        program = next(steps)
    except TorchdoctorError:
        if speaks():
            raise
        sys.exit(USAGE_STATUS)
    except KeyboardInterrupt:  # before the script begins: it ends as python would, and click does not
        die_by(signal.SIGINT, os.getpid())
        raise
    raise Departure(program, steps)


def _say_errors(steps: Around[int]) -> Around[int]:
    """Until the program runs, errors are the command line's to say; from then on ours."""
    error = yield next(steps)
    try:
        return conclude(steps, error)
    except TorchdoctorError as problem:
        if speaks():
            fail(str(problem))
        return USAGE_STATUS


def read_request(
    words: Sequence[str],
    after_dashes: bool,
    *,
    out: str,
    name: str | None,
    json_file: str | None,
    require_recording: bool = False,
    quiet: bool,
    live: bool,
    view_rows: int | None = None,
    fail_on: str | None,
    stop_on: Sequence[str],
    overhead: float | None,
    modules: Sequence[str],
    every_step: bool,
    capture: str | None = None,
    capture_limit: str | None = None,
    keep_captures: int | None = None,
    on_nonfinite: str | None = None,
    rollback_limit: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    severity: Sequence[str] = (),
    threshold: Sequence[str] = (),
    config: str | None = None,
    form: str = "text",
    output: str | None = None,
) -> Request:
    """Check everything the user asked for before the script starts; UsageError says what is wrong with it."""
    target = read_target(words, after_dashes=after_dashes)
    settings = read_settings(config, select, ignore, severity, threshold, target.source_folders)
    folder = absolute(out)
    options = Options(
        prints=True,
        out=str(folder),
        name=read_run_name(name) if name is not None else make_name(target.stem),
        overhead=overhead,
        modules=tuple(modules) or ("*",),
        every_step=every_step,
        live=live,
        stop_on=read_names(stop_on),
        settings=settings.to_dict(),
        **settings.captures.over(capture, capture_limit, keep_captures, "--capture-limit"),
        **settings.remedy.over(on_nonfinite, rollback_limit, "--rollback-limit"),
    )
    if require_recording and not is_disabled():
        prove_recordable(check_folder(folder) / (options.name or ""))
    return Request(
        target=target,
        options=options,
        obstacle=find_obstacle(folder),
        json=name_output(json_file, "--json") if json_file is not None else None,
        quiet=quiet,
        view_rows=read_view_rows(view_rows, live),
        fail_on=read_severity(fail_on if fail_on is not None else settings.fail_on),
        form=form,
        flags=write_flags(select, ignore, severity, threshold, config),
        output=name_output(output, "--output") if output is not None else None,
    )
