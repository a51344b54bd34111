"""What torch says when labels do not fit a loss, and what that means for the user."""

from __future__ import annotations

from dataclasses import dataclass

from torchdoctor.findings import Fix, Severity


@dataclass(frozen=True)
class Misfit:
    """What is wrong with the labels of one loss call."""

    title: str
    summary: str
    fix: Fix
    value: float | None = None
    threshold: float | None = None
    severity: Severity = Severity.ERROR
    confidence: float = 0.98
    symptoms: tuple[str, ...] = ()


_WRONG_TYPE = Misfit(
    "Class labels have the wrong type: cross-entropy wants int64 indices",
    "The targets are not 64-bit integers, so the loss cannot read them as class indices.",
    Fix("Convert the labels once, where they are loaded.", "y = y.long()"),
)
_TRAILING = Misfit(
    "Class labels have one dimension too many",
    "Cross-entropy wants one index a sample, a vector of length N; it got a matrix (a trailing dimension of "
    "one, or one-hot rows).",
    Fix("Drop the dimension; for one-hot rows take the index.", "y = y.squeeze(1)  # one-hot: y = y.argmax(dim=1)"),
)
ERRORS: dict[str, Misfit] = {
    r"expected target dtype to be Long|expected scalar type Long but found": _WRONG_TYPE,
    r"multi-target not supported|0D or 1D target tensor expected": _TRAILING,
    r"Expected floating point type for target with class probabilities": Misfit(
        "One-hot labels of integers where cross-entropy wants indices",
        "The targets have the outputs' shape and are integers: the loss takes such targets for probabilities, "
        "which are floats.",
        Fix("Give the index of the class.", "y = y.argmax(dim=1)"),
    ),
    r"all elements of target should be between 0 and 1": Misfit(
        "Binary labels lie outside 0..1",
        "Binary cross-entropy wants targets between 0 and 1 and got others.",
        Fix("Turn the labels into 0 and 1.", "y = (y > 0).float()"),
    ),
    r"result type Float can't be cast to the desired output type (Long|Int|Bool)": Misfit(
        "Binary labels are integers, the loss wants floats",
        "Binary cross-entropy compares floats; the targets are integers.",
        Fix("Convert the labels.", "y = y.float()"),
    ),
    r"Target size .* must be the same as input size|Using a target size .* that is different to the input size": Misfit(
        "Binary labels and outputs differ in shape",
        "Binary cross-entropy compares element by element, and the targets' shape is not that of the outputs.",
        Fix("Give both one shape.", "loss = criterion(logits.squeeze(1), y.float())"),
    ),
    r"Expected input batch_size \(\d+\) to match target batch_size": Misfit(
        "Outputs and labels differ in number",
        "The loss got a different number of outputs than of labels: a reshape inside the model, or inputs and labels "
        "that were cut differently.",
        Fix(
            "Compare the first dimension of both before the loss.",
            "assert logits.shape[0] == y.shape[0], (logits.shape, y.shape)",
        ),
        confidence=0.8,
    ),
    r"Expected target size \[": Misfit(
        "Labels of a sequence do not match the outputs' layout",
        "For outputs of more than two dimensions cross-entropy wants the classes in dimension 1; here they are "
        "elsewhere.",
        Fix(
            "Flatten both, or move the classes to dimension 1.",
            "loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())",
        ),
        confidence=0.9,
    ),
}
"""What torch 2.6 to 2.13 say about labels that do not fit, and what it means."""
