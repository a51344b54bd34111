"""The live page beside a run, started by attach/page.py: `... companion RUN PID` prints its address and serves.

It is started as nobody's child, so that a script that waits for its own children does not meet it, and it ends when the
training has ended and nobody has looked for a while.
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
    """Within the guard: when somebody who was let in last asked."""

    def __init__(self) -> None:
        self.last: float | None = None

    def around(self, app: ASGIApp) -> ASGIApp:
        async def count(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                self.last = time.monotonic()
            await app(scope, receive, send)

        return count


def main(run: Path, trainer: int, unseen: float = UNSEEN_SECONDS, unopened: float = UNOPENED_SECONDS) -> None:
    born = birth_of(trainer)
    visits = Visits()
    page = Page(run.parent, _settings(), start=f"/run/{quote(key_of(run.name), safe='')}", around=visits.around)
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


def birth_of(process: int) -> str | None:
    """Something that another process of the same number does not have; None where there is none, or a dead one."""
    try:
        state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]  # the 22nd field of proc(5): when it started
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except OSError:
        return None
    try:
        os.kill(process, 0)  # no /proc here: the number alone has to do
    except OSError:
        return None
    return "there"


def _settings() -> Settings:
    with contextlib.suppress(TorchdoctorError):
        return discover(Path.cwd())
    return Settings()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
