"""What is wrong here? A curve without its name, and four answers to choose from."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from torchdoctor.lab.gallery.exhibits import EXHIBITS, Exhibit, Training

ANSWERS = 4
HEALTHY = "healthy"


@dataclass(frozen=True)
class Question:
    training: Training
    answer: Exhibit
    options: tuple[Exhibit, ...]
    """the right one among them, in the gallery's order"""


def ask(seed: int, ready: Collection[str], last: str = "") -> Question | None:
    """Of the trainings that are ready, by name; not the one asked last. None where there is none.

    Twins are healthy, so that not every healthy curve is the same one.
    """
    draw = random.Random(seed)
    held = _among(ready)
    if not held:
        return None
    others = _among({name for name in ready if name != last}) or held
    answer = draw.choice(list(others))
    training = draw.choice(others[answer])
    wrong = draw.sample([name for name in EXHIBITS if name != answer], ANSWERS - 1)
    options = tuple(exhibit for name, exhibit in EXHIBITS.items() if name == answer or name in wrong)
    return Question(training, EXHIBITS[answer], options)


def _among(ready: Collection[str]) -> dict[str, list[Training]]:
    """Those trainings by their answer."""
    found: dict[str, dict[str, Training]] = {}
    for name, exhibit in EXHIBITS.items():
        for answer, training in ((name, exhibit.training), (HEALTHY, exhibit.twin)):
            if training is not None and training.name in ready:
                found.setdefault(answer, {})[training.name] = training
    return {answer: list(each.values()) for answer, each in found.items()}
