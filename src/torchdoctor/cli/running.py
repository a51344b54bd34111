"""One `torchdoctor run`, from the attachment to the exit status."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchdoctor.attach.attachment import Attachment
from torchdoctor.attach.children import follow, watch_for_exec
from torchdoctor.attach.collector import collector_rests
from torchdoctor.attach.launcher import launch
from torchdoctor.attach.options import Options, is_disabled
from torchdoctor.attach.ranks import last_written, speaks, taken_places
from torchdoctor.attach.script import Around, Ending, around, die_by
from torchdoctor.attach.shadowing import own_modules
from torchdoctor.attach.target import COMMAND, Target
from torchdoctor.attach.voice import say, standard_error
from torchdoctor.cli.observing import dismiss_observer, observed
from torchdoctor.cli.wishes import is_writable
from torchdoctor.errors import HALTED, TorchdoctorError
from torchdoctor.findings import Severity, Verdict
from torchdoctor.last_seen import CRASHED, DIED, FINISHED, ProcessEnding
from torchdoctor.settings import Settings
from torchdoctor.view.opening import OpenView, can_be_drawn, opened_view

if TYPE_CHECKING:
    from torchdoctor.run import Run

FOUND_STATUS = 3

EXEC_SECONDS = 0.3
"""That a script which replaces itself waits at most for the end of its record to be written."""
CHILD_SECONDS = 1.0
"""Processor time of child processes above which one of them may have trained: python with torch takes longer."""


@dataclass(frozen=True)
class Request:
    """What the user asked for, checked."""

    target: Target
    options: Options
    obstacle: str | None = None
    """why no run can be written to the folder for runs; None where nothing speaks against it"""
    json: Path | None = None
    quiet: bool = False
    view_rows: int | None = None
    """of the live view in the terminal; 0: none, None: as many as suit the terminal"""
    fail_on: Severity | None = None
    form: str = "text"
    output: Path | None = None
    flags: tuple[str, ...] = ()
    """options of the settings as they were given"""

    @property
    def settings(self) -> Settings:
        return Settings.from_dict(self.options.settings)


@dataclass(frozen=True)
class Record:
    """What is left of a run."""

    verdict: Verdict
    run: Run | None
    directory: Path

    @property
    def is_empty(self) -> bool:
        """Nothing was trained, and there is nothing to say of it either."""
        verdict = self.verdict
        return not (verdict.findings or verdict.run.get("steps") or verdict.explanation)


def perform(request: Request) -> Around[int]:
    """Run it, tell the verdict, and give the exit status: a generator, since the program runs outside of it."""
    if is_disabled() or request.obstacle is not None:
        if speaks() and not is_disabled():
            unrecorded = "the script runs without being recorded (--require-recording would not start it)"
            say(f"{request.obstacle}; {unrecorded}")
        return (yield from _run(request, None)).status
    _warn_of_outputs(request)
    since = last_written(request.options)
    with observed(request, since):
        return (yield from _show_and_follow(request, since))


def tell_of_end(request: Request, since: float, ending: ProcessEnding) -> None:
    """Tell the verdict in place of a process that ended before it could; called in the one that observed it."""
    Conclusion(request, Ending(0), since, observed=ending).status()


def _show_and_follow(request: Request, since: float) -> Around[int]:
    if not (request.options.live and speaks() and can_be_drawn(request.view_rows)):
        return (yield from _follow(request, since, None))
    with opened_view(request.options, since, request.view_rows) as view:
        options = replace(request.options, viewed=view is not None)
        return (yield from _follow(replace(request, options=options), since, view))


def _run(request: Request, options: Options | None, attachment: Attachment | None = None) -> Around[Ending]:
    if request.target.kind != COMMAND:
        return (yield from around(request.target, *([attachment.leaving_early] if attachment is not None else [])))
    box: list[Ending] = []
    error = yield lambda: box.append(launch(request.target, options))
    if error is not None:
        raise error
    if box[0].signal is not None:
        atexit.register(die_by, box[0].signal, os.getpid())
    return box[0]


def _warn_of_outputs(request: Request) -> None:
    """Before hours are spent: what is found after the training could not be written."""
    for path in filter(None, (request.json, request.output)):
        if speaks() and not is_writable(path):
            say(f"{path} is read-only; the verdict will not be written there")


def _follow(request: Request, since: float, view: OpenView | None) -> Around[int]:
    """From the attachment to the exit status."""
    if request.target.kind == COMMAND:
        ending = yield from _run(request, request.options)
        return Conclusion(request, ending, since, view=view).status()
    attachment = Attachment(request.options)
    attachment.begin()
    follow(request.options)
    watch_for_exec(lambda: _warn_of_exec(request, attachment, since))
    ending = yield from _run(request, request.options, attachment)
    return Conclusion(request, ending, since, attachment, view).status() if attachment.is_here else ending.status


def _warn_of_exec(request: Request, attachment: Attachment, since: float) -> None:
    if attachment.is_here:
        attachment.flush(EXEC_SECONDS)
        if not taken_places(request.options, since):
            dismiss_observer()
    if attachment.is_here and speaks():
        say(
            "the script is replacing itself with another program (os.exec), so its record ends here; to record that "
            f"program as well, use {_as_command(request)}"
        )


def _as_command(request: Request) -> str:
    found = shutil.which("python")
    python = "python" if found and Path(found).parent == Path(sys.executable).parent else sys.executable
    return f"torchdoctor run -- {shlex.join([python, *request.target.words])}"


class Conclusion:
    """What is said and returned once the script has ended. `attachment` is None for a command, and for a script whose
    end was `observed` by another process."""

    def __init__(
        self,
        request: Request,
        ending: Ending,
        since: float,
        attachment: Attachment | None = None,
        view: OpenView | None = None,
        observed: ProcessEnding | None = None,
    ) -> None:
        self.request = request
        self.ending = ending
        self.since = since
        self.attachment = attachment
        self.view = view
        self.observed = observed
        self.others: list[Path] = []
        self.problem: str | None = None

    def status(self) -> int:
        """Close the record and tell it; nothing that goes wrong in here changes how the script ended."""
        with own_modules(), collector_rests():
            return self._status()

    def _status(self) -> int:
        record = None
        with self._contained("what was recorded could not be read"):
            record = self._collect()
        with self._contained("the live view could not be closed"):
            if self.view is not None:
                self.view.close()
        if not speaks():
            return self.ending.status
        if record is None:
            with self._contained("no verdict could be given"):
                self._tell_of_nothing()
            return self.ending.status
        self._tell(record)
        return self._status_by(record.verdict)

    @contextlib.contextmanager
    def _contained(self, problem: str) -> Iterator[None]:
        """Say in one line what failed; what comes after it goes on."""
        try:
            yield
        except KeyboardInterrupt:
            self.problem = "it was interrupted"
        except Exception as error:
            self.problem = str(error) if isinstance(error, TorchdoctorError) else f"{type(error).__name__}: {error}"
            say(f"{problem}: {self.problem}")

    def _collect(self) -> Record | None:
        """This process's own record, or the gravest of those that child processes left."""
        places = taken_places(self.request.options, self.since) if speaks() else []
        if self.attachment is not None:
            untrained = speaks() and not places and not _children_still_run()
            verdict = self.attachment.finish(self.ending.how, self.ending.exception, untrained=untrained)
            run, session = self.attachment.run, self.attachment.session
            if verdict is not None:
                return Record(verdict, run, session.directory if session is not None else Path(run.info["path"]))
        if not places:
            return self._record_of_observed()
        records = _examine_all(places, self.request.settings)
        chosen = min(records, key=lambda r: r.verdict.worst.rank if r.verdict.worst else len(Severity))
        self.others = [r.directory for r in records if r is not chosen]
        return chosen

    def _record_of_observed(self) -> Record | None:
        """The record of a script that was ended before it trained, made by the process that observed it."""
        request, observed = self.request, self.observed
        if observed is None or observed.replaced or request.target.kind == COMMAND:
            return None
        from torchdoctor.attach.torchless import record_without_torch
        from torchdoctor.engine import examine

        how = DIED if observed.status is None else CRASHED if observed.status else FINISHED
        run = record_without_torch(request.options, request.target.words, how)
        return Record(examine(run, settings=request.settings), run, Path(run.info["path"]))

    def _tell(self, record: Record) -> None:
        if self.ending.stopped is not None:
            halted = self.ending.stopped.startswith(HALTED)
            say(f"{self.ending.stopped} ({'--on-nonfinite' if halted else '--stop-on'})")
        if record.is_empty:
            with self._contained("no verdict could be given"):
                self._tell_of_nothing()
        elif not self.request.quiet:
            with self._contained("the verdict could not be printed"), contextlib.suppress(BrokenPipeError):
                self._print(record)
        elif not record.verdict.healthy:
            first = record.verdict.findings[0]
            say(f"{first.severity.value}: {first.title} ({first.name}); torchdoctor diagnose {record.directory}")
        elif record.verdict.ending.fault:
            say(f"no cause found, but {record.verdict.ending.fault}; torchdoctor diagnose {record.directory}")
        if self.attachment is not None and self.attachment.problem is not None and not record.is_empty:
            say(f"the end of the record may be missing ({self.attachment.problem}); the script itself was not affected")
        if self.others and not self.request.quiet:
            others = " or ".join(map(str, self.others))
            say(f"other processes trained as well; for their verdicts: torchdoctor diagnose {others}")
        if self.request.json is not None:
            with self._contained("no JSON was written"):
                from torchdoctor.report import json

                json.write(record.verdict, self.request.json)
        if self.request.output is not None:
            with self._contained("no verdict was written"):
                from torchdoctor.report import json
                from torchdoctor.report.formats import dump

                wishes = (self.request.settings, self.request.flags)
                text = dump(self.request.form, record.verdict, record.run, record.directory, *wishes)
                json.write_text(text, self.request.output)

    def _print(self, record: Record) -> None:
        """The letter; in another format where that was asked for and goes to no file."""
        if self.request.form == "text" or self.request.output is not None:
            from torchdoctor.report.terminal import print_verdict

            print_verdict(
                record.verdict,
                record.run,
                directory=record.directory,
                file=standard_error(),
                settings=self.request.settings,
                flags=self.request.flags,
            )
            return
        from torchdoctor.report.formats import dump

        stream = standard_error()
        if stream is not None:
            stream.write(dump(self.request.form, record.verdict, record.run, record.directory))
            stream.flush()

    def _status_by(self, verdict: Verdict) -> int:
        wanted = self.request.fail_on
        if self.ending.status == 0 and wanted and any(f.severity.at_least(wanted) for f in verdict.findings):
            return FOUND_STATUS
        return self.ending.status

    def _tell_of_nothing(self) -> None:
        if self.observed is not None:
            if self.observed.signal is not None:
                say(f"{self.observed.signal} ended the script; no training was recorded: nothing to diagnose.")
            elif self.observed.status is not None:
                left = f"the script exited with status {self.observed.status} by os._exit or a similar call"
                say(f"{left}; no training was recorded: nothing to diagnose.")
        elif self.problem is None and not (self.attachment is not None and self.attachment.unrecorded):
            say(f"{self._why_nothing()} {self._way_out()}")

    def _why_nothing(self) -> str:
        attachment = self.attachment
        if attachment is None:
            return "no python process that the command started made a backward pass or an optimizer step."
        if attachment.problem is not None:
            return f"this run could not be recorded ({attachment.problem}); the script itself was not affected."
        if self.ending.how != FINISHED:
            ended = "failed" if self.ending.how == CRASHED else "was interrupted"
            return f"the script {ended} before a backward pass or an optimizer step was seen: nothing to diagnose."
        if not attachment.saw_torch:
            return "the script ended without importing torch: nothing to diagnose."
        return "no backward pass to parameters and no optimizer step was seen in the script: nothing to diagnose."

    def _way_out(self) -> str:
        if self.attachment is None:
            return (
                "Processes are followed where python is torchdoctor's own and was not started with -I, -E or -S; "
                "try torchdoctor run on the training script itself."
            )
        if self.attachment.problem is not None:
            return "Please report this."
        if _children_still_run():
            return f"Its child processes still run; later see torchdoctor runs list {self.request.options.out}"
        used = os.times()
        seconds = used.children_user + used.children_system
        if seconds > CHILD_SECONDS:
            worked = f"Its child processes worked for {seconds:.0f} s"
            return f"{worked}; if one of them trains, use {_as_command(self.request)}"
        if self.ending.how == CRASHED:
            status = f"It ended with exit status {self.ending.status}."
            return status if self.ending.exception is None else "Its own error is above."
        return f"If it trains in a child process started with subprocess, use {_as_command(self.request)}"


def _children_still_run() -> bool:
    """Processes that the script started and left to multiprocessing, which waits for them after us."""
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and any(not child.daemon for child in multiprocessing.active_children())


def _examine_all(directories: list[Path], settings: Settings) -> list[Record]:
    """What can be read of them; RunError if none can."""
    from torchdoctor.engine import examine
    from torchdoctor.errors import RunError
    from torchdoctor.store.reader import open_run

    records, problem = [], None
    for directory in directories:
        try:
            run = open_run(directory)
            records.append(Record(examine(run, settings=settings), run, directory))
        except RunError as error:
            problem = error
    if problem is not None and not records:
        raise problem
    return records
