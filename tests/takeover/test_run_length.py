from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from torchdoctor.takeover.run_length import RunLength, find_length

PARTS = """
def fetch():
    report(look())
    return 1


def look():
    frame, found = sys._getframe(1), []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


class Loader:
    def __init__(self, count=3):
        self.count = count

    def __iter__(self):
        for _ in range(self.count):
            yield fetch()


def forever(loader):
    while True:
        for batch in loader:
            yield batch


"""


def length_of(body: str, folder: Path) -> RunLength:
    """What is said when the body asks for its first batch; its loader is nobody's code."""
    library, script = folder / "site-packages" / "library.py", folder / "train.py"
    library.parent.mkdir()
    library.write_text(PARTS)
    script.write_text(body)
    told: list[RunLength] = []

    def report(frames: list[FrameType]) -> None:
        told.append(find_length(frames))
        raise StopAsyncIteration

    names: dict[str, Any] = {"sys": sys, "report": report, "__name__": "__main__"}
    exec(compile(PARTS, str(library), "exec"), names)
    names["loader"] = names["Loader"]()
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        exec(compile(body, str(script), "exec"), names)
    return told[0]


EPOCHS = """
for epoch in range(7):
    for batch in loader:
        pass
"""
IN_FUNCTIONS = """
def train_epoch(data):
    for i, batch in enumerate(data):
        pass

def main(epochs=7):
    for fold in [1, 2]:
        for epoch in range(1, epochs + 1):
            train_epoch(loader)
main()
"""
BY_HAND = """
def train_epoch():
    it = iter(loader)
    while True:
        batch = next(it)
for epoch in range(7):
    train_epoch()
"""
STEPS = """
it = iter(loader)
for step in range(1000):
    try:
        batch = next(it)
    except StopIteration:
        it = iter(loader)
"""
ACCUMULATED = """
it = iter(loader)
for step in range(1000):
    for part in range(4):
        batch = next(it)
"""
ENDLESS = """
def cycle(data):
    while True:
        for batch in data:
            yield batch
batches = cycle(loader)
for step in range(1000):
    batch = next(batches)
"""
ZIPPED = "for step, batch in zip(range(1000), forever(loader)):\n    pass\n"
UNKNOWN = "while True:\n    for batch in loader:\n        pass\n"


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (EPOCHS, RunLength(epochs=7)),
        (IN_FUNCTIONS, RunLength(epochs=7)),
        (BY_HAND, RunLength(epochs=7)),
        (STEPS, RunLength(batches=1000)),
        (ACCUMULATED, RunLength(batches=4000)),
        (ENDLESS, RunLength(batches=1000)),
        (ZIPPED, RunLength(batches=1000)),
        (UNKNOWN, RunLength()),
    ],
    ids=["epochs", "functions", "by-hand", "steps", "accumulated", "endless", "zipped", "unknown"],
)
def test_what_a_loop_counts(body: str, length: RunLength, tmp_path: Path) -> None:
    assert length_of(body, tmp_path) == length


@pytest.mark.parametrize(
    ("asked", "length"),
    [({"max_steps": -1, "num_train_epochs": 3.0}, RunLength(epochs=3)), ({"max_steps": 60}, RunLength(updates=60))],
)
def test_as_a_trainer_says(asked: dict[str, float], length: RunLength) -> None:
    class Arguments:
        num_train_epochs = 3.0

    class Trainer:
        args = Arguments()

        def train(self) -> FrameType:
            return sys._getframe()

    vars(Trainer.args).update(asked)
    assert find_length([Trainer().train()]) == length
