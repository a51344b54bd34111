"""pytorch-forecasting: data sets and networks for forecasts, trained with lightning."""

from field.edits import replace
from field.programs import LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pytorch-forecasting==1.8.0",))

PROGRAMS = [
    Program("sales-tft", "sales.py", "time-series", "trainer", Metric(LOWER, 0.4)),
    Program("sales-lstm", "sales.py", "time-series", "trainer", Metric(LOWER, 0.4), ("--model", "lstm")),
    Program(
        "sales-gru",
        "sales.py",
        "time-series",
        "trainer",
        Metric(LOWER, 0.4),
        ("--model", "gru", "--batch-size", "32", "--epochs", "5"),
    ),
    Program("sales-deepar", "sales.py", "time-series", "trainer", Metric(LOWER, 0.4), ("--model", "deepar")),
    Program(
        "sales-nbeats",
        "sales.py",
        "time-series",
        "trainer",
        Metric(LOWER, 0.55),
        ("--model", "nbeats", "--lr", "0.005", "--epochs", "10"),
    ),
]

FAULTS = [
    Fault(
        "suggested-rate",
        "sales-deepar",
        accepted=("learning-rate-too-low",),
        category="condition",
        source="https://github.com/sktime/pytorch-forecasting/issues/298",
        mistake="The learning rate that the finder suggested was taken unseen, and is 1000 times too low.",
        arguments=("--model", "deepar", "--lr", "1e-5"),
    ),
    Fault(
        "high-rate",
        "sales-tft",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/sktime/pytorch-forecasting/issues/344",
        mistake="The learning rate is 1, so the network ends in flat forecasts.",
        arguments=("--lr", "1.0"),
    ),
    Fault(
        "in-order",
        "sales-lstm",
        accepted=("not-shuffled",),
        category="data",
        source="https://github.com/megvii-model/ShuffleNet-Series/issues/24",
        mistake="The loader for training is made as one for prediction, so windows come series by series, in order.",
        edits={SCRIPT: replace("training.to_dataloader(train=True,", "training.to_dataloader(train=False,")},
    ),
]
