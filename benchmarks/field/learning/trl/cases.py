"""trl: post-training of language models; the loops are in its trainers."""

from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("trl==1.16.0",))

PROGRAMS = [
    Program("copy", "counting.py", "language", "trainer", Metric(HIGHER, 0.9)),
    Program("sort", "counting.py", "language", "trainer", Metric(HIGHER, 0.95), arguments=("--task", "sort")),
    Program(
        "sort-text",
        "counting.py",
        "language",
        "trainer",
        Metric(HIGHER, 0.85),
        arguments=("--task", "sort", "--form", "text"),
    ),
    Program("preferring", "preferring.py", "language", "trainer", Metric(HIGHER, 0.9)),
]

FAULTS = [
    Fault(
        "whole-text",
        "copy",
        accepted=("padding-in-loss",),
        category="defect",
        source="https://github.com/huggingface/trl/issues/1507",
        mistake="Prompt and answer are one text, so that the loss counts the random tokens of the prompt as well.",
        arguments=("--form", "text"),
    ),
    Fault(
        "short-window",
        "sort",
        accepted=("unsupervised-samples",),
        category="data",
        source="https://github.com/huggingface/trl/pull/5862",
        mistake="Sequences are cut before the answers end, so that their last tokens are never learned.",
        arguments=("--task", "sort", "--length", "10"),
    ),
    Fault(
        "pairs-of-two",
        "preferring",
        accepted=("device-underfilled", "small-kernels"),
        category="speed",
        source="https://github.com/ybarancan/STSU/issues/14",
        mistake="Gradients of two samples at a time are accumulated, though the whole batch would fit.",
        slower=1.5,
        arguments=("--accumulate", "16"),
    ),
]
