"""rtdl-revisiting-models: networks for tables, in the loop of its example."""

from field.edits import replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("rtdl-revisiting-models==0.0.2",))

PROGRAMS = [
    Program("friedman-transformer", "table.py", "tabular", "plain", Metric(HIGHER, 0.78)),
    Program("friedman-mlp", "table.py", "tabular", "plain", Metric(HIGHER, 0.9), ("--model", "mlp", "--epochs", "25")),
    Program(
        "made-resnet", "table.py", "tabular", "plain", Metric(HIGHER, 0.8), ("--model", "resnet", "--data", "made")
    ),
    Program(
        "made-transformer",
        "table.py",
        "tabular",
        "plain",
        Metric(HIGHER, 0.8),
        ("--data", "made", "--epochs", "15"),
    ),
]

FAULTS = [
    Fault(
        "raw-features",
        "friedman-transformer",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/d-ailin/GDN/issues/23",
        mistake="The features are not scaled, and three of them are in the thousands.",
        edits={SCRIPT: replace("scaler.transform(X)", "X")},
    ),
    Fault(
        "output-shape",
        "friedman-mlp",
        accepted=("shape-broadcast-in-loss",),
        category="defect",
        source="https://github.com/jsboige/CoursIA/pull/926",
        mistake="Outputs of shape (N, 1) meet targets of shape (N,), so the loss compares every pair of samples.",
        edits={SCRIPT: replace("F.mse_loss(output.squeeze(-1), y)", "F.mse_loss(output, y)")},
    ),
]
