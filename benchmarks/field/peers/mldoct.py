"""mldoct: `mldoctor check train.py` before the start. It reads the script and does not watch the training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from field.peers.wrapper import Statement, Wrapper

if TYPE_CHECKING:
    from pathlib import Path

SEVERITIES = {"CRITICAL": "error", "ERROR": "error", "WARNING": "warning", "INFO": "info"}


class Mldoct(Wrapper):
    requirement = "mldoct==1.0.0"
    severities = SEVERITIES
    watches_models = False

    def read(self, script: Path) -> Iterator[Statement]:
        from mldoctor.linter import lint_script  # what the command calls, before it draws a table

        for finding in lint_script(str(script))[0]:
            yield Statement(finding["type"], finding["severity"], finding["message"])


wrapper = Mldoct()
