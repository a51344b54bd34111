"""`torchdoctor lab [STATION]`: small experiments to learn to read a training's signals. Never imports torch itself."""

from __future__ import annotations

from pathlib import Path

import click

from torchdoctor.cli import unknown
from torchdoctor.cli.names import FOLDER
from torchdoctor.cli.serving import serve_pages, serving_options
from torchdoctor.errors import UnknownNameError


@click.command("lab")
@click.argument("room", metavar="[STATION]", default="")
@click.option(
    "--runs", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Recorded runs to try things on."
)
@serving_options
def command(room: str, runs: Path, port: int, host: str, no_browser: bool) -> None:
    """Learn to read a training's signals by causing them: a page in the browser.

    STATION opens one of them at once, such as gradient-health. Whatever you choose is computed for real, in a process
    of its own. Needs no run.
    """
    from torchdoctor.ui.lab import ROOMS

    names = [each.name for each in ROOMS]
    if room and room not in names:
        raise UnknownNameError(unknown("station", room, names, f"there are {', '.join(names)}"))
    serve_pages("lab", runs, f"/lab/{room}" if room else "/lab", port, host, no_browser)
