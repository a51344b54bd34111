"""What two runs' records say differently: arguments, hyperparameters, data, code, packages, hardware, seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.facts import (
    TRAIN,
    ClipFact,
    Fact,
    InputsFact,
    LoaderFact,
    LossCallFact,
    ModelFact,
    SchedulerFact,
)
from torchdoctor.run import Run

PARTS: tuple[str, ...] = (
    "arguments",
    "configuration",
    "data",
    "code",
    "packages",
    "hardware",
    "environment",
    "seeds",
    "other",
)

_PART_OF = {
    "argv": "arguments",
    "git": "code",
    "script": "code",
    "packages": "packages",
    "python": "packages",
    "torch": "packages",
    "torchdoctor": "packages",
    "hardware": "hardware",
    "platform": "hardware",
    "machine": "hardware",
    "device": "hardware",
    "devices": "hardware",
    "environment": "environment",
    "torch_threads": "environment",
    "seeds": "seeds",
    "seed": "seeds",
}
_OF_THE_RUN_ITSELF = frozenset(
    """
    name id schema format version status started ended finished created updated pid host hostname user cwd directory
    path steps rank world_size duration seconds segments segment time options exit_code error dropped verdict overhead
    cap_bytes bytes hyperparameters process sessions thinned overhead_budget
    script_sha256 captures origin unread ranks
    """.split()  # noqa: SIM905 - one line a word would hide the list
)
"""Entries of run.json that differ between any two runs and say nothing about why they behave differently."""

SPEAK_ALONE = ("packages", "environment")
"""Entries whose names need no more words: numpy, OMP_NUM_THREADS."""
FIRST_BATCH = "first batch"
SCRIPT_FILE = "script file"
DIGITS = 12
"""Of a digest: as many as git shows of a commit."""
LONG_TEXT = 80
"""Longer texts, such as a git diff, are compared but shown by their size."""


@dataclass(frozen=True)
class Difference:
    """One entry that is not the same; None where a run does not have it."""

    part: str
    name: str
    good: Any
    bad: Any


def compare_records(good: Run, bad: Run) -> list[Difference]:
    """By part in the order of PARTS, then by name."""
    left, right = dict(_entries(good)), dict(_entries(bad))
    found = [
        Difference(part, name, _shown(left.get((part, name))), _shown(right.get((part, name))))
        for part, name in dict.fromkeys([*left, *right])
        if left.get((part, name)) != right.get((part, name))
    ]
    return sorted([*found, *_in_both(good, bad)], key=lambda d: (PARTS.index(d.part), d.name))


def _in_both(good: Run, bad: Run) -> Iterator[Difference]:
    """What says something only where both runs have it: the script's text, and as many samples as both batches hold."""
    scripts = [str(run.info.get("script_sha256") or "")[:DIGITS] for run in (good, bad)]
    if all(scripts) and scripts[0] != scripts[1]:
        yield Difference("code", SCRIPT_FILE, *scripts)
    batches = [tuple(f.fingerprints) if (f := _first_inputs(run)) is not None else () for run in (good, bad)]
    common = min(map(len, batches))
    if batches[0][:common] != batches[1][:common]:
        yield Difference("data", FIRST_BATCH, *(f"fingerprint {hash(b[:common]) & 0xFFFFFF:06x}" for b in batches))


def _entries(run: Run) -> Iterator[tuple[tuple[str, str], Any]]:
    for key, value in run.info.items():
        if key == "argv":
            yield from ((("arguments", name), v) for name, v in _arguments(value))
        elif key not in _OF_THE_RUN_ITSELF:
            part = _PART_OF.get(key, "other")
            yield from (((part, name.replace("_", " ") if name == key else name), v) for name, v in _flat(key, value))
    yield from _configuration(run)
    yield from _data(run)


def _configuration(run: Run) -> Iterator[tuple[tuple[str, str], Any]]:
    for model in _latest(run, ModelFact, "name").values():
        for field in ("type", "parameters", "trainable", "compiled"):
            yield ("configuration", f"{model.name or 'model'} {field}"), getattr(model, field)
    several = len(run.optimizers) > 1
    for optimizer in run.optimizers.values():
        name = f"optimizer {optimizer.key}" if several else "optimizer"
        yield ("configuration", name), optimizer.type
        for i, group in enumerate(optimizer.groups):
            where = f"{name} group {i}" if len(optimizer.groups) > 1 else name
            yield from ((("configuration", f"{where} {k}"), v) for k, v in group.items() if k != "params")
    for scheduler in _latest(run, SchedulerFact, "key").values():
        yield ("configuration", f"scheduler {scheduler.key}".strip()), scheduler.type
    clip = run.last_fact(ClipFact)
    if clip is not None:
        yield ("configuration", f"clipping by {clip.how}"), clip.threshold
    for call in _latest(run, LossCallFact, "phase").values():
        for field in ("function", "reduction", "label_smoothing"):
            yield ("configuration", f"{call.phase} loss {field}"), getattr(call, field)


def _data(run: Run) -> Iterator[tuple[tuple[str, str], Any]]:
    for loader in _latest(run, LoaderFact, "name").values():
        for field, value in asdict(loader).items():
            if field not in ("name", "phase"):
                part = "data" if field in ("samples", "dataset") else "configuration"
                yield (part, f"{loader.phase} loader {field.replace('_', ' ')}"), value
    first = _first_inputs(run)
    if first is not None:
        yield ("data", "input shape"), first.shape[1:]
        yield ("data", "input dtype"), first.dtype
    if not run.facts(LoaderFact):
        sizes = run.scalar(signals.BATCH_SIZE, TRAIN).first().values
        if len(sizes):
            yield ("configuration", "batch size"), int(np.median(sizes))


def _first_inputs(run: Run) -> InputsFact | None:
    return next((f for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input"), None)


def _latest(run: Run, kind: type[Fact], key: str) -> dict[str, Any]:
    return {getattr(f, key): f for f in run.facts(kind)}


def _arguments(argv: Any) -> Iterator[tuple[str, Any]]:
    """--lr 0.1, --lr=0.1 and lr=0.1 by name; flags alone are True; the rest by position."""
    if not isinstance(argv, Sequence) or isinstance(argv, str):
        return
    words = [str(w) for w in argv]
    position = 0
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        name, equals, value = word.partition("=")
        if equals and name:
            yield name, value
        elif word.startswith("-") and not _is_number(word):
            if i < len(words) and (not words[i].startswith("-") or _is_number(words[i])):
                yield word, words[i]
                i += 1
            else:
                yield word, True
        else:
            yield ("script" if position == 0 else f"argument {position}"), word
            position += 1


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(str(key) if name in SPEAK_ALONE else f"{name} {key}", inner)
    else:
        yield name, value


def _shown(value: Any) -> Any:
    if isinstance(value, str) and (len(value) > LONG_TEXT or "\n" in value):
        return f"{len(value.splitlines()):,} lines, {len(value):,} characters"
    return value
