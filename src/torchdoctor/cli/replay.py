"""torchdoctor replay: a captured step run again in a fresh process, and the way from its first NaN to the loss."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.facts import BirthFact
from torchdoctor.report import json
from torchdoctor.report.replayed import birth_rows, compare_words, conclude
from torchdoctor.report.text import clean
from torchdoctor.scrubbing import scrub_argv, scrub_text
from torchdoctor.shelf import resolve
from torchdoctor.store.replays import Replayed, keep_replay

if TYPE_CHECKING:
    from torchdoctor.experiments.recorded_script import RecordedScript
    from torchdoctor.experiments.replay import Replay

NOT_REPLAYED = 1
WORDS_KEY = "torchdoctor.command"


class ReplayCommand(click.Command):
    """What follows `--` is the script and its arguments."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "RUN", "[-- SCRIPT ARGUMENTS...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[WORDS_KEY] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


@click.command(cls=ReplayCommand)
@click.argument("run", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--step", type=click.IntRange(0), metavar="N", help="Which capture; the first failure by default.")
@click.option("--with", "changes", multiple=True, metavar="CHANGE", help="lr=0.1x, lr=0.001, clip=1.0 or fp32.")
@click.option("--step-fn", metavar="FILE:FUNCTION", help="Call this with the captured step instead of a script.")
@click.option("--from-start", is_flag=True, help="Let the script run up to the step by itself.")
@click.option(
    "--yes", is_flag=True, help="Start the script that the run names even if it, or what it imports, has changed."
)
@click.option("--json", "json_file", metavar="FILE", help="Write what was found as JSON, too.")
@click.option("--log", type=click.Path(path_type=Path), metavar="FILE", help="Keep what the script prints.")
@click.pass_context
def command(
    ctx: click.Context,
    run: Path,
    step: int | None,
    changes: tuple[str, ...],
    step_fn: str | None,
    from_start: bool,
    yes: bool,
    json_file: str | None,
    log: Path | None,
) -> None:
    """Run a captured step again in a fresh process, with every operation checked.

    It starts the script that recorded RUN (or the one after --) from its beginning, puts it into the captured state,
    and lets its own loop run the step. It asks first where that script, or a file that it imported, has changed, and
    where somebody else may have recorded RUN. --with sees whether the failure goes away under a change. What came of it
    is kept with the run, and its page and report show it.
    """
    from torchdoctor.console import Console
    from torchdoctor.experiments.changes import read_changes
    from torchdoctor.experiments.replay import replay

    wanted = read_changes(changes)
    directory, note = resolve(find_named(run))
    if note:
        click.echo(f"torchdoctor: {note}", err=True)
    with tempfile.TemporaryDirectory() as scratch:
        kept = log or Path(scratch) / "log.txt"
        status = Console(stderr=True).status("the script runs again ...")

        def approve(script: RecordedScript) -> bool:
            status.stop()
            agreed = yes or _ask(directory, script)
            status.start()
            return agreed

        with status:
            found = replay(directory, step, wanted, ctx.meta[WORDS_KEY], kept, step_fn, from_start, approve)
        tail = kept.read_text(errors="replace").splitlines()[-8:] if found.reason and kept.is_file() else []
    _keep(directory, found)
    show(render(found, tail), sys.stderr if json_file == "-" else sys.stdout)
    if json_file:
        json.write_text(json.encode(found.to_dict()), json_file)
    sys.exit(0 if found.birth is not None or found.gone or found.raised is not None else NOT_REPLAYED)


def _ask(directory: Path, script: RecordedScript) -> bool:
    """Only of somebody who sits at the terminal; an answer that is piped in was not given to this question."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    click.echo(f"torchdoctor: {clean(directory)} asks to start", err=True)
    click.echo(f"  {clean(script.words)}\n  in {clean(script.folder)}", err=True)
    for doubt in script.doubts:
        click.echo(f"  {clean(doubt)}", err=True)
    return click.confirm("Start it?", default=False, err=True)


def show(lines: Iterable[str], paper: TextIO) -> None:
    for line in lines:
        print(line, file=paper)


def render(found: Replay, tail: list[str]) -> Iterator[str]:
    """What came of it, a line each."""
    under = f" with {found.changes.words}" if found.changes.words else ""
    yield f"step {found.step} of {clean(' '.join(found.command))}, run again{under}"
    for name in found.changed_sources:
        yield f"  note: {clean(name)} has changed since the capture"
    if found.processes > 1:
        yield f"  note: {found.processes} processes trained together; this is rank {found.rank}, alone"
    if found.from_step is not None and found.by_function:
        yield f"  note: the captured state is that before step {found.from_step}, the batch that of step {found.step}"
    elif found.from_step is not None:
        count = found.step - found.from_step + 1
        yield f"  from the state before step {found.from_step}, {count} step{'s' if count > 1 else ''}"
    if found.from_start:
        yield "  the script ran up to the step by itself"
    if found.late:
        yield f"  note: the failure was known {found.late} steps later, and the captured state is from then"
    told = summarise(found)
    yield ""
    if found.birth is None or found.gone:
        yield f"  {conclude(told)}"
        if found.birth is None and not found.gone and found.failed_at is None and found.raised is None:
            yield from (f"  | {clean(line)}" for line in tail)
        return
    if found.failed_at is not None or found.failed_step not in (None, found.step):
        yield f"  {conclude(told)}"
    yield from _birth(found.birth)
    yield ""
    yield f"  {compare_words(told)}"
    if found.diagnosis is not None:
        yield ""
        yield f"  diagnosis   {clean(found.diagnosis.name)} ({found.diagnosis.code}): {clean(found.diagnosis.title)}"
        yield f"  fix         {clean(found.diagnosis.fix.text)}"
        yield f"  read more   torchdoctor explain {clean(found.diagnosis.name)}"


def _birth(birth: BirthFact) -> Iterator[str]:
    for label, lines in birth_rows(birth):
        for number, text in enumerate(lines):
            arrow = "-> " if number and label == "the way" else ""
            yield f"  {label if not number else '':11} {arrow}{text}"


def summarise(found: Replay) -> Replayed:
    """What is kept of it with the run."""
    diagnosis = found.diagnosis
    return Replayed(
        when=time.time(),
        step=found.step,
        capture=found.capture.name,
        command=scrub_argv(found.command),
        change=found.changes.words,
        gone=found.gone,
        passed=found.passed,
        failed_at=found.failed_at,
        failed_step=found.failed_step,
        from_step=found.from_step,
        from_start=found.from_start,
        raised=_scrub(found.raised),
        reason=_scrub(found.reason),
        compared=found.recorded is not None,
        differs=list(found.differs),
        losses=len(found.losses),
        apart=found.apart,
        changed_sources=list(found.changed_sources),
        diagnosis=diagnosis.name if diagnosis is not None else "",
        diagnosis_title=scrub_text(diagnosis.title) if diagnosis is not None else "",
        birth=found.birth,
    )


def _scrub(text: str | None) -> str | None:
    """An exception may quote a URL with its login."""
    return scrub_text(text) if text is not None else None


def _keep(directory: Path, found: Replay) -> None:
    """With the run, for its page and report; a run that cannot be written to is replayed all the same."""
    try:
        keep_replay(directory, summarise(found))
    except OSError as error:
        click.echo(f"torchdoctor: not kept with the run: {error.strerror or error}", err=True)
