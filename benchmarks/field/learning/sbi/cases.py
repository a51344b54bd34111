"""sbi: simulation-based inference; the loops are in the train methods of its inference classes."""

from field.edits import replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("sbi==0.27.0",))

PROGRAMS = [
    Program("linear", "posterior.py", "science", "trainer", Metric(LOWER, -0.3)),
    Program(
        "linear-mixture", "posterior.py", "science", "trainer", Metric(LOWER, -0.4), arguments=("--estimator", "mdn")
    ),
    Program(
        "moons-spline",
        "posterior.py",
        "science",
        "trainer",
        Metric(LOWER, -1.8),
        arguments=("--simulator", "moons", "--estimator", "nsf", "--epochs", "16"),
    ),
    Program("ratio", "ratio.py", "science", "trainer", Metric(HIGHER, 0.9)),
    Program(
        "ratio-balanced",
        "ratio.py",
        "science",
        "trainer",
        Metric(HIGHER, 0.88),
        arguments=("--method", "bnre", "--classifier", "mlp"),
    ),
    Program("likelihood", "likelihood.py", "science", "trainer", Metric(LOWER, 0.8)),
    Program("signals", "signals.py", "time-series", "trainer", Metric(LOWER, -1.3)),
    Program(
        "signals-recurrent",
        "signals.py",
        "time-series",
        "trainer",
        Metric(LOWER, -0.9),
        arguments=("--embedding", "recurrent"),
    ),
]

FAULTS = [
    Fault(
        "raw-outputs",
        "linear",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/sbi-dev/sbi/pull/256",
        mistake="Simulated outputs in the hundred thousands are not standardized before the network.",
        arguments=("--z-score", "none"),
    ),
    Fault(
        "ten-at-a-time",
        "linear-mixture",
        accepted=("device-underfilled", "small-kernels"),
        category="speed",
        source="https://github.com/ybarancan/STSU/issues/14",
        mistake="The batch is so small that nearly all time goes into the overhead of many steps.",
        slower=1.8,
        arguments=("--estimator", "mdn", "--batch", "10"),
    ),
    Fault(
        "bare-root",
        "signals",
        accepted=("sqrt-at-zero",),
        category="numerics",
        source="https://github.com/mpariente/pytorch_stoi/pull/14",
        mistake="Windows of padding have no variance, and the gradient of its root is infinite there.",
        edits={
            "train.py": replace("(frames.unfold(2, 3, 3).var(3) + 1e-5).sqrt()", "frames.unfold(2, 3, 3).var(3).sqrt()")
        },
    ),
    Fault(
        "sorted-parameters",
        "ratio",
        accepted=("inputs-and-labels-unrelated",),
        category="data",
        source="https://github.com/mlcommons/GaNDLF/pull/870",
        mistake="Parameters are sorted after the simulation, so they no longer belong to the outputs.",
        arguments=("--sort", "1"),
    ),
]
