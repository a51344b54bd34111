"""cebra: contrastive embeddings of recordings; the loop is in CEBRA.fit."""

from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("cebra==0.6.1",))

PROGRAMS = [
    Program("ring", "ring.py", "metric-learning", "trainer", Metric(HIGHER, 0.85)),
    Program(
        "ring-euclidean",
        "ring.py",
        "metric-learning",
        "trainer",
        Metric(HIGHER, 0.85),
        arguments=("--distance", "euclidean"),
    ),
    Program(
        "ring-angle", "ring.py", "metric-learning", "trainer", Metric(HIGHER, 0.85), arguments=("--guide", "angle")
    ),
    Program(
        "ring-temperature",
        "ring.py",
        "metric-learning",
        "trainer",
        Metric(HIGHER, 0.85),
        arguments=("--temperature", "auto"),
    ),
]

FAULTS = [
    Fault(
        "mixed",
        "ring",
        accepted=("inputs-and-labels-unrelated",),
        category="data",
        source="https://github.com/atong01/conditional-flow-matching/issues/172",
        mistake="The recording is shuffled before the fit, so that positive pairs have nothing in common.",
        arguments=("--order", "mixed"),
    ),
    Fault(
        "high-rate",
        "ring-euclidean",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/CharlieDinh/pFedMe/issues/11",
        mistake="The learning rate is a thousand times too high.",
        arguments=("--distance", "euclidean", "--lr", "3"),
    ),
]
