"""The command line: one file a command, each loaded when it is called, so that help comes at once."""

# ruff: noqa: E402

from __future__ import annotations

from torchdoctor.search_path import set_aside_own_folders

set_aside_own_folders()

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from torchdoctor import __version__
from torchdoctor.attach.bottom import Departure, depart
from torchdoctor.errors import TorchdoctorError

COMMANDS = {
    "run": "Run your training script as it is, and get a verdict.",
    "check": "Check your training script before hours are spent.",
    "lr": "Find the learning rate for your training script.",
    "overfit": "Can its model learn one batch by heart?",
    "clipping": "Where to clip its gradients.",
    "noise-scale": "Up to which batch size larger batches pay.",
    "sharpness": "How sharp the minimum is that its weights are in.",
    "landscape": "The loss around its weights, or between two checkpoints.",
    "probe": "Do its inputs say anything about its labels?",
    "weights": "How its weights are spread, layer by layer.",
    "gradients": "Its gradients, parameter by parameter.",
    "evaluate": "What its model gets right and wrong.",
    "preview": "Its batches as the model sees them, training beside validation.",
    "mistakes": "Its model's worst mistakes, to look at.",
    "attention": "Where its model attends, head by head.",
    "saliency": "What an answer of its model hangs on.",
    "demo": "See a small broken training diagnosed.",
    "top": "Watch a run in the terminal while it trains.",
    "diagnose": "A verdict on a run that was recorded before.",
    "report": "A run as one page to keep, mail or print.",
    "ui": "A live page over a folder of runs.",
    "lab": "Learn to read a training's signals by causing them.",
    "note": "Keep a journal with a run.",
    "replay": "Run a captured step again, every operation checked.",
    "explain": "What a diagnosis means, and how to fix it.",
    "diff": "What differs between two runs, and from which step on.",
    "skew": "Samples from use against what a run was trained on.",
    "seeds": "Run your script under several seeds: is the gain more than noise?",
    "runs": "List, show and remove recorded runs.",
}
"""Name to one line of help; the command itself is `command` in cli/NAME.py, or made from a table in instruments.py."""
INSTRUMENTS = frozenset(
    (
        *("lr", "overfit", "clipping", "noise-scale", "sharpness", "landscape", "probe", "weights", "gradients"),
        *("evaluate", "preview", "mistakes", "attention", "saliency"),
    )
)

USAGE_STATUS = 2


class Commands(click.Group):
    """Loads a command when it is asked for, suggests close names, and turns our errors into one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in INSTRUMENTS:
            made: click.Command = importlib.import_module("torchdoctor.cli.instruments").make_command(cmd_name)
            return made
        return importlib.import_module(f"torchdoctor.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            fail(unknown("command", name, COMMANDS, "torchdoctor --help lists them all", _script_hint(name)))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TorchdoctorError as error:
            fail(str(error))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="First steps: torchdoctor demo, then torchdoctor run train.py",
)
@click.version_option(__version__, message="torchdoctor %(version)s")
def group() -> None:
    """Tells you why your PyTorch training run fails, and shows the evidence."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """What `torchdoctor` runs: exits with 0, the script's own status, 2 for usage errors, or 3 by --fail-on."""
    departure = None
    try:
        group.main(args=arguments, prog_name="torchdoctor")
    except Departure as raised:
        departure = raised
    if departure is not None:
        depart(departure)
    sys.exit(0)


def fail(message: str) -> NoReturn:
    """One sentence on the standard error, status 2."""
    click.echo(f"torchdoctor: {message}", err=True)
    sys.exit(USAGE_STATUS)


def unknown(what: str, name: str, known: Sequence[str] | dict[str, str], way_out: str, hint: str = "") -> str:
    """The sentence for a name that there is not, with the close ones, unless a hint says what is meant."""
    close = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5) if not hint else []
    close += [k for k in known if name.lower() in k and k not in close][: 3 - len(close)]
    meant = f"; did you mean {' or '.join(close)}?" if close else f"; {hint or way_out}"
    return f"there is no {what} {name!r}{meant}{f' ({way_out})' if close else ''}"


OTHER_WORDS = {
    "compare": "diff",
    "train": "run",
    "watch": "top",
    "dashboard": "ui",
    "serve": "ui",
    "page": "report",
    "export": "report",
    "list": "runs",
    "show": "runs",
    "find-lr": "lr",
    "range-test": "lr",
    "lint": "check",
    "validate": "check",
    "preflight": "check",
    "help": "--help",
}
"""What people call a command elsewhere, and what it is called here."""


def _script_hint(name: str) -> str:
    if name.endswith(".py"):
        return f"to run a script: torchdoctor run {name}"
    meant = OTHER_WORDS.get(name.lower().replace("_", "-"), "")
    return f"that is torchdoctor {meant}" if meant else ""
