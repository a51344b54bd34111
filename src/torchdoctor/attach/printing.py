"""Numbers that the script prints or logs beside a metric's name: all that can be known of a metric computed by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchdoctor import signals
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.session import Session

LONGEST_TEXT = 2000
NAMES_KEPT = 32
"""Different names that are followed."""
ROUNDED = 0.0051
"""What a share that is printed with two digits is off by, at most."""

_METRIC = re.compile(r"acc|f1|r2|recall|precision")
_TOKEN = re.compile(
    r"(?P<word>[a-z][a-z0-9@-]*)|(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?:/(?P<of>\d+))?\s*(?P<percent>%?)"
)
_PHASE = re.compile(r"^(train|tr$|val|test|eval|dev)")


class PrintSites:
    """Handlers for print and for records of the logging module."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._last: dict[str, tuple[int, float]] = {}

    @guarded("text printed")
    def printed(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        """Only text and plain numbers are read: what else is printed may be dear to turn into text."""
        session = self.session
        if session.loop.backwards or session.unused_losses.waiting:
            text = " ".join(str(a) for a in args if type(a) in (str, int, float))
            (self.take if session.loop.backwards else session.unused_losses.printed)(text)

    @guarded("text logged")
    def logged(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        record = args[1] if len(args) > 1 else None
        if record is None or record.name.startswith("torchdoctor"):
            return
        session = self.session
        if not session.loop.backwards and not session.unused_losses.waiting:
            return
        if isinstance(record.args, tuple) and all(type(a) in (str, int, float) for a in (record.msg, *record.args)):
            (self.take if session.loop.backwards else session.unused_losses.printed)(record.getMessage())

    def take(self, text: str) -> None:
        """Record the metrics that this text speaks of."""
        if len(text) > LONGEST_TEXT or not _METRIC.search(text.lower()):
            return
        step = self.session.loop.updates
        for name, value in read_metrics(text):
            if not self._is_told_again(name, step, value) and (name in self._last or len(self._last) < NAMES_KEPT):
                self._last[name] = (step, value)
                self.session.record.scalar(signals.PRINTED.name, step, value, name)

    def _is_told_again(self, name: str, step: int, value: float) -> bool:
        """Printed, rounded or as a percentage, and given to a logger, too."""
        at, before = self._last.get(name, (-1, 0.0))
        return at == step and any(abs(before * factor - value) <= ROUNDED * factor for factor in (1.0, 100.0, 0.01))


def read_metrics(text: str) -> Iterator[tuple[str, float]]:
    """Names of metrics and the numbers after them, percentages and fractions as shares. A name that does not say which
    phase it belongs to takes the last phase that the text spoke of."""
    words: list[str] = []
    phase = ""
    for token in _TOKEN.finditer(text.lower().replace("_", " ").replace("²", "2")):
        word = token["word"]
        if word:
            words.append(word)
            phase = word if _PHASE.match(word) else phase
            continue
        name = " ".join(words[-3:])
        if words and _METRIC.search(name):
            if phase and phase not in words[-3:]:
                name = f"{phase} {name}"
            value = float(token["value"]) / (float(token["of"] or 1) or 1)
            yield name, value / 100 if token["percent"] else value
        words = []
