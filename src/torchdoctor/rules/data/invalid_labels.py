"""Labels do not fit the loss: out of range, off by one, wrong type or shape, or all ignored.

## What it means
The loss expects labels of one kind and gets another. Cross-entropy over C outputs wants whole numbers 0..C-1 (or a
probability for each class); binary cross-entropy wants 0 and 1. Some misfits stop the program with an index error,
on a GPU with a "device-side assert" that names another line. Others run: binary cross-entropy with labels -1 and 1
has no lower bound, so the loss falls below zero and the logits grow for ever; a batch whose labels are all ignored
has the loss 0/0, which is NaN.

## Why it happens
- Classes counted from 1 in the data and from 0 in the network.
- A class that was added to the data and not to the last layer, or a last layer of the wrong width.
- Masks and binary labels stored as 0 and 255, -1 and 1, or 1 and 2.
- Labels read as floats or as 32-bit integers, or with a trailing dimension of one.
- One-hot vectors where indices belong (legal for `cross_entropy` if they are floats, an error elsewhere).
- The padding value, or -1 for "unlabelled", without telling the loss by `ignore_index`.

## How it is detected
At every call of a loss: the range and type of the targets against the width of the outputs and what the loss
allows. This is a comparison of two facts, not a statistic. Where the program was ended by one of torch's own label
errors, the finding explains that error. That class 0 never occurs although all others do is told as an info.

## How to fix it
Make labels 0..C-1 once, where the data is loaded: `classes, y = torch.unique(y, return_inverse=True)`, and give the
last layer `len(classes)` outputs. Convert with `.long()` for cross-entropy and `.float()` for the binary loss, drop
a trailing dimension with `.squeeze(1)`, divide a 0..255 mask by 255, and name the value to skip by `ignore_index`.

## Known false alarms
A label space with a reserved first entry (background, padding) that the data happens not to use gives the info.
Soft binary labels between 0 and 1, a little noise around them, and class probabilities are fine and not reported.

## References
PyTorch documentation, "torch.nn.CrossEntropyLoss" and "torch.nn.BCEWithLogitsLoss". Northcutt, Athalye and Mueller,
"Pervasive Label Errors in Test Sets Destabilize Machine Learning Benchmarks" (2021).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from torchdoctor.facts import TRAIN, UNKNOWN, VALIDATION, LabelsFact, LossCallFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import outcomes
from torchdoctor.rules.baseline import BINARY, CLASSIFICATION
from torchdoctor.rules.data.label_errors import ERRORS, Misfit
from torchdoctor.rules.nonfinite import loss_broke_at
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

RULE = Rule(
    code="D014",
    name="invalid-labels",
    family="data",
    needs=(),
    explains=(
        "nonfinite-parameters",
        "learning-rate-too-high",
        "exploding-gradients",
        "bad-initialization-scale",
        "saturated-activations",
        "dead-relu",
        "wrong-loss-for-task",
        "overfitting",
    ),
)
"""It needs nothing on record: a program that dies in its first loss call leaves only its error behind."""

SIGNED = ("soft_margin_loss", "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss")
"""Losses whose labels are -1 and 1."""

NOISY_LABEL = 0.5
"""Labels of 0.7..1.2 for 1 and 0..0.3 for 0 are a trick for GANs (Chintala et al., "How to train a GAN", 2016)."""

MANY_SAMPLES = 20
"""Samples for each class before the absence of one class means anything."""


def detect(run: Run) -> Iterator[Finding]:
    """One finding: the error that ended the program, else the worst misfit of training, else of validation."""
    from_error = explain_error(run)
    if from_error is not None:
        yield from_error
        return
    found = [(step, call, misfit) for step, call in run.facts_at(LossCallFact) if (misfit := misfit_of(run, call))]
    if not found:
        return
    order = (TRAIN, UNKNOWN, VALIDATION)
    step, call, misfit = min(found, key=lambda f: (f[2].severity.rank, order.index(f[1].phase), f[0]))
    yield _finding(run, call, misfit, step)


def misfit_of(run: Run, call: LossCallFact) -> Misfit | None:
    low, high = call.target_low, call.target_high
    if call.ignored is not None and call.ignored >= 1:
        return _all_ignored(run, call) if loss_broke_at(run) is not None else None
    if low is None or high is None:
        return None
    if call.function in CLASSIFICATION:
        is_index = call.target_dtype is not None and not call.target_dtype.startswith(("float", "bfloat"))
        return _indices(run, call, low, high) if is_index else _probabilities(call, low, high)
    if call.function in BINARY:
        return _binary(call, low, high)
    if call.function in SIGNED and low == 0 and high == 1 and call.target_integral:
        return Misfit(
            f"{call.function} gets labels 0 and 1, it wants -1 and 1",
            f"The labels at {call.function} are 0 and 1. A label of 0 makes its term constant, so "
            "those samples teach nothing.",
            Fix("Turn the labels into -1 and 1.", "y = 2 * y - 1"),
            low,
            -1.0,
            Severity.WARNING,
            0.9,
        )
    return None


def _all_ignored(run: Run, call: LossCallFact) -> Misfit:
    symptoms = ("nan-at-first-step",) if (loss_broke_at(run) or 0) <= 1 else ("nan-later",)
    return Misfit(
        f"Every label equals ignore_index {call.ignore_index}: the loss is a mean over nothing",
        f"All targets of {call.function} are {call.ignore_index}, which the loss skips. Its mean over no sample is "
        "NaN, and no gradient can come of it.",
        Fix(
            "Look at how the labels are masked; skip batches without any, or choose an ignore_index that is no class.",
            f"if not (target != {call.ignore_index}).any(): continue",
        ),
        call.ignored,
        1.0,
        symptoms=symptoms,
    )


def _indices(run: Run, call: LossCallFact, low: float, high: float) -> Misfit | None:
    classes = call.classes
    if classes is None:
        return None
    if low == call.ignore_index and high < classes:
        return None
    if high >= classes or low < 0:
        return _out_of_range(classes, int(low if low < 0 else high), int(low), int(high))
    if low >= 1 and high == classes - 1 and call.ignore_index != 0:
        return _unused_first_class(run, classes)
    return None


def _out_of_range(classes: int | None, label: int, low: int | None, high: int | None) -> Misfit:
    renumber = "classes, y = torch.unique(y, return_inverse=True)  # last layer: len(classes) outputs"
    if label < 0:
        fix = Fix(
            f'If {label} means "no label", tell the loss so; otherwise relabel the classes from 0.',
            f"loss = F.cross_entropy(logits, target, ignore_index={label})",
        )
    elif low == 1 and label == classes:
        fix = Fix("The classes are counted from 1: count them from 0.", "y = y - 1")
    else:
        fix = Fix("Number the classes without gaps from 0, and give the last layer one output for each.", renumber)
    seen = f" Labels from {low} to {high} were seen." if low is not None and high is not None else ""
    if classes:
        title = f"Label {label} is out of range: the model's outputs are classes 0..{classes - 1}"
        summary = (
            f"The loss got the label {label}, but the model has outputs for classes 0 to {classes - 1} only.{seen}"
        )
    else:
        title = f"Label {label} is out of range: the model has no output for it"
        summary = (
            f"The loss got the label {label}, for which the model has no output. Classes are counted from 0, so C "
            f"outputs stand for the labels 0 to C-1.{seen}"
        )
    return Misfit(title, summary, fix, float(label), float(classes - 1) if classes and label >= 0 else 0.0)


def _unused_first_class(run: Run, classes: int) -> Misfit | None:
    counts = Counter[str]()
    for fact in run.facts(LabelsFact):
        if fact.phase == TRAIN:
            counts.update(fact.counts)
    if classes < 3 or counts.total() < MANY_SAMPLES * classes or not outcomes.is_by_sample(run):
        return None  # of tokens the first are reserved: padding, the start
    if any(not counts.get(str(c)) for c in range(1, classes)) or counts.get("0"):
        return None
    return Misfit(
        f"Class 0 never occurs in {counts.total()} labels, classes 1..{classes - 1} all do",
        "The labels seem to be counted from 1, and the last layer has one output too many to make room for them.",
        Fix(
            "If class 0 is not reserved for something, count from 0 and make the last layer one output narrower.",
            "y = y - 1",
        ),
        0.0,
        1.0,
        Severity.INFO,
        0.6,
    )


def _probabilities(call: LossCallFact, low: float, high: float) -> Misfit | None:
    if low >= -1e-3 and high <= 1 + 1e-3:
        return None
    return Misfit(
        f"Class probabilities at {call.function} run from {low:.3g} to {high:.3g}",
        "The targets are floats of the outputs' shape, so the loss takes them for class probabilities; they lie "
        "outside 0..1.",
        Fix("Give class indices, or probabilities that sum to one.", "target = target.argmax(dim=1)"),
        low if low < 0 else high,
        0.0 if low < 0 else 1.0,
        Severity.WARNING,
        0.8,
    )


def _binary(call: LossCallFact, low: float, high: float) -> Misfit | None:
    slack = 1e-3 if call.target_integral else NOISY_LABEL
    if low >= -slack and high <= 1 + slack:
        return None
    if (low, high) == (-1, 1):
        fix = Fix("Turn -1 and 1 into 0 and 1.", "y = (y + 1) / 2")
    elif (low, high) == (1, 2):
        fix = Fix("Turn 1 and 2 into 0 and 1.", "y = y - 1")
    elif low == 0 and call.target_integral:
        fix = Fix(f"Scale 0..{high:g} to 0..1.", f"y = y / {high:g}")
    else:
        fix = Fix("Binary labels are 0 and 1 (or between them).", "y = (y > 0).float()")
    return Misfit(
        f"Binary labels run from {low:g} to {high:g}, the loss wants 0 to 1",
        f"The targets of {call.function} lie outside 0..1. The loss then has no lower bound: it falls below zero and "
        "the logits grow without end, which looks like progress.",
        fix,
        low if low < 0 else high,
        0.0 if low < 0 else 1.0,
    )


def explain_error(run: Run) -> Finding | None:
    """A finding for a program that torch ended with one of its label errors."""
    error = run.info.get("exception") or {}
    message = str(error.get("message") or "")
    call = next((f for f in reversed(run.facts(LossCallFact)) if f.function in CLASSIFICATION + BINARY), None)
    misfit = _read_error(message, call)
    if misfit is None:
        return None
    place = [Place(file=error.get("file"), line=error.get("line"))] if error.get("file") else []
    return RULE.finding(
        severity=misfit.severity,
        confidence=misfit.confidence,
        title=misfit.title,
        summary=f"{misfit.summary} The program ended with {error.get('type', 'an error')}.",
        fix=misfit.fix,
        evidence=[
            Evidence(
                f"{error.get('type', 'error')}: {message.splitlines()[0][:200]}", None, misfit.value, misfit.threshold
            )
        ],
        proof=Proof.STRUCTURE,
        where=place or ([Place(file=call.file, line=call.line)] if call and call.file else []),
        first_step=run.steps,
        symptoms=misfit.symptoms,
    )


def _read_error(message: str, call: LossCallFact | None) -> Misfit | None:
    if match := re.search(r"Target (-?\d+) is out of bounds", message):
        low = int(call.target_low) if call and call.target_low is not None else None
        high = int(call.target_high) if call and call.target_high is not None else None
        return _out_of_range(call.classes if call else None, int(match[1]), low, high)
    if "device-side assert" in message and call is not None and call.function in CLASSIFICATION:
        return Misfit(
            "The GPU stopped on an assertion, most likely a label out of range",
            "A device-side assert behind a classification loss nearly always is a label outside 0..C-1 or a token "
            "outside the embedding.",
            Fix(
                "Check the range before the loss, on the CPU.",
                "assert 0 <= int(y.min()) and int(y.max()) < num_classes",
            ),
            confidence=0.6,
        )
    for pattern, misfit in ERRORS.items():
        if re.search(pattern, message):
            return misfit
    return None


def _finding(run: Run, call: LossCallFact, misfit: Misfit, step: int) -> Finding:
    return RULE.finding(
        severity=misfit.severity,
        confidence=misfit.confidence,
        title=misfit.title,
        summary=misfit.summary,
        fix=misfit.fix,
        evidence=[
            Evidence(
                f"{call.function}: outputs {tuple(call.input_shape)}, targets {tuple(call.target_shape or ())} of type "
                f"{call.target_dtype}, from {_number(call.target_low)} to {_number(call.target_high)}",
                LossCallFact.kind,
                misfit.value,
                misfit.threshold,
            ),
            *_falls_below_zero(run, call),
        ],
        proof=Proof.STRUCTURE,
        where=[Place(file=call.file, line=call.line)] if call.file else [],
        first_step=step,
        symptoms=misfit.symptoms,
    )


def _falls_below_zero(run: Run, call: LossCallFact) -> list[Evidence]:
    loss = run.scalar(LOSS_TRAIN)
    if call.function not in BINARY or not len(loss) or not (loss.values < 0).any():
        return []
    lowest = float(loss.values[loss.values < 0].min())
    return [Evidence(f"the loss falls below zero, to {lowest:.3g}", LOSS_TRAIN.name, lowest, 0.0)]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
