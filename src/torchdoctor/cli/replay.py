"""torchdoctor replay: a captured step run again in a fresh process, and the way from its first NaN to the loss."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.facts import BirthFact
from torchdoctor.report import json
from torchdoctor.report.text import clean
from torchdoctor.rules import births
from torchdoctor.shelf import resolve

if TYPE_CHECKING:
    from torchdoctor.experiments.replay import Replay

NOT_REPLAYED = 1
CHAIN_BEGINNING, CHAIN_END = 8, 3
"""Links of the way from the birth to the loss that are printed; the JSON has them all."""
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
    json_file: str | None,
    log: Path | None,
) -> None:
    """Run a captured step again in a fresh process, with every operation checked.

    It starts the script that recorded RUN (or the one after --) from its beginning, puts it into the captured state,
    and lets its own loop run the step. --with sees whether the failure goes away under a change.
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
        with Console(stderr=True).status("the script runs again ..."):
            found = replay(directory, step, wanted, ctx.meta[WORDS_KEY], kept, step_fn, from_start)
        tail = kept.read_text(errors="replace").splitlines()[-8:] if found.reason and kept.is_file() else []
    show(render(found, tail), sys.stderr if json_file == "-" else sys.stdout)
    if json_file:
        json.write_text(json.encode(found.to_dict()), json_file)
    sys.exit(0 if found.birth is not None or found.gone or found.raised is not None else NOT_REPLAYED)


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
    yield ""
    if found.gone:
        past = f": no NaN or Inf in {found.passed:,} updates" if found.passed else ""
        yield f"  The failure is gone{past}."
        return
    if found.birth is None and found.failed_at is not None:
        yield f"  It fails all the same, at step {found.failed_at}."
        return
    if found.birth is None and found.raised is not None:
        yield f"  It fails again as it did: {clean(found.raised)}."
        return
    if found.birth is None:
        yield f"  It did not fail again: {clean(found.reason or 'nothing was reported')}."
        yield from (f"  | {clean(line)}" for line in tail)
        return
    if found.failed_at is not None:
        yield f"  It fails all the same, at step {found.failed_at}."
    if found.failed_step not in (None, found.step):
        yield f"  It was step {found.failed_step} that broke; it showed at step {found.step}."
    yield from _birth(found.birth)
    yield ""
    yield f"  {_agreement(found)}"
    if found.diagnosis is not None:
        yield ""
        yield f"  diagnosis   {clean(found.diagnosis.name)} ({found.diagnosis.code}): {clean(found.diagnosis.title)}"
        yield f"  fix         {clean(found.diagnosis.fix.text)}"
        yield f"  read more   torchdoctor explain {clean(found.diagnosis.name)}"


def _birth(birth: BirthFact) -> Iterator[str]:
    yield f"  born        {clean(births.words(birth))}"
    if birth.code:
        yield f"              {clean(birth.code)}"
    for number, (low, high) in enumerate(birth.inputs):
        shape = "x".join(map(str, birth.shapes[number])) or "a number"
        yield f"  went in     {shape}, from {_figure(low)} to {_figure(high)}"
    yield f"  came out    {birth.count:,} of {birth.total:,} values are not finite ({birth.dtype})"
    if birth.samples:
        yield f"  samples     {', '.join(map(str, birth.samples))} of the batch"
    for number, link in enumerate(_shortened(birth.chain)):
        yield f"  {'the way' if not number else '':11} {'-> ' if number else ''}{clean(link)}"
    yield f"  noticed in  {'the loss' if birth.noticed == 'loss' else f'the gradient of {clean(birth.noticed)}'}"


def _shortened(chain: list[str]) -> list[str]:
    """A recurrence goes the same way many times over."""
    if len(chain) <= CHAIN_BEGINNING + CHAIN_END + 1:
        return chain
    left_out = len(chain) - CHAIN_BEGINNING - CHAIN_END
    return [*chain[:CHAIN_BEGINNING], f"... {left_out} more operations ...", *chain[-CHAIN_END:]]


def _figure(value: float | None) -> str:
    return "NaN or Inf" if value is None else f"{value:.6g}"


def _agreement(found: Replay) -> str:
    if found.losses and found.recorded is None:
        one = len(found.losses) == 1
        steps = "The loss of the step before it" if one else f"The losses of the {len(found.losses)} steps before it"
        if not found.apart:
            return f"{steps} {'is' if one else 'are'} the same to the bit as in the run."
        return f"{steps} agree{'s' if one else ''} with the run's to {found.apart:.1g} of the size, not to the bit."
    if found.recorded is None:
        return "The run itself did not find the birth, so there is nothing to compare with."
    if not found.differs:
        return "The same to the bit as in the run: operation, values, samples and counts."
    return f"Not the same to the bit as in the run: {', '.join(found.differs)} differ."
