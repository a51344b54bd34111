"""geoopt: optimizers for parameters on manifolds, in the loop of its documentation."""

from field.edits import drop_line, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("geoopt==0.5.1",))

PROGRAMS = [
    Program("tree-ball", "tree.py", "metric-learning", "no-loader", Metric(LOWER, 0.12)),
    Program("tree-lorentz", "tree.py", "metric-learning", "no-loader", Metric(LOWER, 0.14), ("--manifold", "lorentz")),
    Program(
        "tree-descent",
        "tree.py",
        "metric-learning",
        "no-loader",
        Metric(LOWER, 0.18),
        ("--optimizer", "sgd", "--lr", "20"),
    ),
    Program("digits-recurrent", "orthogonal.py", "vision", "plain", Metric(HIGHER, 0.88)),
    Program("digits-hyperbolic", "orthogonal.py", "vision", "plain", Metric(HIGHER, 0.9), ("--model", "hyperbolic")),
    Program("axes-digits", "axes.py", "other", "no-loader", Metric(LOWER, 0.01)),
    Program(
        "axes-biopsy",
        "axes.py",
        "other",
        "no-loader",
        Metric(LOWER, 0.02),
        ("--data", "biopsy", "--optimizer", "adam", "--lr", "0.05"),
    ),
]

FAULTS = [
    Fault(
        "flat-optimizer",
        "tree-ball",
        accepted=(),
        category="defect",
        source="https://github.com/facebookresearch/hgnn/issues/16",
        mistake="The points are moved by an optimizer for flat space, so they leave the ball.",
        edits={
            SCRIPT: replace(
                "geoopt.optim.RiemannianAdam([points], lr=args.lr, stabilize=50)",
                "torch.optim.Adam([points], lr=args.lr)",
            )
        },
    ),
    Fault(
        "own-pairs",
        "tree-lorentz",
        accepted=("division-by-zero",),
        category="numerics",
        source="https://github.com/uber/causalml/pull/1050",
        mistake="Pairs of a node and itself stay in the batch, and their relative error is 0 / 0.",
        edits={SCRIPT: drop_line("pairs = pairs[pairs[:, 0] != pairs[:, 1]]")},
    ),
    Fault(
        "raw-pixels",
        "digits-recurrent",
        accepted=("unnormalized-inputs", "saturated-activations"),
        category="data",
        source="https://github.com/RUCAIBox/RecBole/issues/1109",
        mistake="The pixels are not scaled, so the states of the recurrent network saturate.",
        edits={SCRIPT: replace("(X / 16)", "X")},
    ),
]
