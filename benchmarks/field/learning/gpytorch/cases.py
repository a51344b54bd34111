"""gpytorch: Gaussian processes; the loop is the user's, as in the examples of the documentation."""

from field.edits import replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("gpytorch==1.15.2",))

PROGRAMS = [
    Program("sine", "exact.py", "bayesian", "no-loader", Metric(LOWER, 0.6)),
    Program(
        "sine-rough",
        "exact.py",
        "bayesian",
        "no-loader",
        Metric(LOWER, 0.6),
        arguments=("--kernel", "matern", "--lr", "0.05"),
    ),
    Program(
        "friedman",
        "exact.py",
        "tabular",
        "no-loader",
        Metric(LOWER, 0.8),
        arguments=("--data", "friedman"),
    ),
    Program(
        "diabetes",
        "exact.py",
        "tabular",
        "no-loader",
        Metric(LOWER, 1.3),
        arguments=("--data", "diabetes", "--kernel", "matern"),
    ),
    Program("sparse", "sparse.py", "tabular", "plain", Metric(LOWER, 0.3)),
    Program(
        "predictive",
        "sparse.py",
        "tabular",
        "plain",
        Metric(LOWER, 0.3),
        arguments=("--objective", "PredictiveLogLikelihood", "--posterior", "mean-field"),
    ),
    Program("moons", "moons.py", "bayesian", "no-loader", Metric(HIGHER, 0.92)),
    Program("biopsy", "moons.py", "tabular", "no-loader", Metric(HIGHER, 0.92), arguments=("--data", "biopsy")),
    Program("deep-kernel", "deep.py", "vision", "plain", Metric(HIGHER, 0.92)),
    Program("tasks", "tasks.py", "bayesian", "no-loader", Metric(LOWER, 0.15)),
    Program("layers", "layers.py", "bayesian", "plain", Metric(LOWER, 0.6)),
]

FAULTS = [
    Fault(
        "noise-left-out",
        "sparse",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/cornellius-gp/gpytorch/issues/1276",
        mistake="The optimizer does not hold the likelihood's parameters, so the noise keeps its initial value.",
        edits={"train.py": replace(', {"params": likelihood.parameters()}', "")},
    ),
    Fault(
        "raw-units",
        "predictive",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/cornellius-gp/gpytorch/issues/1122",
        mistake="Inputs between 0 and 300 are many length scales apart, so the process predicts its mean.",
        arguments=("--objective", "PredictiveLogLikelihood", "--posterior", "mean-field", "--unit", "300"),
    ),
    Fault(
        "batch-as-data",
        "sparse",
        accepted=("over-regularized", "unintended-gradient-scale"),
        category="condition",
        source="https://github.com/cornellius-gp/gpytorch/issues/518",
        mistake="num_data is the size of a batch, so the divergence from the prior weighs 8 times too much.",
        edits={"train.py": replace("num_data=train_y.size(0)", "num_data=128")},
    ),
    Fault(
        "latent",
        "friedman",
        accepted=("metric-implementation-wrong",),
        category="evaluation",
        source="https://github.com/cornellius-gp/gpytorch/issues/2188",
        mistake="The test score takes the latent function's distribution without the likelihood, so noise is left out.",
        edits={"train.py": replace("predicted = likelihood(model(test_x))", "predicted = model(test_x)")},
    ),
]
