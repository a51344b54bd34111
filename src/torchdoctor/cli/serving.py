"""What `ui` and `lab` share: the options of a local page, and the server behind it. Never imports torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

HOST = "127.0.0.1"
ELSEWHERE = (
    "torchdoctor: with --host {host} other computers reach this page. Whoever has the address below, token and all, "
    "sees your runs, their source lines and their journals, and can add notes and use the lab; nothing is encrypted. "
    "On a network that you do not trust, use a tunnel with one port at both ends instead: ssh -L PORT:localhost:PORT"
)


def serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--port, --host and --no-browser."""
    for option in (
        click.option("--no-browser", is_flag=True, help="Print the address only."),
        click.option(
            "--host", default=HOST, show_default=True, help="Another address shows the page to other computers."
        ),
        click.option("--port", type=click.IntRange(0, 65535), default=0, help="By default any that is free."),
    ):
        command = option(command)
    return command


def serve_pages(name: str, folder: Path, start: str, port: int, host: str, no_browser: bool) -> None:
    """Until Ctrl-C; `start` is the page that is opened."""
    from torchdoctor.cli.wishes import read_settings
    from torchdoctor.ui.guard import is_loopback
    from torchdoctor.ui.server import Page

    if not is_loopback(host):
        click.echo(ELSEWHERE.format(host=host), err=True)

    def announce(url: str) -> None:
        click.echo(f"torchdoctor {name}: {url}", err=True)
        click.echo("Ctrl-C ends it; trainings go on without it.", err=True)
        if not no_browser:
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()

    settings = read_settings(None, (), (), (), (), ())
    try:
        Page(folder, settings, host, port, start).serve(announce)
    except KeyboardInterrupt:
        click.echo("", err=True)


def _open_browser(url: str) -> None:
    """In a thread: some browsers return when they are closed."""
    import webbrowser

    webbrowser.open(url)
