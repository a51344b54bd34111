"""Making room for a resumed run: earlier sessions keep a digest each, and lose the segments it stands for."""

from __future__ import annotations

import contextlib

from torchdoctor.store.compaction import MATRIX_TABLES, Job
from torchdoctor.store.digest import Name, write_digest
from torchdoctor.store.history import State
from torchdoctor.store.names import DIGEST, FileName
from torchdoctor.store.segments import SegmentSet
from torchdoctor.store.sessions import MovedError, Session


def condense_earlier(segments: SegmentSet, most: float) -> Job:
    """Bring all earlier sessions of this rank together under `most` bytes, as far as digests can."""
    keys = sorted({(n.session, n.pid) for n in segments.earlier})
    for key in keys:
        names = [n for n in segments.earlier if (n.session, n.pid) == key]
        if any(n.table in MATRIX_TABLES for n in names):
            with contextlib.suppress(MovedError):
                yield from _condense(segments, names, most / len(keys))


def _condense(segments: SegmentSet, names: list[FileName], most: float) -> Job:
    session = Session(segments.folder, names)
    states: dict[Name, State] = {}
    for name in sorted(session.names):
        history = session.feed(None, name, 0)
        if history is not None:
            while history.state().nbytes > most / len(session.names) and history.shrink():
                pass
            states[name] = history.state()
        yield
    cut = max(n.number for n in names) + 1
    digest = FileName(DIGEST, names[0].rank, names[0].session, names[0].pid, cut)
    path = segments.folder / str(digest)
    yield from write_digest(path, states, (session.first_step, session.last_step))
    segments.earlier[digest] = path.stat().st_size
    for old in names:
        if old.table in MATRIX_TABLES or old.table == DIGEST:
            with contextlib.suppress(OSError):
                (segments.folder / str(old)).unlink()
            segments.earlier.pop(old, None)
            yield
