"""The record of a program that ended before it imported torch: how it ended, and what it takes to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchdoctor.attach.options import Options
from torchdoctor.attach.ranks import default_name, free_name
from torchdoctor.run import Run


def record_without_torch(
    options: Options, argv: Sequence[str], status: str, exception: dict[str, Any] | None = None
) -> Run:
    """Write a run that holds no measurements, and read it back. Called when the program has ended."""
    from torchdoctor.store.environment import describe
    from torchdoctor.store.reader import open_run
    from torchdoctor.store.writer import Recorder

    name = free_name(Path(options.out), options.name or default_name())
    info = {**describe(argv), "name": name}
    recorder = Recorder.create(options.directory(name), info, cap_bytes=options.cap_bytes)
    if exception is not None:
        recorder.update_info(exception=exception)
    recorder.close(status)
    return open_run(options.directory(name))
