"""`torchdoctor ui [DIR]`: a live page over a folder of runs. Never imports torch."""

from __future__ import annotations

import threading
from pathlib import Path
from urllib.parse import quote

import click

from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.errors import UsageError

HOST = "127.0.0.1"


@click.command("ui")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="By default any that is free.")
@click.option("--host", default=HOST, show_default=True, help="Another address shows the page to other computers.")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
def command(folder: Path, port: int, host: str, no_browser: bool) -> None:
    """Look at a folder of runs in the browser, live.

    DIR is a folder of runs, by default ./torchdoctor-runs, or one run: then its page is opened. The page is for this
    computer only and for whoever has the token in the address. It reads the files of the runs and touches no training.
    """
    from torchdoctor.cli.wishes import read_settings
    from torchdoctor.shelf import is_run
    from torchdoctor.ui.guard import is_loopback
    from torchdoctor.ui.library import key_of
    from torchdoctor.ui.server import serve

    folder, start = find_named(folder), "/"
    if is_run(folder):
        folder, start = folder.resolve().parent, f"/run/{quote(key_of(folder.resolve().name), safe='')}"
    elif not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; torchdoctor run train.py makes ./{FOLDER}, or name another")
    if not is_loopback(host):
        click.echo(
            f"torchdoctor: with --host {host} other computers reach this page. Whoever has the address below, token "
            "and all, sees your runs, their source lines and their journals, and can add notes; nothing is encrypted. "
            "On a network that you do not trust, use ssh -L instead.",
            err=True,
        )

    def announce(url: str) -> None:
        click.echo(f"torchdoctor ui: {url}", err=True)
        click.echo("Ctrl-C ends it; trainings go on without it.", err=True)
        if not no_browser:
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()

    settings = read_settings(None, (), (), (), (), ())
    try:
        serve(folder, settings, host, port, start, announce)
    except KeyboardInterrupt:
        click.echo("", err=True)


def _open_browser(url: str) -> None:
    """In a thread: some browsers return when they are closed."""
    import webbrowser

    webbrowser.open(url)
