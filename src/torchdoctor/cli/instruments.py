"""torchdoctor lr, overfit, clipping and the like: an instrument on a training script as it is.

A copy of the script runs its first steps; then its loop is taken over, and gives the loss of any batch.
"""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchdoctor.attach.target import COMMAND, Target, read_target
from torchdoctor.cli.check import CheckCommand
from torchdoctor.cli.instrument_options import INSTRUMENTS, Instrument, check_options
from torchdoctor.cli.run import WORDS_KEY
from torchdoctor.cli.running import FOUND_STATUS
from torchdoctor.cli.wishes import check_output, check_page
from torchdoctor.errors import ScriptError, UsageError
from torchdoctor.opening import absolute
from torchdoctor.takeover.process import OVER

if TYPE_CHECKING:
    from torchdoctor.takeover.measuring import Measurement

PROBLEM_STATUS = 1


def make_command(name: str) -> click.Command:
    instrument = INSTRUMENTS[name]
    common = [
        click.Option(["--json", "json_file"], metavar="FILE", help="Write the result as JSON, too."),
        click.Option(["--plot", "plot_file"], metavar="FILE", help=f"Write the picture as a page: {name}.html."),
        click.Option(
            ["--timeout"],
            metavar="SECONDS",
            type=click.FloatRange(1),
            default=600.0,
            show_default=True,
            help="The most that it may take.",
        ),
    ]
    weights = click.Option(["--checkpoint"], metavar="FILE", help="Load these weights into the script's model first.")
    return CheckCommand(
        name,
        params=[*instrument.options, *([weights] if instrument.checkpoint else []), *common],
        callback=partial(perform, name),
        help=instrument.text,
        epilog="A copy of the script runs for seconds, and its loop is taken over. What it writes from Python is "
        "thrown away. Options after the script are the script's own.",
    )


def perform(
    name: str,
    /,
    *,
    json_file: str | None,
    plot_file: str | None,
    timeout: float,
    checkpoint: str | None = None,
    **options: Any,
) -> None:
    from torchdoctor.report.json import encode, write_text
    from torchdoctor.report.text import clean_block
    from torchdoctor.takeover.measuring import Request, measure_script

    target = _read_script(name)
    check_options(name, options)
    if json_file not in (None, "-"):
        check_output(json_file, "--json")
    page = check_page(plot_file) if plot_file is not None else None
    if options.get("to") is not None:
        options["to"] = _check_file(options["to"], "--to")
    if checkpoint is not None:
        checkpoint = _check_file(checkpoint, "--checkpoint")
    request = Request(target, name, options, checkpoint, page is not None, timeout)
    with MeasuringProgress() as progress:
        found = measure_script(request, progress.tell)
    if json_file is not None:
        write_text(encode(_told(name, target, found)), json_file)
    if found.text is None:
        _complain(name, target, found)
        sys.exit(PROBLEM_STATUS)
    tell = partial(click.echo, err=json_file == "-")
    tell(clean_block(f"{write_subject(target, found.subject or {})}\n\n{found.text}") + "\n")
    if page is not None and found.figure is not None:
        _draw(page, found.figure)
        tell(f"picture: {plot_file}")
    else:
        words = sys.argv[2:] if sys.argv[1:2] == [name] else target.words  # with the options that were given
        tell(f"its picture: torchdoctor {name} --plot {name}.html {shlex.join(words)}")
    failed = INSTRUMENTS[name].failed
    if failed is not None and found.result.get(failed) is False:
        sys.exit(FOUND_STATUS)


def write_subject(target: Target, subject: dict[str, Any]) -> str:
    """What stands above the result: what was measured."""
    origin = f"from {Path(subject['checkpoint']).name}" if subject["checkpoint"] else "as the script starts them"
    parts = [f"{subject['model']} ({subject['parameters']:,} parameters, {origin})"]
    if subject["first_loss"] is not None:
        of = f" of {subject['batch']}" if subject["batch"] else ""
        parts.append(f"{subject['loss'] or 'a loss of its own'} {subject['first_loss']:.4g} on the first batch{of}")
    if subject["accumulation"] > 1:
        parts.append(f"{subject['accumulation']} batches an update")
    rates = dict.fromkeys(f"{rate:.3g}" for rate in subject["lr"])
    parts.append(f"{subject['optimizer']} at {', '.join(list(rates)[:4])}{', ...' if len(rates) > 4 else ''}")
    if subject["clipping"]:
        parts.append(f"clipped at {subject['clipping']:g}")
    return "\n".join([f"{Path(target.what).name}: {'; '.join(parts)}", *(f"note: {n}" for n in subject["notes"])])


def _read_script(name: str) -> Target:
    words, _ = click.get_current_context().meta[WORDS_KEY]
    if not words:
        raise UsageError(f"which script? torchdoctor {name} train.py ...")
    target = read_target(words)
    if target.kind == COMMAND:
        raise ScriptError(f"{name} takes a python script or -m MODULE, not a command")
    return target


def _check_file(text: str, option: str) -> str:
    path = absolute(text)
    if not path.is_file():
        raise UsageError(f"{option}: there is no file {path}")
    return str(path)


def _told(name: str, target: Target, found: Measurement) -> dict[str, Any]:
    told = {"schema": 1, "instrument": name, "script": shlex.join(target.words), "subject": found.subject}
    return told | ({"problem": found.problem} if found.text is None else {"text": found.text, "result": found.result})


def _draw(page: Path, figure: str) -> None:
    from plotly import io

    from torchdoctor.plots.offline import to_html

    page.write_text(to_html(io.from_json(figure)))


def _complain(name: str, target: Target, found: Measurement) -> None:
    instrument = INSTRUMENTS[name]
    why = (found.problem or "").rstrip(".")
    lines = [f"torchdoctor {name}: nothing could be measured: {why}{'' if why.endswith('?') else '.'}"]
    lines += [f"    {line}" for line in found.output.splitlines()[-12:]]
    lines += _ways_out(name, instrument, target, found)
    click.echo("\n".join(lines), err=True)


def _ways_out(name: str, instrument: Instrument, target: Target, found: Measurement) -> list[str]:
    ours = {flag for param in make_command(name).params for flag in param.opts}
    late = next((word for word in target.arguments if word.partition("=")[0] in ours), None)
    if found.why_not is not None:
        return [
            "Use it from code, in the script, once its parts are made; it leaves them as they were:",
            f"    import torchdoctor\n    print({instrument.call})",
            "A list of batches will do for a loader. Where a batch is not (inputs, target), hand over",
            "step_fn=lambda model, batch: ... in place of loss_fn, which gives the loss of one.",
        ]
    if found.over == OVER:
        return [f"Let the script train for longer{f', or ask for less: {instrument.less}' * bool(instrument.less)}"]
    if found.over is not None and instrument.nearer:
        return [f"If the script stops at such losses by itself, go less far: {instrument.nearer}"]
    if late is not None and found.output:
        return [f"{late} was handed to the script. Options of torchdoctor stand before it."]
    return []


class MeasuringProgress:
    """On a terminal: what is going on, and how far it is."""

    def __init__(self) -> None:
        from torchdoctor.console import (
            BarColumn,
            Console,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(stderr=True, highlight=False, markup=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._bar.disable = not console.is_terminal
        self._task = self._bar.add_task("the script runs its first steps", total=None)

    def __enter__(self) -> MeasuringProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, line: dict[str, Any]) -> None:
        if "doing" in line:
            self._bar.update(self._task, description=line["doing"], total=line["total"], completed=line["parts"])
