"""torchbnn: layers with random weights, in the loop of its demonstrations."""

from field.edits import replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("torchbnn==1.2",))

PROGRAMS = [
    Program("iris", "bayes.py", "bayesian", "plain", Metric(HIGHER, 0.86), ("--epochs", "60", "--batch-size", "32")),
    Program("biopsy", "bayes.py", "bayesian", "plain", Metric(HIGHER, 0.92), ("--data", "biopsy")),
    Program("digits", "bayes.py", "bayesian", "plain", Metric(HIGHER, 0.92), ("--data", "digits", "--epochs", "15")),
    Program("friedman", "bayes.py", "bayesian", "plain", Metric(LOWER, 0.12), ("--data", "friedman", "--epochs", "30")),
]

FAULTS = [
    Fault(
        "summed-divergence",
        "digits",
        accepted=("over-regularized", "unintended-gradient-scale"),
        category="condition",
        source="https://github.com/Harry24k/bayesian-neural-network-pytorch/issues/2",
        mistake="The divergence is summed over all weights and added with weight one, so it outweighs the data.",
        arguments=("--data", "digits", "--epochs", "15", "--weight", "1", "--reduction", "sum"),
    ),
    Fault(
        "wide-prior",
        "biopsy",
        accepted=("bad-initialization-scale",),
        category="condition",
        source="https://github.com/Harry24k/bayesian-neural-network-pytorch/issues/2",
        mistake="The prior's deviation is 5, and the weights start with it, so noise drowns the signal.",
        arguments=("--data", "biopsy", "--sigma", "5"),
    ),
    Fault(
        "column-of-answers",
        "friedman",
        accepted=("shape-broadcast-in-loss",),
        category="defect",
        source="https://github.com/jsboige/CoursIA/pull/926",
        mistake="Answers of shape (N, 1) meet targets of shape (N,), so the loss compares every pair of rows.",
        edits={SCRIPT: replace("mse_loss(answers.squeeze(-1), targets)", "mse_loss(answers, targets)")},
    ),
]
