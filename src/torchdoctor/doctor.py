"""`watch` and `Doctor`: the same as `torchdoctor run`, from code.

The composition root for use in a program: it hands the engine to the session and the verdict to the terminal.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from torchdoctor import engine, signals
from torchdoctor.attach import session as sessions
from torchdoctor.attach.options import EXCEPTION, RUNS_FOLDER, Options, is_disabled
from torchdoctor.attach.showing import Showing, find_display
from torchdoctor.errors import StopTraining, TrainingHalted, UnknownNameError, UsageError
from torchdoctor.findings import Finding, Verdict
from torchdoctor.rules import catalogue
from torchdoctor.run import Run
from torchdoctor.settings import discover

if TYPE_CHECKING:
    from torchdoctor.plots.notebook import View

log = logging.getLogger("torchdoctor")

VALIDATION_NAMES = ("val_loss", "valid_loss", "validation_loss", "eval_loss")
"""Names under which people log a validation loss; it is used where none was seen in the loop."""

SHOWING_SHARE = 0.5
"""Of the overhead budget, for drawing in a notebook: measuring seldom uses all of it."""


def watch(
    *targets: nn.Module | Optimizer,
    out: str | Path = RUNS_FOLDER,
    name: str | None = None,
    overhead: float | None = None,
    modules: Sequence[str] = ("*",),
    every_step: bool = False,
    on_finding: Callable[[Finding], None] | None = None,
    stop_on: Sequence[str] = (),
    quiet: bool = False,
    capture: str | Sequence[str] | None = None,
    capture_limit: int | str | None = None,
    keep_captures: int | None = None,
    on_nonfinite: str | None = None,
    rollback_limit: int | str | None = None,
) -> Doctor:
    """Watch the training that follows, until `close()` or the end of a `with` block.

    targets     models and optimizers, if you want to name them; without any, whatever trains is found
    out, name   where the run's folder goes and what it is called
    overhead    share of a step's time that may be spent on measuring (0.01)
    modules     globs over module names, such as ["encoder.*"], whose tensors are measured
    every_step  take every signal on every step, whatever it costs
    on_finding  called with each finding as it comes, from another thread
    stop_on     names of diagnoses that end the run with `StopTraining`
    quiet       do not print the verdict at the end
    capture     on what the step's batch, weights and state are written into the run: "nonfinite", "exception" (both by
                default), "spike"; "none" for never. `capture_limit` ("2GB") is the most that one of them takes, and
                on a GPU the most memory of the host for the state that it goes back to;
                `keep_captures` (5) how many stay. They hold your data.
    on_nonfinite  what is done about an update whose loss or gradients are NaN or infinite: "report" (default: nothing),
                "skip" it, "halt" with `TrainingHalted`, or "rollback" to the last snapshot of weights, buffers and
                optimizer state, which takes at most `rollback_limit` ("2GiB") of memory
    """
    for target in targets:
        if not isinstance(target, (nn.Module, Optimizer)):
            raise UsageError(f"watch takes models and optimizers, not {type(target).__name__}")
    _check_names(stop_on)
    settings = replace(discover(Path.cwd()), folders=(str(Path.cwd()),))
    options = Options(
        out=str(out),
        name=name,
        overhead=overhead,
        modules=(modules,) if isinstance(modules, str) else tuple(modules),
        every_step=every_step,
        stop_on=tuple(stop_on),
        **settings.captures.over(capture, capture_limit, keep_captures),
        **settings.remedy.over(on_nonfinite, rollback_limit),
    )
    if is_disabled():
        return Doctor(None, quiet=True)
    running = sessions.current()
    if running is not None:
        log.info("torchdoctor: already watching; watch() joins the session that runs, with that one's options")
        if on_nonfinite not in (None, running.remedy.mode):
            log.warning("torchdoctor: on_nonfinite is %s: the session that runs has it so", running.remedy.mode)
        if running.live is not None:
            running.live.stop_on |= frozenset(stop_on)
    session = running or sessions.start(options, partial(engine.examine, settings=settings))
    for target in targets:
        if isinstance(target, nn.Module):
            session.registry.add_model(target)
        else:
            session.loop.optimizer(session.registry.optimizer_key(target))
    if on_finding is not None and session.live is not None:
        session.live.listeners.append(on_finding)
    return Doctor(session, quiet=quiet, owns=running is None)


def _check_names(names: Sequence[str]) -> None:
    known = {r.rule.name for r in catalogue()}
    for name in names:
        if name not in known:
            raise UnknownNameError(f"no diagnosis is called {name!r}; `torchdoctor explain` lists them")


class Doctor:
    """A handle on the run that is being watched."""

    def __init__(self, session: sessions.Session | None, *, quiet: bool = False, owns: bool = True) -> None:
        self._session = session
        self._quiet = quiet
        self._owns = owns
        self._verdict: Verdict | None = None
        self._showing: Showing | None = None

    @property
    def directory(self) -> Path | None:
        """The run's folder, once training has begun."""
        session = self._session
        return session.directory if session is not None and session.record.started else None

    def log(self, **scalars: float) -> None:
        """Record numbers that hooks cannot see, such as `val_accuracy=0.91`, at the current step."""
        session = self._session
        if session is None or session.finished:
            return
        step = session.loop.updates
        for name, value in scalars.items():
            try:
                number = float(value)
            except (TypeError, ValueError) as error:
                raise UsageError(f"log({name}=...) takes a number, not {type(value).__name__}") from error
            session.record.scalar(signals.USER.name, step, number, name)
            if name in VALIDATION_NAMES and not session.loop.validations:
                session.record.scalar(signals.LOSS_VALIDATION.name, step, number)

    def log_predictions(self, predictions: Any, targets: Any, groups: Any = None) -> None:
        """Record what the model made of a validation set, for recall, calibration, worst samples and slices.

        predictions  class scores (N, C), classes (N,), probabilities (N,) of a binary task, or numbers (N,)
        targets      class indices or numbers (N,)
        groups       a value for every sample, or several of them by name: {"site": sites, "age": ages}
        """
        session = self._session
        if session is None or session.finished:
            return
        from torchdoctor.probes.logged import record_predictions

        record_predictions(session.record, session.loop.updates, predictions, targets, groups)

    def capture(self, reason: str = "asked", *, wait: bool = False) -> Path | None:
        """Write the current batch, weights, optimizer and random state into the run, to be replayed or looked at.

        Takes one copy and writes it beside the training, or at once with `wait`. Gives the folder it goes to; None
        where captures are switched off, nothing trains yet, or the call comes from another thread than the training.
        """
        session = self._session
        if session is None or session.finished:
            return None
        path = session.capturing.ask(reason)
        if wait and path is not None:
            session.capturing.wait(math.inf)
        return path

    def findings(self) -> tuple[Finding, ...]:
        """What can be said by now, most important first."""
        return self.verdict().findings

    def verdict(self) -> Verdict:
        """The whole verdict by now: findings, what was ruled out, what could not be examined."""
        if self._verdict is not None:
            return self._verdict
        session = self._session
        verdict = session.findings_so_far() if session is not None else None
        return verdict or Verdict(run={})

    def run(self) -> Run | None:
        """The record so far, as rules see it."""
        session = self._session
        if session is None or not session.record.started:
            return None
        return session.record.stored_run() if session.finished else session.record.run()

    def summary(self) -> dict[str, Any]:
        """The short figures: final and best loss, gradient norm, clip frequency, non-finite events, trend."""
        from torchdoctor.summary import summary

        run = self.run()
        return summary(run) if run is not None else {}

    def close(self, status: str = "finished") -> Verdict | None:
        """Stop watching, and print the verdict unless `quiet`."""
        session = self._session
        if session is None or session.finished or not self._owns:
            return self._verdict
        try:
            self._verdict = session.finish(status)
        except Exception:
            log.exception("torchdoctor: the run could not be closed; `torchdoctor diagnose %s`", session.directory)
            return None
        if self._showing is not None:
            self._showing.end()
        if self._verdict is None:
            if not self._quiet:
                print("torchdoctor: nothing was trained while it watched", file=sys.stderr)
        elif not self._quiet:
            self._print()
        return self._verdict

    def _print(self) -> None:
        from torchdoctor.report.terminal import print_verdict

        assert self._verdict is not None
        try:
            print_verdict(self._verdict, self.run(), directory=self.directory)
        except Exception:
            log.exception("torchdoctor: the verdict could not be printed; `torchdoctor diagnose %s`", self.directory)

    def __enter__(self) -> Doctor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """The block's exception goes on, except the stop that the user asked for."""
        status = "finished" if kind is None or kind is StopTraining else "crashed"
        failed = kind is not None and issubclass(kind, Exception) and not issubclass(kind, StopTraining)
        if failed and error is not None and self._session is not None and self._owns and not self._session.finished:
            self._session.leaving_early(error)
            self._session.capturing.ask(EXCEPTION)
        self.close("interrupted" if kind in (KeyboardInterrupt, TrainingHalted) else status)
        if kind is StopTraining:
            if self._owns:
                print(f"torchdoctor: {error}", file=sys.stderr)
            return self._owns
        return False

    def show(self, interval: float = 2.0) -> None:
        """In a notebook: show the run under this cell, and keep it up to date while it trains.

        interval    seconds from one drawing to the next, at least; drawing keeps to the share of time that `overhead`
                    leaves, so a large model is drawn less often
        """
        if not interval > 0:
            raise UsageError(f"show(interval=...) takes seconds above 0, not {interval}")
        display, session = find_display(), self._session
        if display is None:
            where = self.directory or "RUN"
            print(f"torchdoctor: show() draws in notebooks; in a terminal: torchdoctor top {where}", file=sys.stderr)
        elif session is None or session.finished:
            display(self._view().bundle(), raw=True)
        else:
            if self._showing is not None:
                self._showing.end()
            if session.live is not None:
                session.live.listeners.append(_nothing)  # so that it examines while it trains
            self._showing = Showing(
                display,
                lambda: self._view().bundle(),
                self._trains,
                share=SHOWING_SHARE * session.governor.budget,
                interval=interval,
            )

    def _trains(self) -> bool:
        """Until its record is closed, which takes a moment after the last step."""
        session = self._session
        if session is None or not session.finished:
            return session is not None
        run = self.run()
        return run is not None and not run.finished

    def _view(self) -> View:
        """What is known by now; while it trains the findings that were told so far, which cost nothing more."""
        from torchdoctor.plots.notebook import view

        session = self._session
        live = session.live if session is not None and not session.finished else None
        findings = list(live.told.values()) if live is not None else list(self.verdict().findings)
        return view(self.run(), sorted(findings, key=lambda f: f.severity.rank) if live is not None else findings)

    def _repr_html_(self) -> str:
        """In a notebook: the verdict so far, and the main figures."""
        from torchdoctor.plots.notebook import view

        return view(self.run(), self.verdict().findings).html


def _nothing(_finding: Finding) -> None:
    """For a listener that reads what was told by itself."""
