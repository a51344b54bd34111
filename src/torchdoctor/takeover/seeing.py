"""What a script's model gets, fails on, attends to and hangs on: by the script's own loop, from batch to model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.seeing.calling import given_to
from torchdoctor.instruments.seeing.samples import Samples, main_input, read_batch
from torchdoctor.instruments.state import untouched
from torchdoctor.probes.graph import saved_targets

if TYPE_CHECKING:
    from torchdoctor.instruments.result import Result
    from torchdoctor.instruments.subject import Subject
    from torchdoctor.takeover.parts import Parts

LED = (
    "the script changes batches on their way to the model: these are as the model gets them, and those of validation "
    "were led through the training loop, too"
)
UNSETTLED = (
    "batch norm has hardly seen data yet, and the model is looked at in eval mode; --checkpoint loads trained ones"
)

Read = Callable[[Samples, Any], None]


def preview(parts: Parts, *, samples: int, batches: int, validation: bool) -> Result:
    from torchdoctor.instruments.seeing.preview import TRAINING, VALIDATION, begin_split, summarise

    splits = [(TRAINING, parts.train, parts.train_loader)]
    if validation and parts.validation:
        splits.append((VALIDATION, parts.validation, parts.validation_loader))
    found: list[tuple[str, Samples]] = []
    notes = []
    with untouched(*parts.subject.parts, loaders=(parts.train_loader, parts.validation_loader)):
        read, is_led = way_to_model(parts)
        for name, held, loader in splits:
            enough = len(held) >= batches or loader is None
            part = begin_split(found, samples)
            for batch in held[:batches] if enough else first_batches(loader, batches):
                read(part, batch)
            found.append((name, part))
    notes += [LED] if is_led and len(splits) > 1 else []
    if validation and not parts.validation:
        notes.append("no loader that the script validates with was seen in its first steps")
    return summarise(found, samples, notes=notes)


def mistakes(parts: Parts, *, samples: int, batches: int | None, validation: bool) -> Result:
    from torchdoctor.instruments.seeing.mistakes import find_samples, show_mistakes
    from torchdoctor.takeover.judging import judge

    judged = judge(parts, validation=validation, batches=batches, worst=samples, level=0.95)
    loader = parts.validation_loader if validation else parts.train_loader or parts.train
    with untouched(*parts.subject.parts, loaders=(loader,)):
        read, _ = way_to_model(parts)
    with untouched(*parts.subject.parts, loaders=(loader,)):
        shown = find_samples(loader, judged.worst, read=read)
    return show_mistakes(judged, shown)


def attention(parts: Parts, *, sample: int, layer: str | None, head: int | None) -> Result:
    from torchdoctor.instruments.seeing.attention import catch_attention

    with untouched(*parts.subject.parts):
        batch, at = _find(parts, sample)
        found = catch_attention(parts.subject, batch, at)
    return replace(found, sample=sample, notes=[*found.notes, *_notes(parts)]).showing(layer, head)


def saliency(parts: Parts, *, sample: int, target: int | None, method: str) -> Result:
    from torchdoctor.instruments.seeing.saliency import Wishes, follow, read_target

    with untouched(*parts.subject.parts):
        batch, at = _find(parts, sample)
        found = follow(parts.subject, batch, at, Wishes(target=read_target(target), method=method))
    return replace(found, sample=sample, notes=[*found.notes, *_notes(parts)])


def way_to_model(parts: Parts) -> tuple[Read, bool]:
    """How samples are read off a batch: as they are in it, or, where the loop makes something else of them first, as
    the model is called with them."""
    if parts.why_no_loss is not None:
        return _read_batch, False
    parts.subject.outputs(parts.train[0])  # what the loop calls is known from here on
    given, _ = call_loop(parts.subject, parts.train[0])
    inputs, _ = read_batch(parts.train[0])
    try:
        (_, seen), (_, held) = main_input(given), main_input(inputs)
    except UsageError:
        return _read_batch, False
    if seen.shape == held.shape and seen.dtype == held.dtype and torch.equal(seen.cpu(), held.cpu()):
        return _read_batch, False

    def read(samples: Samples, batch: Any) -> None:
        given, loss = call_loop(parts.subject, batch)
        compared = saved_targets(loss)
        samples.take(given, compared[0] if len(compared) == 1 else None)

    return read, True


def call_loop(subject: Subject, batch: Any) -> tuple[dict[str, Tensor], Tensor]:
    """The tensors that the model gets for this batch, by name, and the loss."""
    given: dict[str, Tensor] = {}
    with given_to(subject, given):
        loss = subject.loss(batch)
    return given, loss


def _read_batch(samples: Samples, batch: Any) -> None:
    samples.add(batch)


def _find(parts: Parts, sample: int) -> tuple[Any, int]:
    """The batch that holds it, counted over the training batches, and its place there. The model is in eval mode, and
    what the loop calls is known."""
    parts.subject.model.eval()
    passed = 0
    for batch in parts.train:
        size = samples_in(batch) or 1
        if sample < passed + size:
            with torch.no_grad():
                parts.subject.outputs(batch)
            return batch, sample - passed
        passed += size
    raise UsageError(f"--sample {sample}: the training batches that were kept hold {passed} (0 to {passed - 1})")


def _notes(parts: Parts) -> list[str]:
    from torchdoctor.takeover.measures import lacks_statistics

    return [UNSETTLED] if lacks_statistics(parts) else []
