"""skorch: a scikit-learn interface to networks; the loop is in NeuralNet.fit."""

from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("skorch==1.4.0",))

PROGRAMS = [
    Program("digits", "digits.py", "tabular", "trainer", Metric(HIGHER, 0.9)),
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
]
