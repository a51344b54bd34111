"""A verdict in the format that was asked for: text, json, markdown, sarif or github."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from torchdoctor.findings import Verdict
from torchdoctor.report import github, json, markdown, sarif
from torchdoctor.report.sheet import show
from torchdoctor.report.terminal import render
from torchdoctor.run import Run
from torchdoctor.settings import Settings


def dump(
    form: str,
    verdict: Verdict,
    run: Run | None = None,
    directory: Path | None = None,
    settings: Settings | None = None,
    flags: Sequence[str] = (),
) -> str:
    """The whole text, with a line end."""
    if form == "text":
        paper = io.StringIO()
        show(render(verdict, run, directory=directory, settings=settings, flags=flags), paper)
        return paper.getvalue()
    writers = {"json": json.dump, "markdown": markdown.dump, "sarif": sarif.dump, "github": github.dump}
    return writers[form](verdict)
