"""pytorch-ignite: engines that run a training step over a loader, with handlers at their events."""

from field.edits import drop_line, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pytorch-ignite==0.5.5",))
MLP = ("--model", "mlp", "--optimizer", "SGD", "--lr", "0.2", "--gamma", "0.95", "--epochs", "20")

PROGRAMS = [
    Program("images-cnn", "images.py", "vision", "trainer", Metric(HIGHER, 0.96)),
    Program("images-mlp", "images.py", "vision", "callbacks", Metric(HIGHER, 0.9), MLP),
    Program("friedman", "regression.py", "tabular", "callbacks", Metric(LOWER, 0.08)),
    Program(
        "diabetes",
        "regression.py",
        "tabular",
        "callbacks",
        Metric(LOWER, 0.65),
        ("--data", "diabetes", "--lr", "0.001", "--weight-decay", "0.01"),
    ),
    Program("binary", "binary.py", "tabular", "trainer", Metric(HIGHER, 0.93)),
    Program("tokens-gru", "sequences.py", "language", "callbacks", Metric(HIGHER, 0.97)),
    Program("tokens-lstm", "sequences.py", "language", "callbacks", Metric(HIGHER, 0.95), ("--cell", "LSTM")),
    Program("shapes", "shapes.py", "segmentation", "trainer", Metric(HIGHER, 0.9)),
]

FAULTS = [
    Fault(
        "scheduler-event",
        "images-mlp",
        accepted=("scheduler-misuse", "learning-rate-decayed-too-early"),
        category="condition",
        source="https://github.com/pytorch/ignite/issues/425",
        mistake="The schedule of epochs is attached to the event of iterations, so the learning rate is gone early.",
        edits={SCRIPT: replace("Events.EPOCH_COMPLETED, scheduler", "Events.ITERATION_COMPLETED, scheduler")},
    ),
    Fault(
        "target-shape",
        "friedman",
        accepted=("shape-broadcast-in-loss",),
        category="defect",
        source="https://github.com/sktime/sktime/pull/10932",
        mistake="Targets of shape (N,) meet outputs of shape (N, 1), so the loss compares every pair of samples.",
        edits={SCRIPT: replace("targets.transform(y[:, None])", "targets.transform(y[:, None]).ravel()")},
    ),
    Fault(
        "no-clearing",
        "friedman",
        accepted=("missing-zero-grad",),
        category="defect",
        source="https://github.com/wenet-e2e/wekws/pull/73",
        mistake="Gradients are never cleared, so each step follows the sum of all gradients so far.",
        edits={SCRIPT: drop_line("optimizer.zero_grad()")},
    ),
    Fault(
        "raw-features",
        "binary",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/ageron/handson-ml3/pull/20",
        mistake="The features are not scaled, so some are thousands and training does not settle.",
        edits={SCRIPT: replace("scaler.transform(X)", "X")},
    ),
    Fault(
        "validation-event",
        "shapes",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/pytorch/ignite/issues/678",
        mistake="The whole validation data is evaluated after every iteration instead of every epoch.",
        slower=1.4,
        edits={SCRIPT: replace("Events.EPOCH_COMPLETED, lambda", "Events.ITERATION_COMPLETED, lambda")},
    ),
    Fault(
        "score-direction",
        "friedman",
        accepted=(),
        category="evaluation",
        source="https://github.com/Project-MONAI/MONAI/issues/2467",
        mistake="The score to maximize is the error, so training stops early and the worst model is kept.",
        edits={SCRIPT: replace('-engine.state.metrics["mse"]', 'engine.state.metrics["mse"]')},
    ),
]
