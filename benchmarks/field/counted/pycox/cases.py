"""pycox: survival models with the fit loop of torchtuples."""

from field.edits import insert_after, replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pycox==0.3.0", "torchtuples==0.2.2"))

PROGRAMS = [
    Program("coxph", "cohort.py", "survival", "trainer", Metric(HIGHER, 0.71)),
    Program("coxcc", "cohort.py", "survival", "trainer", Metric(HIGHER, 0.71), ("--model", "coxcc")),
    Program("coxtime", "cohort.py", "survival", "trainer", Metric(HIGHER, 0.7), ("--model", "coxtime")),
    Program("hazard", "cohort.py", "survival", "trainer", Metric(HIGHER, 0.65), ("--model", "hazard")),
    Program("pmf", "cohort.py", "survival", "trainer", Metric(HIGHER, 0.62), ("--model", "pmf")),
]

FAULTS = [
    Fault(
        "null-values",
        "hazard",
        accepted=("nan-in-inputs",),
        category="data",
        source="https://github.com/havakv/pycox/issues/48",
        mistake="Some values of a feature are missing, so the loss is NaN from the first epoch.",
        edits={SCRIPT: insert_after("X = scaler.transform(X)", 'X[::50, 1] = float("nan")')},
    ),
    Fault(
        "small-batches",
        "coxph",
        accepted=("division-by-zero", "batch-too-small"),
        category="numerics",
        source="https://github.com/havakv/pycox/issues/124",
        mistake="In a batch of four patients there may be no event, and the loss divides by their number.",
        arguments=("--batch-size", "4"),
    ),
    Fault(
        "scaled-labels",
        "coxph",
        accepted=("invalid-labels",),
        category="data",
        source="https://github.com/arturomoncadatorres/deepsurvk/issues/83",
        mistake="The flags of the event are standardized like the features, so the censored count as negative events.",
        edits={
            SCRIPT: replace("(time[train], event[train])", "(time[train], (event[train] - event.mean()) / event.std())")
        },
    ),
]
