"""The fresh process of a replay: the user's script runs from its beginning, and one step of it from a capture.

With batches from a loader in the capture, the script is put into the captured state after its own first update, and
its loader gives the captured batches. Without, it is let run up to the step, so that its own variables are those of
the step, and put into the captured state there. A capture may hold several steps, the last of which failed: they are
all trained again (walking.py). A change that has to be there from the start runs without any state.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchdoctor.attach.attachment import Attachment
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.options import Options
from torchdoctor.attach.script import execute
from torchdoctor.attach.target import Target
from torchdoctor.experiments.changes import Changes
from torchdoctor.experiments.shadow import keep_files
from torchdoctor.probes.forking import tell

if TYPE_CHECKING:
    from torchdoctor.experiments.walking import Walk
    from torchdoctor.probes.rerun import Rerun

MARGIN = 20
"""Updates after the step that a changed run is given to fail."""


class Replaying:
    """Waits for the moment, and hands the process over."""

    def __init__(self, request: dict[str, Any], attachment: Attachment, pipe: int) -> None:
        self.step: int = request["step"]
        self.path = Path(request["capture"])
        self.changes = Changes(**request["changes"])
        self.from_start: bool = request["from_start"]
        self._attachment = attachment
        self._pipe = pipe
        self._begun = False
        self._walk: Walk | None = None
        self._rerun: Rerun | None = None
        self._ready_at: int | None = None
        """updates after which what the loop had fetched ahead is used up"""
        self._saved: list[list[Any]] = []

    def arrange(self, torch: Any) -> None:
        """torch has been imported, and the session is in place."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        from torchdoctor.store.captured import open_capture

        if self._attachment.session is None:
            self._give_up(f"torchdoctor could not attach ({self._attachment.problem})")
        with open_capture(self.path) as capture:
            self.at_once = capture.document.get("batch_source") == "loader" and not self.from_start
            steps = capture.document.get("steps")
            self.from_step: int = steps[0]["step"] if steps else self.step
            if steps:
                from torchdoctor.experiments.walking import Walk

                self._walk = Walk(self._session, self.path, self._pipe, serves=self.at_once)
            threads = capture.document.get("threads")
            if isinstance(threads, int) and 0 < threads <= (os.cpu_count() or 1):
                torch.set_num_threads(threads)
        if self.changes.single:
            _stay_single(torch)
        if self.changes.from_start:
            register_optimizer_step_pre_hook(self._change)
        register_optimizer_step_post_hook(self._updated)
        if self.from_step == 0 and not self.at_once and not self.changes.from_start:
            original = torch.optim.Optimizer.__init__

            def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                original(optimizer, *args, **kwargs)
                if not self._begun:
                    self._session.discover([])
                    self._hand_over(restores=False)

            torch.optim.Optimizer.__init__ = init

    @property
    def _session(self) -> Any:
        return self._attachment.session

    def _change(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        import torch

        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self.changes.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.changes.clip)
        if self.changes.rate is not None:
            self._saved.append([group["lr"] for group in optimizer.param_groups])
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * self.changes.rate if self.changes.relative else self.changes.rate

    def _updated(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._saved:
            for group, rate in zip(optimizer.param_groups, self._saved.pop(), strict=True):
                group["lr"] = rate
        updates = self._session.loop.updates
        if self.changes.from_start:
            self._judge(updates)
        elif not self._begun and updates >= (1 if self.at_once else self.from_step):
            if self._walk is not None and self._ready_at is None:
                self._ready_at = updates + self._walk.serve()
            if self._ready_at is None or updates >= self._ready_at:
                self._hand_over()

    def _judge(self, updates: int) -> None:
        """A changed run: has it failed, or gone past the step?"""
        session = self._session
        session.hunt.poll()
        losses = session.training_loss.pending()
        if session.context.broke_at is not None:
            session.hunt.close()
            fact = session.hunt.found
            birth = asdict(fact) if fact is not None else None
            tell(self._pipe, {"failed_at": session.context.broke_at, "birth": birth})
        if updates > self.step + MARGIN:
            tell(self._pipe, {"passed": updates, "loss": _last(losses)})

    def _hand_over(self, restores: bool = True) -> None:
        from torchdoctor.attach.restoring import read_states, rebuild, restore
        from torchdoctor.probes.rerun import Rerun
        from torchdoctor.probes.step_start import StepStart
        from torchdoctor.store.captured import open_capture

        self._begun = True
        session = self._session
        start = StepStart()
        with open_capture(self.path) as capture:
            session.discover([])
            scalers, single = session.capturing.scalers, self.changes.single
            problems = restore(capture, session.registry, scalers, single) if restores else []
            if self._walk is not None:
                self._check(problems)
                self._walk.begin(restores)
                return
            if self.at_once:
                like = next(iter(session.step_start.batches), None)
                start.batches = [rebuild(capture, node, like=like) for node in capture.document["batches"]]
            start.random, start.device_random = read_states(capture, capture.document["random"])
        self._check(problems)
        self._rerun = Rerun(self._pipe, start, session.registry)
        self._rerun.begin(serves=self.at_once)

    def leaving_early(self, error: BaseException) -> None:
        """The script gives up; if that is for a loss of the step, it tells as much as a backward would."""
        rerun = self._walk.rerun if self._walk is not None else self._rerun
        if rerun is not None:
            from torchdoctor.attach.last_words import find_loss

            loss = find_loss(error)
            if loss is not None:
                rerun.last_words(loss)

    def _check(self, problems: list[str]) -> None:
        from torchdoctor.attach.restoring import is_another

        if is_another(problems):
            said = f"the script's model is another one than that of the capture: {'; '.join(problems[:3])}"
            self._give_up(said, not_yet=self.at_once)

    def _give_up(self, reason: str, **more: Any) -> None:
        tell(self._pipe, {"reason": reason, **more})


def _stay_single(torch: Any) -> None:
    original = torch.amp.autocast_mode.autocast.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "enabled": False} if len(args) < 3 else kwargs)
        self._enabled = False

    torch.amp.autocast_mode.autocast.__init__ = init
    for kind in (torch.nn.Module, torch.Tensor):
        for name in ("half", "bfloat16"):
            setattr(kind, name, lambda held: held.float())
        kind.to = _never_to_half(kind.to, (torch.float16, torch.bfloat16), torch.float32)


