"""pytorch-metric-learning: losses, miners and trainers of embeddings."""

from field.edits import replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pytorch-metric-learning==2.9.0",))
ARCFACE = ("--loss", "arcface", "--miner", "none", "--size", "8")

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
    Program("arcface", "noisy.py", "metric-learning", "several-optimizers", Metric(HIGHER, 0.82), ARCFACE),
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
        "hardest-only",
        "triplet",
        accepted=("representation-collapse",),
        category="condition",
        source="https://github.com/KevinMusgrave/pytorch-metric-learning/issues/20",
        mistake="Only the hardest triplets of a batch are mined, so the embeddings draw together early on.",
        arguments=("--miner", "hard"),
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
