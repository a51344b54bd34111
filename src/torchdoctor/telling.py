"""A recorded run made ready to be shown: opened, examined, drawn; and two of them against each other.

The report and the live page both show what comes from here. Never imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchdoctor.compare import compare
from torchdoctor.engine import examine
from torchdoctor.errors import CaptureError
from torchdoctor.kept.captures import describe_captures, mark_samples
from torchdoctor.kept.preflight import describe_preflight
from torchdoctor.kept.previews import draw_preview
from torchdoctor.plots import charts
from torchdoctor.plots.chart import Chart
from torchdoctor.plots.evidence import picture_of
from torchdoctor.plots.pairs import draw_pairs
from torchdoctor.report.html import Compared, Kept, Told, preview_name
from torchdoctor.report.pair_names import label_runs
from torchdoctor.report.replayed import describe_replay
from torchdoctor.report.text import clean
from torchdoctor.run import Run
from torchdoctor.settings import Settings
from torchdoctor.shelf import journal_of
from torchdoctor.store.captured import open_capture
from torchdoctor.store.captures import CaptureEntry, list_captures
from torchdoctor.store.reader import open_run
from torchdoctor.store.replays import read_replays
from torchdoctor.summary import summary


@dataclass(frozen=True)
class Opened:
    run: Run
    told: Told


def tell(directory: Path, run: Run | None = None, settings: Settings | None = None) -> Opened:
    """Everything that a page shows of a run; `run` where it is open already."""
    run = open_run(directory) if run is None else run
    verdict = examine(run, settings=settings)
    drawn = charts(run, verdict.findings)
    by_name = {chart.name: chart for chart in drawn}
    pictures = {f.name: c.name for f in verdict.findings if (c := picture_of(f, by_name)) is not None}
    return Opened(run, Told(directory.name, verdict, drawn, pictures, summary(run), journal_of(directory)))


def tell_kept(directory: Path, run: Run, previews: bool = False) -> Kept:
    """What lies beside the record; `previews`: with pictures of the captured batches."""
    replays = read_replays(directory)
    captures = describe_captures(directory, run, replays)
    marks = mark_samples(run, replays)
    drawn = [preview_capture(entry, marks) for entry in list_captures(directory)[: len(captures)]] if previews else []
    return Kept(
        captures,
        [describe_replay(replayed) for replayed in replays],
        describe_preflight(directory.absolute().parent, run),
        [chart for chart in drawn if chart is not None],
    )


def preview_capture(entry: CaptureEntry, marks: Mapping[int, Sequence[int]]) -> Chart | None:
    """None where nothing in it can be drawn; `describe_captures` says what is wrong with one that is damaged."""
    try:
        with open_capture(entry.path) as capture:
            return draw_preview(capture, marks.get(entry.name.step, ()), preview_name(str(entry.name)))
    except CaptureError:
        return None


def tell_apart(opened: Sequence[Opened]) -> Compared:
    """What differs between two runs in configuration, curves and findings."""
    first, second = opened
    names = (first.told.name, second.told.name)
    found = compare(first.run, second.run, names)
    labels = label_runs(names, found.differences)
    rows = [(clean(f"{d.part}: {d.name}"), _value(d.good), _value(d.bad)) for d in found.differences]
    stands = [[f.name for f in each.told.verdict.findings] for each in opened]
    for name in dict.fromkeys([*stands[0], *stands[1]]):
        if (name in stands[0]) != (name in stands[1]):
            rows.append((clean(f"finding: {name}"), *("stands" if name in held else "-" for held in stands)))
    return Compared(clean(found.conclusion), labels.whole, rows, draw_pairs(first.run, second.run, labels.short))


def _value(value: object) -> str:
    return "-" if value is None or value == "" else clean(str(value))
