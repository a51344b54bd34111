"""The script that a run names, and the reasons for which nobody should start it unasked.

A run folder may come from a stranger, so what its run.json says is a wish. A script is started without a question only
if this user recorded the run, and the script is still the one that ran.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchdoctor.attach.target import CODE, FILE, MODULE, Target
from torchdoctor.errors import NotARunError, RunError, ScriptError
from torchdoctor.experiments.sources import main_file
from torchdoctor.opening import current_folder
from torchdoctor.scrubbing import HIDDEN
from torchdoctor.store.environment import digest_script
from torchdoctor.store.info import read_info
from torchdoctor.store.names import RUN_FILE, FileName, list_names, rank_of_run_file
from torchdoctor.store.origin import is_own

DIGITS = 12
"""Of a digest, as people are shown it."""


@dataclass(frozen=True)
class RecordedScript:
    """What would be started."""

    target: Target
    folder: Path
    """where it would be started"""
    doubts: tuple[str, ...] = ()
    """why the user has to be asked before, a sentence each"""

    @property
    def words(self) -> str:
        return shlex.join(self.target.words)


def find_script(run: Path, info: Mapping[str, Any]) -> RecordedScript:
    """The script that recorded the run. ScriptError where there is none that may ever be started."""
    argv, cwd = info.get("argv"), info.get("cwd")
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    give = f"; name it yourself: torchdoctor replay {run} -- train.py ..."
    if not words:
        raise ScriptError(f"the run does not say which script it recorded{give}")
    if any(HIDDEN in word for word in words):
        raise ScriptError(f"an argument of the script looked like a secret and is not in the record{give}")
    if hasattr(os, "getuid") and run.stat().st_uid != os.getuid():
        raise ScriptError(f"{run} belongs to another user, so the script that it names is not started{give}")
    try:
        folder = Path(os.path.expanduser(cwd) if isinstance(cwd, str) else ".").resolve()  # noqa: PTH111 - or ~ stays
        path = (folder / words[0]).resolve()
        there = path.suffix == ".py" and path.is_file() and folder.is_dir()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have; links in a circle
        there = False
    if not there:
        raise ScriptError(f"the script of the run does not exist any more ({ascii(words[0])[1:-1]}){give}")
    if not path.is_relative_to(current_folder()):
        raise ScriptError(f"the script of the run, {path}, is not in this folder, and a run can name any file{give}")
    for each in (path, folder):
        refuse_what_came_with_a_run(each)
    digest = digest_script(path)
    target = Target(FILE, str(path), tuple(words[1:]), digest)
    return RecordedScript(target, folder, tuple(_doubts(digest, info)))


def refuse_target_from_a_run(target: Target) -> None:
    """ScriptError where what the user named lies in a run folder. A module, and what a piece of code imports, is looked
    for in the current folder first."""
    main = main_file(target)
    places = [main] if main is not None else []
    if target.kind in (MODULE, CODE):
        places.append(current_folder())
    for place in places:
        refuse_what_came_with_a_run(place)


def refuse_what_came_with_a_run(path: Path) -> None:
    """ScriptError for a run folder and whatever lies in one: nothing there is started, whoever names it."""
    real = path.resolve()
    for folder in (real, *real.parents):
        if _is_run_folder(folder):
            raise ScriptError(
                f"{path} lies in a run folder ({folder}), and files in run folders are never started; copy it "
                "elsewhere first if you know what it does"
            )


def _is_run_folder(folder: Path) -> bool:
    """Also one that is damaged, or of which only a part was copied."""
    try:
        names = list_names(folder)
    except OSError:
        return False
    if any(FileName.parse(name) is not None for name in names):
        return True
    for name in names:
        if rank_of_run_file(name) is not None:
            try:
                read_info(folder / name)
                return True
            except NotARunError:  # another program's run.json
                continue
            except RunError:
                return True
    return RUN_FILE in names and "captures" in names


def _doubts(now: str, info: Mapping[str, Any]) -> list[str]:
    known = info.get("script_sha256")
    if not isinstance(known, str) or not known:
        changed = ["the run holds no checksum of its script, so the script may have changed"]
    elif now != known:
        changed = [f"the script has changed since the run (SHA-256 {now[:DIGITS] or 'unknown'}, was {known[:DIGITS]})"]
    else:
        changed = []
    foreign = "the run was not recorded by you on this machine, or was edited, so it may name any script and arguments"
    return [*changed, *([] if is_own(info) else [foreign])]
