"""The process in which a script's loop is taken over: it rehearses, hands its loop over, and ends with the work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from torchdoctor.attach.attachment import Attachment
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.options import Options
from torchdoctor.attach.script import Ending, execute
from torchdoctor.attach.shadowing import import_early, own_modules
from torchdoctor.attach.target import Target
from torchdoctor.errors import ScriptError
from torchdoctor.experiments.orphans import end_with_parent
from torchdoctor.experiments.shadow import keep_files
from torchdoctor.takeover.process import OVER
from torchdoctor.takeover.rehearsal import Rehearsal

if TYPE_CHECKING:
    from torchdoctor.run import Run


class Child:
    """`request` is what the parent asked for; it is told of what comes of it, a line of JSON each."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self._pipe = os.open(request["report"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, **line: Any) -> None:
        os.write(self._pipe, (json.dumps(line) + "\n").encode())

    def end(self, **line: Any) -> NoReturn:
        try:
            self.tell(**line)
        finally:
            os._exit(0)


def serve(
    request_file: str, work: Callable[[Child, Rehearsal], None], over: Callable[[Child, Run], None] = lambda *_: None
) -> NoReturn:
    """`work` is done in a thread of its own once the loop is known; `over` where the script ended before that."""
    end_with_parent()
    child = Child(json.loads(Path(request_file).read_text()))

    def ready(rehearsal: Rehearsal) -> None:
        try:
            work(child, rehearsal)
        except BaseException as error:
            child.end(failed=f"{type(error).__name__}: {error}")
        child.end(done=True)

    request = child.request
    keep_files(Path(request["scratch"]), lambda folder: child.tell(folder=folder))
    options = Options(out=request["scratch"], name="check", capture=(), overhead=1.0, every_step=True)
    attachment = Attachment(options, examines=False)
    wishes = {name: bool(request[name]) for name in ("quick", "cuts", "early")}
    rehearsal = Rehearsal(attachment, **wishes, ready=ready)
    after_import("torch", lambda _: import_early())
    after_import("torch", rehearsal.prepare)
    attachment.begin()
    after_import("torch", rehearsal.arrange)
    try:
        target = Target(request["kind"], request["what"], tuple(request["arguments"]))
        ending = execute(target, attachment.leaving_early)
    except ScriptError as error:
        child.end(refused=str(error))
    with own_modules():
        _end_without_loop(child, rehearsal, ending, over)


def _end_without_loop(
    child: Child, rehearsal: Rehearsal, ending: Ending, over: Callable[[Child, Run], None]
) -> NoReturn:
    """The script ended first."""
    raised = f"{ending.exception['type']}: {ending.exception['message'][:300]}" if ending.exception else None
    if rehearsal.driver is not None:
        rehearsal.driver.ended(f"the script failed after it was taken over ({raised})" if raised else OVER)
        rehearsal.wait()
    session = rehearsal.session
    trained = session is not None and session.loop.updates > 0
    if session is not None:
        session.finish(ending.how, exception=ending.exception)
        if session.record.started:  # what broke its first batch is seen, too
            over(child, session.record.stored_run())
    child.end(ended=raised or "", trained=trained)
