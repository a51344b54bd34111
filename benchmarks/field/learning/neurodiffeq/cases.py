"""neurodiffeq: differential equations solved by networks; the loop is in the fit method of its solvers."""

from field.edits import replace
from field.programs import LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("neurodiffeq==0.7.0",))

PROGRAMS = [
    Program("spring", "ordinary.py", "physics", "trainer", Metric(LOWER, 0.05)),
    Program(
        "decay",
        "ordinary.py",
        "physics",
        "trainer",
        Metric(LOWER, 0.03),
        arguments=("--problem", "decay", "--activation", "sine"),
    ),
    Program("prey", "ordinary.py", "physics", "trainer", Metric(LOWER, 0.15), arguments=("--problem", "prey")),
    Program("star", "ordinary.py", "physics", "trainer", Metric(LOWER, 0.25), arguments=("--problem", "star")),
    Program("laplace", "partial.py", "physics", "trainer", Metric(LOWER, 0.02)),
    Program("poisson", "partial.py", "physics", "trainer", Metric(LOWER, 0.1), arguments=("--problem", "poisson")),
    Program(
        "laplace-closure",
        "partial.py",
        "physics",
        "closure",
        Metric(LOWER, 0.01),
        arguments=("--optimizer", "LBFGS", "--epochs", "60", "--grid", "10"),
    ),
]

FAULTS = [
    Fault(
        "one-of-two",
        "prey",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/juliusfrost/dreamer-pytorch/pull/79",
        mistake="The optimizer holds the parameters of one of the two networks only.",
        arguments=("--problem", "prey"),
        edits={
            "train.py": replace("chain.from_iterable(net.parameters() for net in nets)", "nets[0].parameters()"),
        },
    ),
    Fault(
        "four-validations",
        "laplace",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/tflearn/tflearn/issues/176",
        mistake="Four batches are validated after each step, which is the default, and take most of the time.",
        slower=1.3,
        arguments=("--batches", "4"),
    ),
    Fault(
        "quotient",
        "star",
        accepted=("division-by-zero",),
        category="numerics",
        source="https://github.com/NeuroDiffGym/neurodiffeq/issues/26",
        mistake="The equation divides by the time, which is zero at the first point of the grid.",
        arguments=("--problem", "star"),
        edits={
            "train.py": replace(
                "t * diff(u, t, order=2) + 2 * diff(u, t) + t * u", "diff(u, t, order=2) + 2 / t * diff(u, t) + u"
            )
        },
    ),
    Fault(
        "high-rate",
        "spring",
        accepted=("learning-rate-too-high", "saturated-activations"),
        category="condition",
        source="https://github.com/pavancm/CONTRIQUE/issues/8",
        mistake="The learning rate is a hundred times too high, so that the units saturate at once.",
        arguments=("--lr", "0.5"),
    ),
]
