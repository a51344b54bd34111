"""The captures of a run in words: which step, why, what they hold, which steps lead up to it, how to run it again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchdoctor.errors import CaptureError
from torchdoctor.facts import BirthFact
from torchdoctor.kept.batches import batches_of, has_inputs, leaves_of, missing_from
from torchdoctor.report.replayed import SAMPLES_SHOWN, moment
from torchdoctor.report.text import clean, count, listed, size
from torchdoctor.run import Run
from torchdoctor.store.captured import Capture, open_capture
from torchdoctor.store.captures import CaptureEntry, list_captures
from torchdoctor.store.replays import Replayed

MOST = 12
"""Captures that a page shows; a run keeps five unless told otherwise."""
REASONS = {
    "nonfinite": "the loss or a gradient was not finite",
    "spike": "the loss jumped",
    "exception": "the script ended with an exception",
    "asked": "the script asked for it",
}
RANDOM = ("torch", "cuda", "python", "numpy")
LEFT_OUT_SHOWN = 3


def describe_captures(folder: Path, run: Run | None, replays: Sequence[Replayed]) -> list[dict[str, Any]]:
    """By step; one that cannot be read is listed with what is wrong with it."""
    marks = mark_samples(run, replays)
    return [describe_capture(folder, entry, marks.get(entry.name.step, [])) for entry in list_captures(folder)[:MOST]]


def mark_samples(run: Run | None, replays: Sequence[Replayed]) -> dict[int, list[int]]:
    """By step, the samples in which the first NaN or Inf was made: as the run itself found, else as a replay did."""
    found: dict[int, list[int]] = {}
    births = run.facts_at(BirthFact) if run is not None else []
    again = [(replayed.step, replayed.birth) for replayed in replays if replayed.birth is not None]
    for step, birth in (*births, *again):
        if birth.samples:
            found.setdefault(step, list(birth.samples))
    return found


def describe_capture(folder: Path, entry: CaptureEntry, marked: Sequence[int]) -> dict[str, Any]:
    name = entry.name
    told: dict[str, Any] = {
        "name": str(name),
        "step": f"{name.step:,}",
        "reason": REASONS.get(name.reason, f"asked for: {name.reason.replace('_', ' ')}"),
        "rank": str(name.rank) if name.rank else "",
        "size": size(entry.size_bytes),
        "command": replay_command(folder, name.step),
        "marked": ", ".join(map(str, marked[:SAMPLES_SHOWN])),
        "when": "",
        "rows": [],
        "problem": "",
    }
    try:
        with open_capture(entry.path) as capture:
            return told | {"when": moment(capture.document["when"]), "rows": _rows(capture)}
    except CaptureError as error:
        return told | {"problem": clean(str(error))}


def replay_command(folder: Path, step: int) -> str:
    """To copy: from the folder in which the script was started it works as it stands."""
    return f"torchdoctor replay {shlex.quote(clean(near(folder)))} --step {step}"


def near(path: Path) -> str:
    """As short as the current folder allows."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path.absolute())


def _rows(capture: Capture) -> list[tuple[str, str]]:
    document = capture.document
    found = [
        ("batch", _batch(capture)),
        ("weights", _tensors(capture, ("parameter", "buffer"), "tensor")),
        ("optimizer", _optimizer(capture)),
        ("random state", ", ".join(key for key in RANDOM if document["random"].get(key))),
        ("leads up to it", _lead(document)),
        ("left out", _left_out(document.get("left_out"))),
    ]
    return [(name, text) for name, text in found if text]


def _batch(capture: Capture) -> str:
    batches = batches_of(capture)
    if not batches:
        return "not in this capture"
    said = listed([leaf.words for leaf in leaves_of(capture, batches[-1])], most=6) or "no tensor"
    before = f"; and {count(len(batches) - 1, 'batch', 'batches')} before it" if len(batches) > 1 else ""
    said = said if has_inputs(capture) else f"its targets alone: {said}"
    return said + before + ("; a part of a type that is not captured" if missing_from(batches[-1]) else "")


def _tensors(capture: Capture, prefixes: tuple[str, ...], noun: str) -> str:
    held = [entry for name, entry in capture.tensors.items() if name.partition("/")[0] in prefixes]
    return f"{count(len(held), noun)}, {size(sum(e.stop - e.start for e in held))}" if held else ""


def _optimizer(capture: Capture) -> str:
    kinds = Counter(clean(str(each["type"])[:60]) for each in capture.document["optimizers"])
    if not kinds:
        return ""
    named = listed([kind if times == 1 else f"{times} {kind}" for kind, times in kinds.items()])
    state = _tensors(capture, ("optimizer",), "tensor")
    return f"{named}, with its state of {state}" if state else f"{named}, without a state"


def _lead(document: Mapping[str, Any]) -> str:
    steps = [step["step"] for step in document.get("steps") or []]
    if len(steps) > 1:
        return f"steps {steps[0]:,} to {steps[-1]:,}, each with its batch; weights are those before step {steps[0]:,}"
    late = document["taken_at_step"] - document["step"]
    if not steps and late > 0:
        return f"nothing: it was known {count(late, 'step')} later, and the weights are from then"
    return "the step itself; weights are those that it began with"


def _left_out(held: Any) -> str:
    if not isinstance(held, dict) or not held:
        return ""
    said = [f"{clean(str(name)[:80])} ({clean(str(why)[:120])})" for name, why in list(held.items())[:LEFT_OUT_SHOWN]]
    more = len(held) - len(said)
    return "; ".join(said) + (f"; and {more:,} more" if more > 0 else "")
