"""x-transformers: transformer layers; the loop is the user's, as in the training scripts of the project."""

from field.edits import drop_line, replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("x-transformers==2.31.10",))

PROGRAMS = [
    Program("sequences", "sequences.py", "language", "plain", Metric(HIGHER, 0.9)),
    Program(
        "sequences-rotary",
        "sequences.py",
        "language",
        "plain",
        Metric(HIGHER, 0.9),
        arguments=("--positions", "rotary"),
    ),
    Program("reversal", "reversal.py", "language", "no-loader", Metric(HIGHER, 0.9)),
    Program("copying", "reversal.py", "language", "no-loader", Metric(HIGHER, 0.9), arguments=("--task", "copy")),
    Program("digits", "digits.py", "vision", "plain", Metric(HIGHER, 0.85)),
    Program(
        "digits-registers",
        "digits.py",
        "vision",
        "plain",
        Metric(HIGHER, 0.85),
        arguments=("--registers", "4", "--dropout", "0.05"),
    ),
    Program("waves", "waves.py", "time-series", "plain", Metric(LOWER, 0.05)),
    Program("lines", "lines.py", "language", "plain", Metric(LOWER, 0.8)),
]

FAULTS = [
    Fault(
        "lookahead",
        "sequences",
        accepted=("missing-target-shift", "attention-mask-ineffective"),
        category="defect",
        source="https://github.com/lucidrains/x-transformers/pull/74",
        mistake="Layers of an Encoder are used for a language model, so each position sees the token to predict.",
        edits={"train.py": replace("Decoder", "Encoder", times=2)},
    ),
    Fault(
        "rate-too-high",
        "sequences-rotary",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/cfzd/Ultra-Fast-Lane-Detection/issues/36",
        mistake="The learning rate of Adam is 50 times too high, so the loss stays near chance.",
        arguments=("--positions", "rotary", "--lr", "0.1"),
    ),
    Fault(
        "padding-learned",
        "lines",
        accepted=("padding-in-loss",),
        category="data",
        source="https://github.com/lukas-blecher/LaTeX-OCR/issues/305",
        mistake="ignore_index keeps its default, so most of the targets that count are padding.",
        arguments=("--ignored", "-100"),
    ),
    Fault(
        "gradients-kept",
        "copying",
        accepted=("missing-zero-grad",),
        category="defect",
        source="https://github.com/wenet-e2e/wekws/issues/72",
        mistake="The gradients are never cleared, so each step follows the sum of all that were seen.",
        edits={"train.py": drop_line("optimizer.zero_grad()")},
    ),
]
