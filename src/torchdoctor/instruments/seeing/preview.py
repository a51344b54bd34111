"""Batches as the model sees them, those of training beside those of validation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.one_batch import is_batch
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.seeing.samples import Array, Names, Pick, Samples, describe_target, spell
from torchdoctor.instruments.tables import table
from torchdoctor.plots.sample_kinds import KINDS
from torchdoctor.plots.sample_values import Measure, describe_splits
from torchdoctor.plots.samples import Group, draw_samples

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from torchdoctor.plots.chart import Chart

TRAINING, VALIDATION = "training", "validation"
MOST_CLASSES = 20
"""Different targets up to which each is counted."""


@dataclass(frozen=True)
class Split:
    """What the batches of one split hold, as the model gets them."""

    name: str
    samples: int
    shape: tuple[int, ...] | None
    """of a sample; None where they differ"""
    type: str
    low: float
    high: float
    mean: float
    spread: float
    not_finite: int
    channel_means: list[float]
    """by channel, or by column of a table; empty where samples differ in them"""
    channel_spreads: list[float]
    padding: float | None
    """share of the positions of token ids"""
    targets: dict[str, int]
    """how often each is there; empty where they are no classes"""


@dataclass(frozen=True)
class Preview(Result):
    """`str()` says what the model gets and how the splits differ; `plot()` shows it."""

    title: str
    kind: str
    """image, series, tokens or table"""
    input: str
    """name of the tensor that is shown, where a batch holds several"""
    splits: list[Split]
    groups: Sequence[Group] = field(repr=False, default=())
    """the samples that are shown"""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = ("", "samples", "shape", "type", "range", "mean", "spread", "not finite")
        rows = [_row(split) for split in self.splits]
        lines = [f"{self.title}.", "", *table(head, rows)]
        for split in self.splits:
            if split.targets:
                counts = ", ".join(f"{name}: {count}" for name, count in split.targets.items())
                lines.append(f"  targets in {split.name}: {counts}")
        if self.input and not self.input.startswith("["):
            lines.append(f"  shown: {self.input}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def chart(self) -> Chart:
        return draw_samples("batches", self.title, self.groups, self.kind)

    def plot(self, theme: str = "light") -> Figure:
        return self.chart().figure(theme)

    def to_dict(self) -> dict[str, Any]:
        """Without the samples themselves."""
        kept = super().to_dict()
        del kept["groups"]
        return kept


@unseen()
def preview_batches(
    train_loader: Iterable[Any],
    val_loader: Iterable[Any] | None = None,
    *,
    samples: int = 9,
    batches: int = 4,
    class_names: Names = None,
    columns: Sequence[str] = (),
    decode: Any = None,
    pick: Pick | None = None,
    kind: str | None = None,
) -> Preview:
    """What comes out of the loaders, after all transforms and not undone: on one scale, so that a difference in
    preprocessing shows.

    Of the first `batches` of each loader the values are measured, and the first `samples` shown. `pick(batch)` chooses
    the tensor, where the one with most numbers is not meant; `kind` is image, series, tokens or table, where that
    cannot be told by its shape. `decode`: a tokenizer, or a function from a list of ids to text. Loaders stay where
    they are, and so does the random state.
    """
    if samples < 1 or batches < 1:
        raise UsageError(f"samples is {samples} and batches {batches}; at least 1 of each is needed")
    sources = [(TRAINING, train_loader), *([(VALIDATION, val_loader)] if val_loader is not None else [])]
    if kind is not None and kind not in KINDS:
        raise UsageError(f"kind is {kind!r}; known are {', '.join(KINDS)}")
    read: list[tuple[str, Samples]] = []
    for name, loader in sources:
        found = begin_split(read, samples, kind)
        for batch in [loader] if is_batch(loader) else first_batches(loader, batches, f"the {name} loader"):
            found.add(batch, pick)
        read.append((name, found))
    return summarise(read, samples, class_names, columns, decode)


def begin_split(read: Sequence[tuple[str, Samples]], shown: int, kind: str | None = None) -> Samples:
    """For the batches of a split: those of a further one are taken to be what the first one's are."""
    return Samples(keep=shown, measured=Measure(read[0][1].measured.kind if read else kind))


def summarise(
    read: Sequence[tuple[str, Samples]],
    shown: int,
    class_names: Names = None,
    columns: Sequence[str] = (),
    decode: Any = None,
    notes: Sequence[str] = (),
) -> Preview:
    for name, found in read:
        if not found.measured.samples:
            raise UsageError(f"the {name} batches hold no sample; is the dataset empty, or is a filter too strict?")
    return Preview(
        title=describe_splits([name for name, _ in read], [found.measured for _, found in read]),
        kind=read[0][1].measured.kind,
        input=read[0][1].name,
        splits=[_measure(name, found, class_names) for name, found in read],
        groups=[group for name, found in read for group in _show(name, found, shown, class_names, columns, decode)],
        notes=list(notes),
    )


def _measure(name: str, found: Samples, names: Names) -> Split:
    values, shapes = found.measured.values, list(found.measured.shapes)
    told = [describe_target(t, names) for t in found.targets]
    counted = {t: told.count(t) for t in sorted(set(told), key=_order)} if len(set(told)) <= MOST_CLASSES else {}
    return Split(
        name=name,
        samples=values.samples,
        shape=shapes[0] if len(shapes) == 1 else None,
        type=found.type,
        low=values.low,
        high=values.high,
        mean=values.mean,
        spread=values.spread,
        not_finite=values.not_finite,
        channel_means=values.means.tolist(),
        channel_spreads=values.spreads.tolist(),
        padding=values.padding,
        targets=counted if "" not in counted else {},
    )


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return np.inf, text


def _show(name: str, found: Samples, count: int, names: Names, columns: Sequence[str], decode: Any) -> list[Group]:
    arrays = found.inputs[:count]
    captions = [describe_target(t, names) for t in found.targets[:count]]
    groups = [Group(name, arrays, captions, columns=columns, words=spell(arrays, decode))]
    if found.targets and _is_drawn(found.targets[0]):
        groups.append(Group(f"{name} targets", found.targets[:count], quantity="targets"))
    return groups


def _is_drawn(target: Array) -> bool:
    """Masks and pictures: nothing that a few words say."""
    return target.ndim >= 2 and target.size > 1


def _row(split: Split) -> tuple[str, ...]:
    shape = " x ".join(map(str, split.shape)) if split.shape else "differs" if split.shape is None else "number"
    numbers = (f"{split.low:.4g} to {split.high:.4g}", f"{split.mean:.3g}", f"{split.spread:.3g}")
    return (split.name, str(split.samples), shape, split.type, *numbers, str(split.not_finite))
