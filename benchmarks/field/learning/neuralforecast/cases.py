"""neuralforecast: forecasts by networks; the loop is Lightning's, in NeuralForecast.fit."""

from field.programs import LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("neuralforecast==3.3.0",))

PROGRAMS = [
    Program("mlp", "seasons.py", "time-series", "trainer", Metric(LOWER, 0.4)),
    Program(
        "nhits",
        "seasons.py",
        "time-series",
        "trainer",
        Metric(LOWER, 0.4),
        arguments=("--model", "nhits"),
    ),
    Program("linear", "seasons.py", "time-series", "trainer", Metric(LOWER, 0.4), arguments=("--model", "dlinear")),
    Program("gated", "seasons.py", "time-series", "trainer", Metric(LOWER, 0.4), arguments=("--model", "gru")),
    Program("mlp-normal", "seasons.py", "time-series", "trainer", Metric(LOWER, 0.4), arguments=("--loss", "normal")),
]

FAULTS = [
    Fault(
        "more-workers",
        "nhits",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/Lightning-AI/pytorch-lightning/issues/7932",
        mistake="A worker process is started for each epoch, which is one step, though all series are in memory.",
        slower=1.3,
        arguments=("--model", "nhits", "--workers", "1"),
    ),
    Fault(
        "high-rate",
        "gated",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/guillaumegenthial/sequence_tagging/issues/47",
        mistake="The learning rate is 500 times too high, so that the recurrent units saturate.",
        arguments=("--model", "gru", "--lr", "0.5"),
    ),
    Fault(
        "fast-decay",
        "linear",
        accepted=("learning-rate-decayed-too-early", "learning-rate-too-low"),
        category="condition",
        source="https://github.com/jaehyunnn/ViTPose_pytorch/issues/20",
        mistake="The learning rate is halved every three steps, so that training stops soon.",
        arguments=("--model", "dlinear", "--decays", "50"),
    ),
]
