"""The loss function does not fit what the targets or the outputs are.

## What it means
Each loss assumes something about its two arguments: log-probabilities or raw scores, classes that exclude each other
or labels that do not, quantities on a scale. Most misuses run without an error. Negative log-likelihood of raw scores
has no floor and grows for ever; a cross-entropy over one output is always zero; squared error on class numbers says
that class 9 is nine times class 1; binary losses on exclusive classes let all of them be likely at once.

## Why it happens
`NLLLoss` taken for cross-entropy; `BCELoss` given raw scores; a regression script changed into a classifier (or the
reverse) without its loss; labels turned into floats to silence an error; one-hot rows kept from another framework.

## How it is detected
From the arguments of every call in training, and the graph: log-probabilities are never above zero; probabilities lie
in 0..1; one-hot rows have exactly 1/C as their mean on every look; class numbers are whole, begin at zero, and are
spread evenly over 0..C-1 in mean and deviation.

## How to fix it
Exclusive classes: raw scores and class indices into `F.cross_entropy`. Several labels at once, or two classes with one
output: raw scores into `F.binary_cross_entropy_with_logits`. Quantities: `F.mse_loss` or `F.smooth_l1_loss`.

## Known false alarms
Ratings and counts are whole numbers, too: unless they are spread as evenly as classes are, nothing is reported.
Squared error on one-hot rows (the Brier score) and one binary decision for each of several exclusive classes can be
meant; both are warnings. Losses against constant targets and trainings with several optimizers (least-squares
adversarial networks) are left alone, as are binary pictures that are reconstructed. Binary cross-entropy on
probabilities is right, and worth a remark only.

## References
PyTorch documentation, torch.nn.NLLLoss, CrossEntropyLoss, BCELoss, BCEWithLogitsLoss, KLDivLoss. Bishop, "Pattern
Recognition and Machine Learning", 2006, section 4.3. Hui and Belkin, "Evaluation of Neural Architectures Trained with
Square Loss vs Cross-Entropy in Classification Tasks", 2020, for squared error that is meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, GraphFact, LossCallFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import baseline
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.loss_graph import LossGraph
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import TARGET_MEAN

RULE = Rule(
    code="T003",
    name="wrong-loss-for-task",
    family="procedure",
    needs=(LossCallFact,),
    explains=(
        "invalid-labels",
        "loss-sign-flipped",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "learning-rate-oscillation",
        "exploding-gradients",
        "vanishing-gradients",
        "nonfinite-parameters",
        "no-parameter-update",
        "dead-relu",
        "saturated-activations",
        "weight-norm-growth",
        "underfitting",
        "plateau-or-saddle",
        "capacity-too-low",
        "majority-class-collapse",
        "metric-disagrees-with-loss",
        "unnormalized-inputs",
        "overfitting",
        "disconnected-parameters",
    ),
)

QUANTITIES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
ROUNDING = 1e-3
"""Log-probabilities may exceed zero, and probabilities one, by rounding in half precision."""
MOST_CLASSES = 100
EVEN = 0.1
"""Mean and standard deviation of class numbers within a tenth of those of classes that are equally frequent."""
LEARNS = 0.3
"""Share of the first loss that a training must have lost for its loss function to count as a choice."""
ONE_HOT = 1e-5
"""The mean of one-hot rows is 1/C up to the rounding of single precision."""
LEAST_LOOKS = 2


@dataclass(frozen=True)
class Misuse:
    """One call whose loss does not fit, in words."""

    call: LossCallFact
    title: str
    summary: str
    fix: Fix
    severity: Severity = Severity.ERROR
    confidence: float = 0.97
    value: float | None = None
    threshold: float | None = None


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    calls = list({(c.function, c.file, c.line): c for c in run.facts(LossCallFact) if c.phase == TRAIN}.values())
    found = [m for call in calls if (m := _misuse(run, call)) is not None]
    if found:
        yield _finding(min(found, key=lambda m: (m.severity.rank, -m.confidence)))
    elif calls and all(c.function == "cross_entropy" and c.target_dtype == "int64" and c.classes for c in calls):
        yield RuledOut(RULE.name, f"cross-entropy over {calls[0].classes} classes gets class indices")


def _misuse(run: Run, call: LossCallFact) -> Misuse | None:
    if call.function == "nll_loss":
        return _log_probabilities(call)
    if call.function == "kl_div":
        return _divergence(call)
    if call.function == "cross_entropy":
        return _cross_entropy(run, call)
    if call.function in BINARY:
        return _binary(run, call)
    if call.function in QUANTITIES and len(run.optimizers) <= 1:
        return _quantity(run, call)
    return None


def _log_probabilities(call: LossCallFact) -> Misuse | None:
    if call.input_high is None or call.input_high <= ROUNDING:
        return None
    if call.rows_sum_to_one:
        what, fix = (
            "probabilities",
            "loss = F.nll_loss(torch.log(probabilities), target)  # better: F.cross_entropy(logits, target)",
        )
    else:
        what, fix = "raw scores", "loss = F.cross_entropy(logits, target)"
    return Misuse(
        call,
        f"nll_loss gets {what}, it wants log-probabilities",
        f"The input of nll_loss goes up to {call.input_high:.3g}; a log-probability is never above 0. The loss "
        "then has no floor"
        + (" at 0: it only rewards what the right class gets." if call.rows_sum_to_one else ": scores grow for ever."),
        Fix("Use cross_entropy, which takes raw scores, or put log_softmax before nll_loss.", fix),
        value=call.input_high,
        threshold=0.0,
    )


def _divergence(call: LossCallFact) -> Misuse | None:
    if call.input_high is None or call.input_high <= ROUNDING:
        return None
    what = "probabilities" if call.rows_sum_to_one else "raw scores"
    return Misuse(
        call,
        f"kl_div gets {what}, it wants log-probabilities",
        f"The first argument of kl_div goes up to {call.input_high:.3g}; it has to hold log-probabilities, "
        "which are never above 0.",
        Fix(
            "Give log-probabilities first, probabilities second.",
            'loss = F.kl_div(F.log_softmax(logits, dim=-1), target, reduction="batchmean")',
        ),
        value=call.input_high,
        threshold=0.0,
    )


def _cross_entropy(run: Run, call: LossCallFact) -> Misuse | None:
    if call.classes == 1:
        return Misuse(
            call,
            "cross_entropy over a single output is always zero",
            "Softmax over one output is 1 whatever the output is, so the loss and its gradient are zero on "
            "every batch.",
            Fix(
                "For a quantity use a regression loss; for two classes with one output the binary loss.",
                "loss = F.mse_loss(output, target)  # two classes: F.binary_cross_entropy_with_logits(output, target)",
            ),
            value=1.0,
            threshold=2.0,
        )
    if call.target_dtype is None or not call.target_dtype.startswith(("float", "bfloat")):
        return None
    low, high = call.target_low, call.target_high
    if low is None or high is None:
        return None
    if not call.target_integral and (low < -ROUNDING or high > 1 + ROUNDING):
        return Misuse(
            call,
            f"cross_entropy gets quantities from {low:.3g} to {high:.3g} as targets",
            "The targets are continuous numbers, so this is a regression; cross_entropy takes them for class "
            "probabilities.",
            Fix("Use a regression loss.", "loss = F.mse_loss(output, target)"),
            value=high,
            threshold=1.0,
        )
    sums = _row_sums(run, call)
    if call.target_integral and (low, high) == (0, 1) and sums is not None and sums.min() > 1 + 0.02:
        return Misuse(
            call,
            f"several labels hold at once ({sums.mean():.1f} a sample), cross_entropy is for exclusive classes",
            "The targets mark more than one class in a row. Softmax makes the classes compete, so they can never all "
            "be likely.",
            Fix("Use the binary loss for each label.", "loss = F.binary_cross_entropy_with_logits(logits, target)"),
            Severity.WARNING,
            0.9,
            float(sums.mean()),
            1.0,
        )
    return None


def _binary(run: Run, call: LossCallFact) -> Misuse | None:
    low, high = call.input_low, call.input_high
    low, high = low if low is not None else math.nan, high if high is not None else math.nan
    if call.function == "binary_cross_entropy" and (low < -ROUNDING or high > 1 + ROUNDING):
        return Misuse(
            call,
            f"binary_cross_entropy gets raw scores ({low:.3g} to {high:.3g}), it wants probabilities",
            "BCELoss takes the output of a sigmoid, between 0 and 1; here it gets the scores before it.",
            Fix(
                "Use the form that applies the sigmoid itself.",
                "loss = F.binary_cross_entropy_with_logits(logits, target)",
            ),
            value=low if low < 0 else high,
            threshold=0.0 if low < 0 else 1.0,
        )
    if _is_one_hot(run, call):
        classes = (call.target_shape or [1])[-1]
        return Misuse(
            call,
            f"{call.function} on {classes} classes that exclude each other",
            "Every row of the targets marks exactly one class, so the classes exclude each other; the binary loss "
            "decides on each alone and lets none or several of them be likely.",
            Fix("Use cross_entropy with class indices.", "loss = F.cross_entropy(logits, target.argmax(dim=1))"),
            Severity.INFO if _learns(run) else Severity.WARNING,  # one sigmoid a class is published practice, too
            0.8,
            1.0,
            1.0,
        )
    if call.function == "binary_cross_entropy":
        return Misuse(
            call,
            "binary_cross_entropy on probabilities works, the fused form is safer",
            "A sigmoid followed by binary_cross_entropy loses precision where the model is sure.",
            Fix(
                "Return raw scores and use the form that applies the sigmoid itself.",
                "loss = F.binary_cross_entropy_with_logits(logits, target)",
            ),
            Severity.INFO,
            0.9,
        )
    return None


def _learns(run: Run) -> bool:
    loss = loss_curve(run)
    return loss is not None and not loss.stuck and loss.fell >= LEARNS


def _quantity(run: Run, call: LossCallFact) -> Misuse | None:
    """Squared or absolute error where the targets are classes."""
    low, high = call.target_low, call.target_high
    if not call.target_integral or low != 0 or high is None or call.target_shape is None:
        return None
    if _is_one_hot(run, call):
        return Misuse(
            call,
            f"{call.function} on one-hot classes",
            f"The targets are one-hot rows over {call.target_shape[-1]} classes. Squared error pulls every output "
            "towards 0 or 1 and teaches little where the model is wrong and sure.",
            Fix("Use cross_entropy with class indices.", "loss = F.cross_entropy(logits, target.argmax(dim=1))"),
            Severity.WARNING,
            0.8,
            1.0,
            1.0,
        )
    width = math.prod(call.target_shape[1:])
    if width != 1 or not 1 <= high < MOST_CLASSES or not _is_even(run, int(high) + 1):
        return None
    if high == 1:
        squashed = _fed_by_sigmoid(run)
        return Misuse(
            call,
            f"{call.function} on two classes",
            "The targets are 0 and 1 only. With squared error the gradient fades where the model is wrong and sure.",
            Fix(
                "Return raw scores and use the binary loss.",
                "loss = F.binary_cross_entropy_with_logits(logits, target)",
            ),
            Severity.WARNING if squashed else Severity.INFO,
            0.8 if squashed else 0.6,
            high,
        )
    return Misuse(
        call,
        f"{call.function} on class numbers 0 to {high:.0f}",
        f"The targets are whole numbers, evenly spread over 0..{high:.0f}, as class labels are. The loss "
        "takes them for quantities: class 0 and class 1 are near, class 0 and the last one far.",
        Fix(
            f"Give the model {high + 1:.0f} outputs and use cross_entropy with class indices.",
            "loss = F.cross_entropy(logits, target.long())",
        ),
        Severity.WARNING,
        0.85,
        high,
    )


def _row_sums(run: Run, call: LossCallFact) -> np.ndarray | None:
    """Sum of a row of targets at each look: their mean times the classes in a row."""
    means = run.scalar(TARGET_MEAN, TRAIN)
    shape = call.target_shape or []
    if len(shape) < 2 or len(means) * means.merged < LEAST_LOOKS or len(baseline.loss_calls(run)) == 0:
        return None
    if len({c.function for c in baseline.loss_calls(run)}) > 1:
        return None
    classes = shape[1] if len(shape) > 2 else shape[-1]
    return means.values.astype(np.float64) * classes


def _is_one_hot(run: Run, call: LossCallFact) -> bool:
    shape = call.target_shape or []
    if len(shape) < 2 or shape != call.input_shape or not call.target_integral:
        return False
    classes = shape[1] if len(shape) > 2 else shape[-1]
    if classes < 2 or (call.target_low, call.target_high) != (0, 1):
        return False
    sums = _row_sums(run, call)
    return sums is not None and bool(np.all(np.abs(sums - 1) < ONE_HOT * classes))


def _is_even(run: Run, classes: int) -> bool:
    spread = baseline.targets(run)
    if spread is None:
        return False
    mean, std = (classes - 1) / 2, math.sqrt((classes**2 - 1) / 12)
    slack = EVEN if classes > 2 else 2 * EVEN
    return abs(spread.mean - mean) < slack * 2 * mean and abs(spread.std - std) < slack * 2 * std


def _fed_by_sigmoid(run: Run) -> bool:
    for fact in run.facts(GraphFact):
        graph = LossGraph(fact)
        for loss in graph.named("MseLoss", "SmoothL1Loss", "HuberLoss", "Abs"):
            if any(source.name == "Sigmoid" for source in graph.sources(loss)):
                return True
    return False


def _finding(misuse: Misuse) -> Finding:
    call = misuse.call
    low, high = call.target_low, call.target_high
    numbers = f", from {low:.3g} to {high:.3g}" if low is not None and high is not None else ""
    return RULE.finding(
        severity=misuse.severity,
        confidence=misuse.confidence,
        proof=Proof.STRUCTURE,
        title=misuse.title,
        summary=misuse.summary,
        where=known(Place(file=call.file, line=call.line)),
        first_step=0,
        evidence=[
            Evidence(
                f"{call.function}: outputs {tuple(call.input_shape)}"
                + (
                    f" from {call.input_low:.3g} to {call.input_high:.3g}"
                    if call.input_low is not None and call.input_high is not None
                    else ""
                )
                + f", targets {tuple(call.target_shape or ())} of type {call.target_dtype}{numbers}",
                LossCallFact.kind,
                misuse.value,
                misuse.threshold,
            )
        ],
        fix=misuse.fix,
        symptoms=("slow-descent", "stuck-at-chance") if misuse.severity is not Severity.INFO else (),
    )
