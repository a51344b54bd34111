"""What a model gets right and wrong: by class and by slice, how sure it is, and the samples it fails on most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Subset

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.attributes import Slices
from torchdoctor.instruments.evaluating.calibration import Calibration
from torchdoctor.instruments.evaluating.forms import REGRESSION
from torchdoctor.instruments.evaluating.indices import has_indices, shuffles, with_indices
from torchdoctor.instruments.evaluating.judged import Choices, ClassScore, Confused, NumberScore
from torchdoctor.instruments.evaluating.metrics import Estimate, Ints
from torchdoctor.instruments.evaluating.predictions import Worst
from torchdoctor.instruments.evaluating.reading import Reading, Wishes, as_tensor, compare, left_out
from torchdoctor.instruments.evaluating.residuals import Residuals
from torchdoctor.instruments.evaluating.slicing import SliceScore, judge_slices
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import StepFn, Subject, copied

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

IN_DATASET, IN_ORDER, IN_ARRAYS = "index in the dataset", "position in the loader's order", "row of the arrays"
IN_SUBSET = "index in the loader's Subset, whose .indices have that in the whole dataset"


@dataclass(frozen=True)
class Evaluation(Result):
    """`str()` says how good the model is and where it fails; the fields hold all of it."""

    task: str
    scores: str
    """what the outputs were taken to be: logits, probabilities, log-probabilities or decisions; empty for numbers"""
    samples: int
    elements: int
    """decisions: samples, tokens, pixels, or labels of all samples"""
    metrics: dict[str, Estimate]
    baseline: float
    """accuracy (of numbers the RMSE) of the best constant answer"""
    baseline_text: str
    class_names: tuple[str, ...]
    confusion: Ints | None
    """(C, C) with the true classes as rows; (K, 2, 2) for labels; None for numbers"""
    confused: tuple[Confused, ...]
    """most frequent first"""
    classes: tuple[ClassScore, ...]
    numbers: tuple[NumberScore, ...]
    slices: list[SliceScore]
    """those worse than the rest beyond chance first"""
    calibration: Calibration | None
    residuals: Residuals | None
    worst: list[Worst]
    """samples of the largest loss"""
    index: str
    """what their index counts"""
    loss_name: str
    level: float
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        from torchdoctor.instruments.evaluating.text import describe

        return describe(self)

    def plot(self, kind: str | None = None) -> Figure:
        """`confusion`, `calibration`, `slices` or `residuals`; without it, what matters most here."""
        from torchdoctor.instruments.evaluating.figures import draw

        return draw(self, kind)


@unseen()
@explained
def evaluate(
    model: nn.Module,
    loader: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    step_fn: StepFn | None = None,
    task: str | None = None,
    scores: str | None = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    slices: Slices | None = None,
    slice_parts: int = 5,
    k: int | Sequence[int] = (10, 100),
    top: int | Sequence[int] = (5,),
    worst: int = 10,
    level: float = 0.95,
    bins: int = 15,
    binning: str = "uniform",
    threshold: float = 0.5,
    ignore_index: int | None = None,
    output_fn: Callable[[Any], Any] | None = None,
    target_fn: Callable[[Any], Any] | None = None,
    shift: bool | None = None,
    batches: int | None = None,
    autocast: torch.dtype | None = None,
    progress: bool = True,
) -> Evaluation:
    """Run the model over a loader in eval mode and judge what it predicts.

    The task is found from outputs, targets and the loss function: one of many classes (logits, probabilities or
    log-probabilities), yes or no from one score, several labels, numbers, or a class for each token or pixel; `task`
    and `scores` tell it. `slices`: a function of the batch, a column's name, one value for each sample of the dataset,
    or several of these by name; numbers are cut into `slice_parts`. `k` is for precision at k, `top` for the accuracy
    of the first few guesses. `output_fn(outputs)` and `target_fn(batch)` pick what is compared, where that is not
    plain; with a `step_fn`, `target_fn` is needed. `shift`: outputs at one position belong to the next token; found
    where labels are the input ids, and said in a note. The loss by sample is that of `loss_fn` where it gives one, else
    that of the task.

    Intervals hold with `level`. Those of shares are Wilson's; tokens of a sample count together. Nothing is changed.
    """
    subject = Subject(model, loss_fn, step_fn=step_fn, autocast=autocast)
    choices = _choose(k, top, level, bins, binning)
    wishes = Wishes(
        task=task,
        scores=scores,
        class_names=class_names,
        slices=slices,
        slice_parts=slice_parts,
        worst=worst,
        threshold=threshold,
        ignore_index=ignore_index,
        choices=choices,
        output_fn=output_fn,
        target_fn=target_fn,
        shift=shift,
        batches=batches,
        progress=progress,
    )
    return measure(subject, loader, wishes)


def evaluate_predictions(
    outputs: Any,
    targets: Any,
    loss_fn: Callable[..., Any] | None = None,
    *,
    task: str | None = None,
    scores: str | None = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    slices: Slices | None = None,
    slice_parts: int = 5,
    k: int | Sequence[int] = (10, 100),
    top: int | Sequence[int] = (5,),
    worst: int = 10,
    level: float = 0.95,
    bins: int = 15,
    binning: str = "uniform",
    threshold: float = 0.5,
    ignore_index: int | None = None,
) -> Evaluation:
    """The same from arrays or tensors: scores, probabilities, decisions or numbers against targets, a row a sample."""
    choices = _choose(k, top, level, bins, binning)
    wishes = Wishes(task, scores, class_names, slices, slice_parts, worst, threshold, ignore_index, choices)
    given, wanted = as_tensor(outputs, "outputs"), as_tensor(targets, "targets")
    if not given.numel() or not wanted.numel():
        raise UsageError("there are no predictions to judge: outputs or targets are empty")
    if not given.dim() or not wanted.dim():
        raise UsageError("outputs and targets are single numbers; a row a sample is needed")
    reading = Reading(wishes, loss_fn)
    reading.take({"outputs": given, "targets": wanted}, given, wanted, list(range(len(wanted))))
    reading.finish()
    return _conclude(reading, IN_ARRAYS, [])


def measure(subject: Subject, loader: Iterable[Any], wishes: Wishes) -> Evaluation:
    """Of any subject that gives outputs and targets."""
    notes: list[str] = []
    reading = Reading(wishes, getattr(subject, "loss_fn", None), subject)
    known = True
    with (
        untouched(*subject.parts, loaders=(loader,)),
        torch.no_grad(),
        progress_bar("evaluating", _length(loader, wishes.batches), wishes.progress) as advance,
    ):
        subject.model.eval()
        for number, (batch, indices) in enumerate(with_indices(loader)):
            if wishes.batches is not None and number >= wishes.batches:
                first = f"{wishes.batches} batches were" if wishes.batches > 1 else "batch was"
                notes.append(f"only the first {first} looked at")
                break
            outputs, target = compare(subject, copied(batch), wishes)
            known &= indices is not None and len(indices) == target.shape[0]
            reading.take(batch, outputs, target, indices if known else None)
            advance()
        reading.finish()
    in_data = IN_SUBSET if isinstance(getattr(loader, "dataset", None), Subset) else IN_DATASET
    if not known and has_indices(loader):
        notes.append("batches hold another number of samples than were drawn: samples are counted in their order")
    elif shuffles(loader) and known:
        notes.append(f"the loader shuffles: samples are named by their {in_data}, not by their position")
    return _conclude(reading, in_data if known else IN_ORDER, notes)


def _length(loader: Any, most: int | None) -> int | None:
    """Batches there will be; None where a stream does not tell."""
    try:
        total = len(loader)
    except TypeError:
        return most
    return total if most is None else min(most, total)


def _conclude(reading: Reading, index: str, notes: list[str]) -> Evaluation:
    predictions, wishes = reading.predictions, reading.wishes
    judged, form, samples = reading.judge(), predictions.form, predictions.samples
    known_N = samples["count"] > 0
    right_N, count_N = samples["right"][known_N], samples["count"][known_N]
    error_N = right_N if form.task == REGRESSION else None
    attributes = reading.attributes(known_N)
    name, loss = reading.loss()
    return Evaluation(
        task=form.task,
        scores=form.scores,
        samples=int(known_N.sum()),
        elements=judged.elements,
        metrics=judged.metrics | ({"loss": loss} if loss is not None else {}),
        baseline=judged.baseline,
        baseline_text=judged.baseline_text,
        class_names=judged.class_names,
        confusion=judged.confusion,
        confused=judged.confused,
        classes=judged.classes,
        numbers=judged.numbers,
        slices=judge_slices(attributes, right_N, count_N, error_N, wishes.slice_parts, wishes.choices.level),
        calibration=judged.calibration,
        residuals=judged.residuals,
        worst=[_named(w, judged.class_names, form.task) for w in predictions.worst],
        index=index,
        loss_name=name,
        level=wishes.choices.level,
        notes=[*left_out(predictions, reading.loss_fn), *reading.notes, *form.notes, *judged.notes, *notes],
    )


def _named(worst: Worst, names: tuple[str, ...], task: str) -> Worst:
    if task == REGRESSION or not names or worst.target is None:
        return worst
    if isinstance(worst.target, list):
        return replace(worst, target=[names[k] for k in worst.target], prediction=[names[k] for k in worst.prediction])
    return replace(worst, target=names[worst.target], prediction=names[worst.prediction])


def _choose(k: int | Sequence[int], top: int | Sequence[int], level: float, bins: int, binning: str) -> Choices:
    if not 0 < level < 1:
        raise UsageError(f"level is {level}; it is a share such as 0.95")
    if bins < 1:
        raise UsageError(f"bins is {bins}; calibration needs at least one")
    if binning not in ("uniform", "quantile"):
        raise UsageError(f"binning is {binning!r}; known are 'uniform' (equal width) and 'quantile' (equal size)")
    ks, tops = ((v,) if isinstance(v, int) else tuple(v) for v in (k, top))
    if any(v < 1 for v in (*ks, *tops)):
        raise UsageError("k and top count from 1 on")
    return Choices(ks, tops, level, bins, binning)
