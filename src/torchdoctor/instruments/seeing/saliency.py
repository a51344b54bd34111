"""What a model's answer for one sample hangs on: pixels, steps, tokens or columns. A leak shows here."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.one_batch import one_batch
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.seeing.attribution import (
    GRADIENT,
    INACCURATE,
    METHODS,
    STEPS,
    Attributed,
    Probe,
    attribute,
    scores_of,
)
from torchdoctor.instruments.seeing.calling import Call, check_sample, check_time_first, given_to, make_subject
from torchdoctor.instruments.seeing.focus import find_focus
from torchdoctor.instruments.seeing.padding import padding_of
from torchdoctor.instruments.seeing.samples import (
    Array,
    Names,
    as_array,
    main_input,
    name_class,
    spell,
    without_beside,
)
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import Subject
from torchdoctor.plots.saliency_maps import draw_saliency
from torchdoctor.plots.sample_kinds import KINDS, TABLE, TOKENS, kind_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from torchdoctor.plots.chart import Chart

Target = Any
"""A class, or the place of a number among the outputs of a sample: whole numbers of any kind, or None."""
WORDS = {
    "gradient": "the size of the gradient at the input",
    "input-x-gradient": "gradient times input",
    "integrated": "integrated gradients from zeros",
    "smooth": "the mean size of gradients around the input",
}


@dataclass(frozen=True)
class Saliency(Result):
    """`str()` says what the answer hangs on, `plot()` shows it."""

    title: str
    sample: int
    method: str
    output: str
    """the number that was followed back"""
    score: float
    kind: str
    """of the input: image, series, tokens or table"""
    input: str
    """its name among the model's arguments"""
    shares: dict[str, float]
    """of the saliency: by column, channel, token or place, largest first"""
    by_input: dict[str, float]
    """of several inputs, the share of each"""
    saliency: Array = field(repr=False)
    values: Array = field(repr=False)
    names: Sequence[str] = field(repr=False, default=())
    """of columns or tokens"""
    is_signed: bool = False
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.title}.", "", f"  followed: {self.output} = {self.score:.4g}, by {WORDS[self.method]}"]
        lines += [f"  {name}: {share:.1%}" for name, share in list(self.shares.items())[:8]]
        if len(self.by_input) > 1:
            told = ", ".join(f"{name} {share:.0%}" for name, share in self.by_input.items())
            lines.append(f"  by input: {told}; shown is {self.input}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def chart(self) -> Chart:
        return draw_saliency(self.title, self.values, self.saliency, self.kind, self.names, self.is_signed)

    def plot(self, theme: str = "light") -> Figure:
        return self.chart().figure(theme)

    def to_dict(self) -> dict[str, Any]:
        """Without the maps."""
        kept = super().to_dict()
        return {k: v for k, v in kept.items() if k not in ("saliency", "values", "names")}


@unseen()
@explained
def saliency(
    model: nn.Module,
    inputs: Any,
    target: Target = None,
    sample: int = 0,
    method: str = GRADIENT,
    *,
    call: Call | None = None,
    class_names: Names = None,
    columns: Sequence[str] = (),
    decode: Any = None,
    kind: str | None = None,
    steps: int = STEPS,
    seed: int = 0,
) -> Saliency:
    """Follow one of the model's outputs back to the input of one sample, in eval mode.

    `target`: the class, or the place of the number among the outputs of a sample; by default what the model predicts
    (of outputs for each position the last real one, of maps of classes the most frequent). `method`: "gradient",
    "input-x-gradient", "integrated" (integrated gradients from zeros, in `steps`, more where these do not add up) or
    "smooth" (SmoothGrad). Of a table, gradients count by the spread of their column in the batch: units do not matter.
    `inputs`, `call`, `decode`, `columns` and `kind` are those of `attention_maps` and `preview_batches`. Nothing is
    changed: gradients of parameters neither.
    """
    if method not in METHODS:
        raise UsageError(f"method is {method!r}; known are {', '.join(METHODS)}")
    if kind is not None and kind not in KINDS:
        raise UsageError(f"kind is {kind!r}; known are {', '.join(KINDS)}")
    if steps < 1:
        raise UsageError(f"steps is {steps}; at least 1 is needed")
    subject, batch = make_subject(model, call), one_batch(inputs)
    wishes = Wishes(read_target(target), method, class_names, columns, decode, kind, steps, seed)
    with untouched(*subject.parts):
        model.eval()
        return follow(subject, batch, sample, wishes)


@dataclass(frozen=True)
class Wishes:
    target: tuple[int, ...] | None = None
    method: str = GRADIENT
    class_names: Names = None
    columns: Sequence[str] = ()
    decode: Any = None
    kind: str | None = None
    steps: int = STEPS
    seed: int = 0


def read_target(target: Target) -> tuple[int, ...] | None:
    if target is None:
        return None
    try:
        return tuple(operator.index(part) for part in (target if np.ndim(target) else [target]))
    except (TypeError, ValueError):
        raise UsageError(
            f"target is {target!r}; it is a class (a whole number), or the place of a number among a sample's outputs "
            "(a tuple of such)"
        ) from None


def follow(subject: Subject, batch: Any, sample: int, wishes: Wishes) -> Saliency:
    """In the mode that the model is in; what is changed has to be put back by the caller."""
    given: dict[str, Tensor] = {}
    with torch.compiler.set_stance("force_eager"):
        with torch.no_grad(), given_to(subject, given):
            outputs = scores_of(subject.outputs(batch))
        name, tensor = main_input(given)
        check_time_first(outputs, name, tensor)
        _check_rows(outputs, name, tensor)
        check_sample(sample, len(tensor))
        padded = padding_of(given, sample, subject.model)
        probe = Probe(subject, batch, sample)
        with torch.no_grad():
            probe.prepare(given)
            place, output = choose_output(probe.outputs(), wishes.target, tensor[sample], padded, wishes.class_names)
        found = attribute(probe, lambda row: _pick(row, place), wishes.method, wishes.steps, wishes.seed)
    return _conclude(found, given, sample, output, padded, wishes)


Place = tuple[Any, ...]
"""Index into a sample's outputs; what it gives is summed."""


def _check_rows(outputs: Tensor, name: str, tensor: Tensor) -> None:
    if len(tensor) > 1 and (not outputs.dim() or len(outputs) != len(tensor)):
        raise UsageError(
            f"the outputs have shape {tuple(outputs.shape)}, and {name or 'the input'} {tuple(tensor.shape)}: there is "
            f"not one output for each of {len(tensor)} samples; call=lambda model, batch: ... can give them as "
            f"({len(tensor)}, ...)"
        )


def choose_output(
    row: Tensor, wanted: tuple[int, ...] | None, values: Tensor, padded: Array | None, names: Names
) -> tuple[Place, str]:
    """Which number is followed, and what it is called."""
    if row.dim() == 0:
        _check_place(wanted or (), row[None])
        return (), "the output"
    if wanted is not None and len(wanted) == row.dim():
        _check_place(wanted, row)
        if len(wanted) == 1 and names is not None:
            return wanted, f"class {name_class(wanted[0] % len(row), names)}"
        return wanted, f"output {', '.join(map(str, wanted))}"
    if wanted is not None and len(wanted) > 1:
        raise UsageError(f"target is {wanted}; a sample's outputs have shape {tuple(row.shape)}")
    if row.dim() == 1:
        chosen = int(row.argmax())
        if row.numel() == 1:
            return (0,), "the output"
        return (chosen,), f"class {name_class(chosen, names)}" if names else f"output {chosen}, the largest"
    by_class = row.dim() > 2 or (row.shape[1] == len(values) != row.shape[0])
    if not by_class:  # an answer for each position
        real = np.flatnonzero(~padded) if padded is not None and len(padded) == len(row) else np.arange(len(row))
        at = int(real[-1]) if len(real) else len(row) - 1
        chosen = wanted[0] if wanted is not None else int(row[at].argmax())
        _check_place((at, chosen), row)
        called = f"class {name_class(chosen % row.shape[1], names)}" if names is not None else f"output {chosen}"
        return (at, chosen), f"{called} at position {at}"
    best = row.argmax(0)
    chosen = wanted[0] if wanted is not None else int(best.flatten().mode().values)
    _check_place((chosen,), row)
    where = (best == chosen) if bool((best == chosen).any()) else torch.ones_like(best, dtype=torch.bool)
    called = f"class {name_class(chosen, names)}" if row.shape[0] > 1 else "the output"
    return (chosen, where), f"{called} over the {int(where.sum())} places that are so"


def _check_place(place: tuple[int, ...], row: Tensor) -> None:
    if any(not -size <= at < size for at, size in zip(place, row.shape, strict=False)):
        raise UsageError(f"target is {place}; a sample's outputs have shape {tuple(row.shape)}")


def _pick(row: Tensor, place: Place) -> Tensor:
    for at in place:
        row = row[at]
    return row.sum() if row.dim() else row


def _conclude(
    found: Attributed, given: dict[str, Tensor], sample: int, output: str, padded: Array | None, wishes: Wishes
) -> Saliency:
    main, _ = main_input(given)
    parts = {k: _read_input(found, given, k, sample, wishes.kind if k == main else None) for k in found.saliency}
    sizes = {k: float(np.abs(p.saliency[np.isfinite(p.saliency)]).sum(dtype=np.float64)) for k, p in parts.items()}
    total = sum(sizes.values()) or 1.0
    shown = max(without_beside(parts), key=lambda k: (not np.isfinite(parts[k].saliency).all(), sizes[k], k == main))
    kind, saliency, values = parts[shown].kind, parts[shown].saliency, parts[shown].values
    names = _name_parts(values, kind, wishes, shown == main)
    focus = find_focus(saliency, kind, names, padded if shown == main else None)
    share = f"{shown} holds {sizes[shown] / total:.0%} of the saliency of {len(parts)} inputs" if len(parts) > 1 else ""
    return Saliency(
        title=_title(focus.text, f"{output} of sample {sample}", saliency, share),
        sample=sample,
        method=wishes.method,
        output=output,
        score=found.score,
        kind=kind,
        input=shown,
        shares=focus.shares,
        by_input={k: sizes[k] / total for k in sorted(sizes, key=lambda k: -sizes[k])},
        saliency=saliency,
        values=values,
        names=names,
        is_signed=found.is_signed,
        notes=_notes(found),
    )


@dataclass(frozen=True)
class _Input:
    """One of those that the model is given."""

    kind: str
    saliency: Array
    values: Array


def _read_input(found: Attributed, given: dict[str, Tensor], name: str, sample: int, kind: str | None) -> _Input:
    values = as_array(given[name][sample] if name in given else found.values[name])
    saliency, tensor = as_array(found.saliency[name]), given.get(name)
    kind = kind or kind_of(values)
    if kind == TOKENS and saliency.ndim == 2:  # an embedding's: a vector for each token
        saliency = saliency.sum(-1) if found.is_signed else np.linalg.norm(saliency, axis=-1)
    is_table = kind == TABLE and tensor is not None and tensor.is_floating_point() and len(tensor) > 1
    if is_table and not found.is_signed:
        saliency = saliency * as_array(tensor.float().std(0))  # type: ignore[union-attr]
    return _Input(kind, saliency, values)


def _name_parts(values: Array, kind: str, wishes: Wishes, is_main: bool) -> list[str]:
    """Of columns, where they are meant for this input, or of tokens."""
    if kind == TOKENS and wishes.decode is not None:
        return spell([values], wishes.decode)[0]
    columns = list(wishes.columns) if is_main or len(wishes.columns) == values.size else []
    return columns or ([str(v) for v in values.ravel().tolist()] if kind == TOKENS else [])


def _title(text: str, followed: str, saliency: Array, share: str) -> str:
    if not np.isfinite(saliency).all():
        return (
            f"The gradient of {followed} is not finite in {int((~np.isfinite(saliency)).sum()):,} places of the input"
        )
    if not text:
        return f"Nothing in the input moves {followed}: its gradient is 0 everywhere"
    if share:
        return f"{share}; within it {text[:1].lower()}{text[1:]}, for {followed}"
    return f"{text[:1].upper()}{text[1:]}, for {followed}"


def _notes(found: Attributed) -> list[str]:
    if found.error is None or found.error <= INACCURATE:
        return []
    return [f"the integral is {found.error:.0%} off the change of the output; the model is steep on the way from zeros"]
