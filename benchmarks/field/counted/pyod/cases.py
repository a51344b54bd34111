"""pyod: detectors of outliers; the deep ones share a loop."""

from field.edits import drop_line, replace
from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pyod==3.6.7",))

PROGRAMS = [
    Program("sheet-ae", "outliers.py", "tabular", "trainer", Metric(HIGHER, 0.95)),
    Program("sheet-vae", "outliers.py", "tabular", "trainer", Metric(HIGHER, 0.93), ("--model", "vae")),
    Program(
        "sheet-svdd",
        "outliers.py",
        "tabular",
        "trainer",
        Metric(HIGHER, 0.95),
        ("--model", "svdd"),
        copies=("pyod",),
    ),
    Program(
        "digits-ae",
        "outliers.py",
        "vision",
        "trainer",
        Metric(HIGHER, 0.8),
        ("--data", "digits", "--epochs", "40"),
        copies=("pyod",),
    ),
]

FAULTS = [
    Fault(
        "no-gradient",
        "sheet-svdd",
        accepted=("no-parameter-update",),
        category="defect",
        source="https://github.com/yzhao062/pyod/pull/711",
        mistake="The backward pass is missing, so the scores are those of random weights.",
        edits={"pyod/models/deep_svdd.py": drop_line("                loss.backward()")},
    ),
    Fault(
        "divisor",
        "digits-ae",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/yzhao062/pyod/issues/391",
        mistake="The features are divided by their means, not their standard deviations, and some means are near zero.",
        edits={"pyod/models/base_dl.py": replace("np.std(X, axis=0)", "np.mean(X, axis=0)")},
    ),
]
