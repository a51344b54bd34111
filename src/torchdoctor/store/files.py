"""Small files, written so that a kill does no harm."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

from torchdoctor.opening import NO_LINK
from torchdoctor.store.names import TEMPORARY


def write_all(descriptor: int, data: Any) -> None:
    view = memoryview(data).cast("B")
    while len(view):
        view = view[os.write(descriptor, view) :]


def replace_file(path: Path, data: bytes, shared: bool = False) -> None:
    """Write a small file so that readers see the old one or the new one, never a part. `shared`: others may write it at
    the same time, and one of them wins."""
    own = f".{os.getpid()}-{threading.get_ident()}" if shared else ""
    temporary = path.with_name(f"{path.name}{own}{TEMPORARY}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o666), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
