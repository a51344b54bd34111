"""torchsurv: losses of survival models, in the loop of its introduction."""

from field.edits import replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("torchsurv==0.2.0",))

PROGRAMS = [
    Program("cox", "cohort.py", "survival", "plain", Metric(HIGHER, 0.73)),
    Program(
        "cox-breslow",
        "cohort.py",
        "survival",
        "plain",
        Metric(HIGHER, 0.73),
        ("--ties", "breslow", "--batch-size", "64", "--lr", "0.005"),
    ),
    Program("cox-curved", "cohort.py", "survival", "plain", Metric(HIGHER, 0.7), ("--risk", "curved")),
    Program("weibull", "cohort.py", "survival", "plain", Metric(HIGHER, 0.73), ("--loss", "weibull")),
    Program(
        "weibull-curved",
        "cohort.py",
        "survival",
        "plain",
        Metric(HIGHER, 0.69),
        ("--loss", "weibull", "--risk", "curved", "--epochs", "20"),
    ),
]

FAULTS = [
    Fault(
        "raw-features",
        "cox",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/jaredleekatzman/DeepSurv/issues/14",
        mistake="The features are not scaled; one runs to a thousand.",
        edits={SCRIPT: replace("scaler.transform(X)", "X")},
    ),
    Fault(
        "small-rate",
        "cox",
        accepted=("learning-rate-too-low",),
        category="condition",
        source="https://github.com/jaredleekatzman/DeepSurv/issues/12",
        mistake="The learning rate is 1e-5, so the model hardly moves.",
        arguments=("--lr", "0.00001"),
    ),
    Fault(
        "flags",
        "cox-curved",
        accepted=(),
        category="data",
        source="https://github.com/mahmoodlab/Patch-GCN/issues/19",
        mistake="The flag of censoring is taken for the flag of the event, so the censored patients are trained on.",
        edits={SCRIPT: replace("dataset(X_train, event_train,", "dataset(X_train, ~event_train,")},
    ),
]
