"""skorch: a scikit-learn interface to networks; the loop is in NeuralNet.fit."""

from field.edits import drop_line, in_turn, replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("skorch==1.4.0",))

PROGRAMS = [
    Program("digits", "digits.py", "tabular", "trainer", Metric(HIGHER, 0.92)),
    Program(
        "digits-adam",
        "digits.py",
        "tabular",
        "trainer",
        Metric(HIGHER, 0.92),
        arguments=("--optimizer", "Adam", "--lr", "0.003", "--dropout", "0.1"),
    ),
    Program("images", "images.py", "vision", "callbacks", Metric(HIGHER, 0.94)),
    Program("friedman", "friedman.py", "tabular", "callbacks", Metric(HIGHER, 0.85)),
    Program(
        "diabetes",
        "friedman.py",
        "tabular",
        "callbacks",
        Metric(HIGHER, 0.25),
        arguments=("--data", "diabetes", "--criterion", "HuberLoss", "--decay", "0.1"),
    ),
    Program("biopsy", "biopsy.py", "tabular", "trainer", Metric(HIGHER, 0.93)),
    Program("waves", "waves.py", "time-series", "callbacks", Metric(HIGHER, 0.9)),
    Program("denoising", "denoising.py", "generative", "trainer", Metric(LOWER, 0.5)),
    Program("wine", "wine.py", "tabular", "closure", Metric(HIGHER, 0.93)),
    Program("rows", "rows.py", "tabular", "trainer", Metric(HIGHER, 0.8)),
]

FAULTS = [
    Fault(
        "rate-too-high",
        "digits",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/skorch-dev/skorch/issues/186",
        mistake="The learning rate is 300 times too high, so accuracy stays near chance.",
        arguments=("--lr", "30"),
    ),
    Fault(
        "log-softmax",
        "digits-adam",
        accepted=("log-of-zero", "wrong-loss-for-task", "misplaced-activation"),
        category="numerics",
        source="https://github.com/skorch-dev/skorch/issues/519",
        mistake="The module ends with log-softmax, and skorch takes the logarithm again, so the loss is NaN.",
        edits={"train.py": replace("torch.softmax(", "torch.log_softmax(")},
    ),
    Fault(
        "sorted",
        "images",
        accepted=("not-shuffled",),
        category="data",
        source="https://github.com/skorch-dev/skorch/issues/419",
        mistake="The samples are sorted by class and skorch does not shuffle by default, so classes are forgotten.",
        arguments=("--order", "class", "--shuffle", "0"),
    ),
    Fault(
        "flat-target",
        "friedman",
        accepted=("shape-broadcast-in-loss",),
        category="defect",
        source="https://github.com/skorch-dev/skorch/pull/974",
        mistake="One-dimensional targets broadcast against two-dimensional predictions, so the net learns the mean.",
        edits={"train.py": drop_line("target.reshape(-1, 1)")},
    ),
    Fault(
        "raw",
        "biopsy",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/jaredleekatzman/DeepSurv/issues/14",
        mistake="Features with standard deviations from 0.003 to 570 are not scaled, so tanh units saturate.",
        arguments=("--scaler", "0"),
    ),
    Fault(
        "one-by-one",
        "rows",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/skorch-dev/skorch/issues/1100",
        mistake="The data set is indexed one sample at a time, which takes most of each step.",
        slower=1.5,
        edits={
            "train.py": in_turn(
                replace("    dataset=Rows,\n", ""),
                replace("    iterator_train__collate_fn=collate,\n", ""),
                replace("    iterator_valid__collate_fn=collate,\n", ""),
            )
        },
    ),
]
