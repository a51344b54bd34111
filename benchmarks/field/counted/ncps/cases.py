"""ncps: liquid recurrent networks, trained with lightning as in the documentation."""

from field.edits import insert_after, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("ncps==1.0.1", "lightning==2.6.1"))
IRREGULAR = ("--task", "irregular", "--epochs", "14")

PROGRAMS = [
    Program("digits", "sequences.py", "vision", "trainer", Metric(HIGHER, 0.88)),
    Program(
        "digits-wired", "sequences.py", "vision", "trainer", Metric(HIGHER, 0.86), ("--cell", "wired", "--units", "40")
    ),
    Program("irregular", "sequences.py", "time-series", "trainer", Metric(HIGHER, 0.85), IRREGULAR),
    Program(
        "pendulum-ungated",
        "sequences.py",
        "time-series",
        "trainer",
        Metric(LOWER, 0.05),
        ("--task", "pendulum", "--mode", "no_gate"),
    ),
    Program(
        "pendulum-mixed",
        "sequences.py",
        "time-series",
        "trainer",
        Metric(LOWER, 0.03),
        ("--task", "pendulum", "--mixed"),
    ),
    Program(
        "waves-liquid",
        "sequences.py",
        "time-series",
        "trainer",
        Metric(LOWER, 0.2),
        ("--task", "waves", "--cell", "ltc", "--units", "20", "--lr", "0.02", "--epochs", "30", "--batch-size", "25"),
    ),
]

FAULTS = [
    Fault(
        "flat-windows",
        "irregular",
        accepted=("nan-in-inputs", "division-by-zero"),
        category="numerics",
        source="https://github.com/jaungiers/LSTM-Neural-Network-for-Time-Series-Prediction/issues/66",
        mistake="Windows are divided by their standard deviation, which is zero where the signal is flat.",
        edits={SCRIPT: replace("(signal.std(1, keepdim=True) + 1e-6)", "signal.std(1, keepdim=True)")},
    ),
    Fault(
        "features-as-time",
        "digits",
        accepted=(),
        category="defect",
        source="https://github.com/mlech26l/ncps/issues/29",
        mistake="The features of a step are passed as further steps, so sequences are long and each step is poor.",
        edits={SCRIPT: replace("view(-1, 8, 8)", "view(-1, 64, 1)")},
    ),
    Fault(
        "large-rate",
        "digits-wired",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/preddy5/Im2Vec/issues/10",
        mistake="The learning rate is 100 times too high for Adam, so the cells saturate.",
        arguments=("--cell", "wired", "--units", "40", "--lr", "0.5"),
    ),
    Fault(
        "validation-interval",
        "digits",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/pytorch/ignite/issues/678",
        mistake="The whole validation data is evaluated after every training step.",
        slower=1.15,
        edits={SCRIPT: insert_after("num_sanity_val_steps=0,", "val_check_interval=1,")},
    ),
]