def _never_to_half(original: Any, halves: tuple[Any, ...], single: Any) -> Any:
    def wanted(value: Any) -> Any:
        return single if any(value is half for half in halves) else value

    def to(held: Any, *args: Any, **kwargs: Any) -> Any:
        return original(held, *map(wanted, args), **{name: wanted(value) for name, value in kwargs.items()})

    return to


def _last(losses: list[float]) -> float | None:
    return losses[-1] if losses and math.isfinite(losses[-1]) else None


def main(request_file: str) -> int:
    request = json.loads(Path(request_file).read_text())
    os.environ["TORCHDOCTOR_REPLAY"] = "1"
    pipe = os.open(request["report"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    keep_files(Path(request["scratch"]))
    if request["step_fn"]:
        from torchdoctor.experiments.stepping import run_function

        run_function(Path(request["capture"]), request["step_fn"], pipe)
        tell(pipe, {"reason": "the function was called and did not break", "unbroken": True})
    options = Options(out=request["scratch"], name="replay", capture=(), overhead=0.01)
    attachment = Attachment(options, examines=False)
    attachment.begin()
    replaying = Replaying(request, attachment, pipe)
    after_import("torch", replaying.arrange)
    target = Target(request["kind"], request["what"], tuple(request["arguments"]), request["sha256"])
    ending = execute(target, replaying.leaving_early)
    if ending.exception is None:
        tell(pipe, {"reason": "the script ended before the step could be run again"})
    raised = f"{ending.exception['type']}: {ending.exception['message'][:200]}"
    tell(pipe, {"reason": f"the script failed before the step could be run again ({raised})", "raised": raised})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
