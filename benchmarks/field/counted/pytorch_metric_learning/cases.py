"""pytorch-metric-learning: losses, miners and trainers of embeddings."""

from field.edits import drop_line, replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pytorch-metric-learning==2.9.0",))
ARCFACE = ("--loss", "arcface", "--miner", "none", "--size", "4")

PROGRAMS = [
    Program("triplet", "noisy.py", "metric-learning", "plain", Metric(HIGHER, 0.85)),
    Program(
        "contrastive",
        "noisy.py",
        "metric-learning",
        "plain",
        Metric(HIGHER, 0.85),
        ("--loss", "contrastive", "--miner", "none"),
    ),
    Program(
        "ntxent", "noisy.py", "metric-learning", "plain", Metric(HIGHER, 0.8), ("--loss", "ntxent", "--miner", "none")
    ),
    Program("arcface", "noisy.py", "metric-learning", "several-optimizers", Metric(HIGHER, 0.75), ARCFACE),
    Program("trainer", "trained.py", "metric-learning", "trainer", Metric(HIGHER, 0.85)),
    Program("trainer-classifier", "trained.py", "metric-learning", "trainer", Metric(HIGHER, 0.85), ("--classifier",)),
]

FAULTS = [
    Fault(
        "default-margins",
        "contrastive",
        accepted=(),
        category="defect",
        source="https://github.com/KevinMusgrave/pytorch-metric-learning/issues/504",
        mistake="The margins are those of a distance, but a similarity is compared, so equal samples are pushed apart.",
        edits={SCRIPT: replace("pos_margin=1, neg_margin=0, distance", "distance")},
    ),
    Fault(
        "one-optimizer",
        "arcface",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/sung-yeon-kim/Proxy-Anchor-CVPR2020/issues/25",
        mistake="The loss has weights of its own, one vector for each class, that no optimizer was given.",
        edits={SCRIPT: drop_line("optimizers.append(")},
    ),
    Fault(
        "large-rate",
        "ntxent",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/KevinMusgrave/pytorch-metric-learning/issues/109",
        mistake="The learning rate of Adam is 0.5, and the loss grows instead of falling.",
        arguments=("--loss", "ntxent", "--miner", "none", "--lr", "0.5"),
    ),
]
