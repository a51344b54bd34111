"""`torchdoctor ui [DIR]`: a live page over a folder of runs. Never imports torch."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.cli.serving import serve_pages, serving_options
from torchdoctor.errors import UsageError


@click.command("ui")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=FOLDER)
@serving_options
def command(folder: Path, port: int, host: str, no_browser: bool) -> None:
    """Look at a folder of runs in the browser, live.

    DIR is a folder of runs, by default ./torchdoctor-runs, or one run: then its page is opened. The page is for this
    computer only and for whoever has the token in the address. It reads the files of the runs and touches no training.
    """
    from torchdoctor.shelf import is_run
    from torchdoctor.ui.library import key_of

    folder, start = find_named(folder), "/"
    if is_run(folder):
        folder, start = folder.resolve().parent, f"/run/{quote(key_of(folder.resolve().name), safe='')}"
    elif not folder.is_dir():
        raise UsageError(
            f"there is no folder {folder}; torchdoctor run train.py makes ./{FOLDER}, or name another. "
            "torchdoctor lab needs no run"
        )
    serve_pages("ui", folder, start, port, host, no_browser)
