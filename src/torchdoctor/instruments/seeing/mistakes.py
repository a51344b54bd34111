"""The samples that a model fails on most, to look at: a wrong label, a cut picture and a hard case are told by eye."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.evaluation import Evaluation, evaluate
from torchdoctor.instruments.evaluating.forms import REGRESSION
from torchdoctor.instruments.evaluating.indices import with_indices
from torchdoctor.instruments.evaluating.predictions import Worst
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.seeing.samples import Array, Names, Pick, Samples, spell
from torchdoctor.instruments.state import Randomness
from torchdoctor.instruments.tables import table
from torchdoctor.plots.samples import Group, draw_samples

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from torchdoctor.plots.chart import Chart

SURE = 0.9
"""Confidence of a wrong answer from which on a label is worth a look, too."""
COMMON = 0.4
"""Share of the mistakes shown that one confusion must have to be named."""


@dataclass(frozen=True)
class Mistakes(Result):
    """`str()` lists them, `plot()` shows them."""

    title: str
    task: str
    samples: int
    """that were judged"""
    wrong: int | None
    """of them, where an answer is right or wrong"""
    worst: list[Worst]
    """largest loss first"""
    index: str
    """what their index counts"""
    loss_name: str
    kind: str | None = None
    group: Group | None = field(repr=False, default=None)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = ("sample", "loss", "is", "said", "confidence")
        rows = [(str(w.index), f"{w.loss:.4g}", *_words(w)) for w in self.worst]
        counted = f"  the loss is {self.loss_name}; samples are named by their {self.index}"
        return "\n".join([f"{self.title}.", "", *table(head, rows), counted, *(f"note: {n}" for n in self.notes)])

    def chart(self) -> Chart:
        return draw_samples("mistakes", self.title, [self.group] if self.group is not None else [], self.kind)

    def plot(self, theme: str = "light") -> Figure:
        return self.chart().figure(theme)

    def to_dict(self) -> dict[str, Any]:
        """Without the samples themselves."""
        kept = super().to_dict()
        del kept["group"]
        return kept


@unseen()
def worst_mistakes(
    model: nn.Module,
    loader: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    samples: int = 12,
    class_names: Names = None,
    columns: Any = (),
    decode: Any = None,
    pick: Pick | None = None,
    kind: str | None = None,
    **options: Any,
) -> Mistakes:
    """The `samples` of the largest loss, as the model gets them, with what they are and what it says.

    The model is judged by `torchdoctor.evaluate`, which takes the other options (`step_fn`, `task`, `output_fn`,
    `target_fn`, `batches` and the like). `pick`, `kind`, `columns` and `decode` are those of
    `torchdoctor.preview_batches`. The loader is walked through twice, the second time as the first; nothing is changed.
    """
    if samples < 1:
        raise UsageError(f"samples is {samples}; at least 1 is needed")
    found = evaluate(model, loader, loss_fn, worst=samples, class_names=class_names, **options)
    shown = find_samples(loader, found.worst, pick)
    return show_mistakes(found, shown, columns, decode, kind)


def find_samples(
    loader: Iterable[Any],
    wanted: Iterable[Worst],
    pick: Pick | None = None,
    read: Callable[[Samples, Any], None] | None = None,
) -> dict[int, Array]:
    """Inputs by position, from a second walk that draws what the first one drew: one that does not is known by its
    indices, and not shown. `read(samples, batch)` takes the samples of a batch, where they are not in it as the model
    gets them."""
    missing, passed, known = {w.position: w.index for w in wanted}, 0, True
    found: dict[int, Array] = {}
    randomness = Randomness(loader)
    try:
        for batch, indices in with_indices(loader):
            if not missing:
                break
            rows = Samples()
            if read is None:
                rows.add(batch, pick)
            else:
                drawn = Randomness()
                read(rows, batch)
                drawn.put_back()  # what the model draws, the loader would draw no more
            known &= indices is not None and len(indices) == len(rows.inputs)
            for at, row in enumerate(rows.inputs):
                index = missing.pop(passed + at, None)
                if index is not None and (not known or indices is None or indices[at] == index):
                    found[passed + at] = row
            passed += len(rows.inputs)
    finally:
        randomness.put_back()
    return found


def show_mistakes(
    found: Evaluation, shown: dict[int, Array], columns: Any = (), decode: Any = None, kind: str | None = None
) -> Mistakes:
    drawn = [w for w in found.worst if w.position in shown]
    arrays = [shown[w.position] for w in drawn]
    captions = [_caption(w, found.task) for w in drawn]
    group = Group("", arrays, captions, columns=columns, words=spell(arrays, decode)) if arrays else None
    wrong = _count_wrong(found)
    return Mistakes(
        title=_title(found, wrong),
        task=found.task,
        samples=found.samples,
        wrong=wrong,
        worst=found.worst,
        index=found.index,
        loss_name=found.loss_name,
        kind=kind,
        group=group,
        notes=[*found.notes, *_lost(len(found.worst) - len(drawn))],
    )


def _lost(count: int) -> list[str]:
    if not count:
        return []
    what = "sample is" if count == 1 else "samples are"
    return [f"{count} {what} not shown: walked through again, the loader draws others"]


def is_wrong(worst: Worst, task: str) -> bool:
    return task != REGRESSION and worst.target is not None and worst.target != worst.prediction


def _count_wrong(found: Evaluation) -> int | None:
    if found.confusion is None or found.confusion.ndim != 2 or found.elements != found.samples:
        return None
    return int(found.confusion.sum() - found.confusion.trace())


def _title(found: Evaluation, wrong: int | None) -> str:
    worst = found.worst
    share = f" ({wrong} of {found.samples} are wrong)" if wrong is not None else ""
    if not worst:
        return f"No sample was judged{share}"
    if found.task == REGRESSION or worst[0].target is None:
        middle = found.metrics.get("loss")
        typical = f", {middle.value:.3g} on average" if middle is not None else ""
        return f"The {len(worst)} samples of the largest loss: {worst[-1].loss:.3g} to {worst[0].loss:.3g}{typical}"
    mistakes = [w for w in worst if is_wrong(w, found.task)]
    if not mistakes:
        return f"Of {found.samples} samples none is wrong; these are the {len(worst)} of the largest loss"
    pairs = [(_value(w.target), _value(w.prediction)) for w in mistakes]
    common = max(pairs, key=pairs.count)
    if pairs.count(common) > max(1, COMMON * len(mistakes)):
        return f"{_of(pairs.count(common), mistakes)} take {common[0]} for {common[1]}{share}"
    said = [answer for _, answer in pairs]
    often = max(said, key=said.count)
    if said.count(often) > max(1, len(said) / 2):
        return f"{_of(said.count(often), mistakes)} are taken for {often}{share}"
    sure = [w for w in mistakes if w.confidence is not None and w.confidence >= SURE]
    if sure:
        least = min(w.confidence or 0.0 for w in sure)
        return f"{_of(len(sure), mistakes)} are made with {least:.0%} confidence or more{share}"
    return f"The {len(mistakes)} worst mistakes{share}"


def _of(count: int, mistakes: list[Worst]) -> str:
    whole = len(mistakes)
    return f"All {whole} worst mistakes" if count == whole > 1 else f"{count} of the {whole} worst mistakes"


def _caption(worst: Worst, task: str) -> str:
    """Two short lines: what it is and what is said, and how sure that is or how far off."""
    if worst.target is None:
        return f"{worst.prediction or ''}\nloss {worst.loss:.3g}".strip()
    is_, said, sure = _words(worst)
    first = f"{is_} → {said}" if task == REGRESSION or is_wrong(worst, task) else f"{is_} (right)"
    return f"{first}\n{sure or f'loss {worst.loss:.3g}'}"


def _words(worst: Worst) -> tuple[str, str, str]:
    sure = f"{worst.confidence:.0%}" if worst.confidence is not None else ""
    return _value(worst.target), _value(worst.prediction), sure


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
