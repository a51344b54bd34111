"""The live page beside a run: `python -m torchdoctor.ui.companion RUN PID` prints its address and goes on by itself.

It is nobody's child, so that a script that waits for its own children never meets it, and it ends when the training has
ended and nobody has looked for a while.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send

from torchdoctor.errors import TorchdoctorError
from torchdoctor.settings import Settings, discover
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
    """Around the application: when it was last asked."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.last: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.last = time.monotonic()
        await self._app(scope, receive, send)


def main(run: Path, trainer: int, unseen: float = UNSEEN_SECONDS, unopened: float = UNOPENED_SECONDS) -> None:
    page = Page(run.parent, _settings(), start=f"/run/{quote(key_of(run.name), safe='')}")
    sys.stdout.write(page.address + "\n")
    sys.stdout.flush()
    if os.fork():
        os._exit(0)
    os.setsid()
    os.nice(POLITE)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    visits = Visits(page.app)
    threading.Thread(target=_leave_in_time, args=(page, visits, trainer, unseen, unopened), daemon=True).start()
    page.serve(app=visits)


def _leave_in_time(page: Page, visits: Visits, trainer: int, unseen: float, unopened: float) -> None:
    while _is_there(trainer):
        time.sleep(LOOK_SECONDS)
    over = time.monotonic()
    while time.monotonic() < (over + unopened if visits.last is None else max(over, visits.last) + unseen):
        time.sleep(LOOK_SECONDS)
    page.end()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _settings() -> Settings:
    with contextlib.suppress(TorchdoctorError):
        return discover(Path.cwd())
    return Settings()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
