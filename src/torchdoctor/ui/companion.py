"""The live page beside a run, started by attach/page.py. `... companion RUN PID SETTINGS` prints its address.

It is started as nobody's child, so that a script that waits for its own children does not meet it, and it ends when the
training has ended and nobody has looked for a while.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send

from torchdoctor.launching import birth_of
from torchdoctor.settings import Settings
from torchdoctor.ui.library import key_of
from torchdoctor.ui.server import Page

POLITE = 5
"""By so much is this process nicer than the training."""
UNSEEN_SECONDS = 600.0
"""After the training and the last request: somebody who reads the verdict may still want to zoom."""
UNOPENED_SECONDS = 20.0
"""After the training, where nobody has come yet."""
LOOK_SECONDS = 1.0


class Visits:
    """Within the guard: when somebody who was let in last asked."""

    def __init__(self) -> None:
        self.last: float | None = None

    def around(self, app: ASGIApp) -> ASGIApp:
        async def count(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                self.last = time.monotonic()
            await app(scope, receive, send)

        return count


def main(
    run: Path,
    trainer: int,
    settings: Settings,
    unseen: float = UNSEEN_SECONDS,
    unopened: float = UNOPENED_SECONDS,
) -> None:
    born = birth_of(trainer)
    visits = Visits()
    page = Page(run.parent, settings, start=f"/run/{quote(key_of(run.name), safe='')}", around=visits.around)
    sys.stdout.write(page.address + "\n")
    sys.stdout.flush()
    os.nice(POLITE)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)

    def leave_in_time() -> None:
        while birth_of(trainer) == born is not None:
            time.sleep(LOOK_SECONDS)
        over = time.monotonic()
        while time.monotonic() < (over + unopened if visits.last is None else max(over, visits.last) + unseen):
            time.sleep(LOOK_SECONDS)
        page.end()

    threading.Thread(target=leave_in_time, daemon=True).start()
    page.serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Settings.from_dict(json.loads(sys.argv[3])))
