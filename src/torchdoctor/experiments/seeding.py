"""The process of one seed: the user's script from its beginning to its end, recorded, with its seed and its changes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from torchdoctor.attach.attachment import Attachment
from torchdoctor.attach.children import follow
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.launcher import launch
from torchdoctor.attach.options import Options
from torchdoctor.attach.script import Ending, execute
from torchdoctor.attach.target import COMMAND, Target
from torchdoctor.experiments.apart import EVERYWHERE, SYSTEM, keep_apart
from torchdoctor.experiments.changes import Changes
from torchdoctor.experiments.first_steps import FirstSteps
from torchdoctor.experiments.orphans import end_with_parent
from torchdoctor.experiments.overrides import Overrides
from torchdoctor.experiments.seed_notes import SeedNotes
from torchdoctor.opening import absolute, current_folder

NAMES_KEPT = 64
"""Different metrics that are taken from what the script hands to a logger."""


class Applied:
    """A change that is there from the first update on. The rate is scaled for the time of the update, so that the
    script's own schedule stays what it is, and an absolute rate takes the place of the one the optimizer was made
    with."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._saved: list[list[Any]] = []

    def place(self, torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        if self._changes.single:
            from torchdoctor.experiments.replaying import _stay_single

            _stay_single(torch)
        if self._changes.from_start:
            register_optimizer_step_pre_hook(self._before)
            register_optimizer_step_post_hook(self._after)

    def _before(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        import torch

        groups = optimizer.param_groups
        if self._changes.clip is not None:
            torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], self._changes.clip)
        if self._changes.rate is not None and "lr" in groups[0]:
            factor = self._changes.rate
            if not self._changes.relative:
                factor /= float(optimizer.defaults.get("lr") or groups[0]["lr"]) or 1.0
            self._saved.append([group["lr"] for group in groups])
            for group in groups:
                group["lr"] = group["lr"] * factor

    def _after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._saved:
            for group, rate in zip(optimizer.param_groups, self._saved.pop(), strict=True):
                group["lr"] = rate


class Tap:
    """Every number that the script hands to a logger goes into the record, whatever its name."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._names: set[str] = set()

    def place(self, _torch: Any) -> None:
        from torchdoctor.attach.loggers import DICTIONARIES, SCALARS

        for module, owner, method in (*DICTIONARIES, *SCALARS):
            after_import(module, functools.partial(self._wrap, owner, method))

    def _wrap(self, owner: str, method: str, module: Any) -> None:
        kind = getattr(module, owner, None)
        original = getattr(kind, method, None)
        if original is None:
            return

        @functools.wraps(original)
        def logging(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):  # the script goes on as it would
                self._take_call(args, kwargs)
            return original(*args, **kwargs)

        setattr(kind, method, logging)

    def _take_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = next((a for a in (*args[1:], *kwargs.values()) if isinstance(a, Mapping)), None)
        if given is not None:
            for name, value in list(given.items()):
                self._take(name, value)
        elif len(args) > 2:
            self._take(args[1], args[2])

    def _take(self, name: Any, value: Any) -> None:
        from torchdoctor import signals

        session: Any = self._attachment.session
        if session is None or session.finished or not session.loop.backwards or not isinstance(name, str):
            return
        if hasattr(value, "item") and getattr(value, "size", None) is not None:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if name in self._names or len(self._names) < NAMES_KEPT:
            self._names.add(name)
            session.record.scalar(signals.USER.name, session.loop.updates, float(value), name)


def run_seed(request: dict[str, Any]) -> tuple[Ending, dict[str, Any]]:
    """The script to its end, and what is to be reported of it."""
    target = Target(request["kind"], request["what"], tuple(request["arguments"]))
    options = Options(prints=True, out=request["out"], name=request["name"], capture=())
    if target.kind == COMMAND:
        return launch(target, options), {}
    overrides = Overrides(request["seed"]) if request["override"] else None
    if overrides is not None:
        overrides.place()
    changes = Changes(**request["changes"])
    if changes != Changes():
        after_import("torch", Applied(changes).place)
    attachment = Attachment(options, examines=False)
    attachment.begin()
    follow(options)
    after_import("torch", Tap(attachment).place)
    notes = SeedNotes()

    def close(ending: Ending) -> dict[str, Any]:
        session: Any = attachment.session
        if session is not None:
            session.record.update_info(options={"seed_run": request["mark"]})
        attachment.finish(ending.how, ending.exception)
        seeded = overrides.calls if overrides is not None else notes.calls
        return {"seeded": seeded, "exception": ending.exception, "problem": attachment.problem}

    def leave() -> NoReturn:
        tell(request, Ending(0), close(Ending(0)))
        os._exit(0)

    if request["first"] is not None:
        notes.place()
        after_import("torch", FirstSteps(**request["first"], leave=leave).place)
    ending = execute(target, attachment.leaving_early)
    return ending, close(ending) if attachment.is_here else {}


def tell(request: dict[str, Any], ending: Ending, told: dict[str, Any]) -> None:
    Path(request["report"]).write_text(json.dumps({"status": ending.status, "how": ending.how, **told}))


def main(letter: str) -> int:
    end_with_parent()
    request = json.loads(Path(letter).read_text())
    request["report"] = str(absolute(request["report"]))
    pid = os.getpid()
    time.sleep(request["wait"])
    if request["files"] is not None:
        roots = [current_folder(), *(Path(r) for r in request["roots"])]
        shared = [Path(request["out"]), Path(request["report"]).parent]
        if request["everywhere"]:
            roots, shared = [EVERYWHERE], [*shared, *SYSTEM, Path(tempfile.gettempdir())]
        keep_apart(Path(request["files"]), roots, shared)
    if request["trace"] is not None:
        from torchdoctor.experiments.tracing import trace_script

        return trace_script(request)
    ending, told = run_seed(request)
    if os.getpid() == pid:
        tell(request, ending, told)
    return ending.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
