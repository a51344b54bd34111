"""sentence-transformers: trainers of embedding models and rerankers, on small models with random weights."""

from field.edits import replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("sentence-transformers[train]==6.2.0",))

PROGRAMS = [
    Program("pairs-static", "pairs.py", "language", "trainer", Metric(HIGHER, 0.93)),
    Program(
        "pairs-bert", "pairs.py", "language", "trainer", Metric(HIGHER, 0.88), ("--model", "bert", "--lr", "0.002")
    ),
    Program("triplets", "pairs.py", "metric-learning", "trainer", Metric(HIGHER, 0.95), ("--loss", "triplet")),
    Program("scores-cosine", "scores.py", "metric-learning", "trainer", Metric(HIGHER, 0.93)),
    Program("scores-cosent", "scores.py", "metric-learning", "trainer", Metric(HIGHER, 0.8), ("--loss", "cosent")),
    Program("rerank", "rerank.py", "language", "trainer", Metric(HIGHER, 0.88)),
]

FAULTS = [
    Fault(
        "usual-rate",
        "pairs-static",
        accepted=("learning-rate-too-low",),
        category="condition",
        source="https://github.com/huggingface/sentence-transformers/issues/2982",
        mistake="The learning rate is the usual one of transformers, far too low for a table of embeddings.",
        arguments=("--lr", "0.00005"),
    ),
    Fault(
        "small-batches",
        "pairs-bert",
        accepted=("batch-too-small",),
        category="condition",
        source="https://github.com/huggingface/sentence-transformers/issues/2916",
        mistake="Sixteen batches of two are accumulated, so each pair has a single negative instead of thirty-one.",
        arguments=("--model", "bert", "--lr", "0.002", "--batch-size", "2", "--accumulate", "16"),
    ),
    Fault(
        "one-score",
        "scores-cosine",
        accepted=("representation-collapse", "class-imbalance"),
        category="data",
        source="https://github.com/huggingface/sentence-transformers/issues/326",
        mistake="There are only similar pairs, all with score 1, so the embeddings draw together.",
        arguments=("--low", "5"),
    ),
    Fault(
        "score-range",
        "scores-cosine",
        accepted=("unnormalized-inputs", "invalid-labels"),
        category="data",
        source="https://github.com/huggingface/sentence-transformers/issues/665",
        mistake="The scores run from 0 to 5, but a cosine cannot exceed 1.",
        edits={SCRIPT: replace('[score / 5 for score in train["score"]]', 'list(train["score"])')},
    ),
    Fault(
        "column-order",
        "triplets",
        accepted=(),
        category="data",
        source="https://github.com/huggingface/sentence-transformers/issues/2791",
        mistake="The columns are sorted by name, and the loss takes them in order, so negatives are drawn near.",
        edits={
            SCRIPT: replace(
                "Dataset.from_dict(columns)", "Dataset.from_dict({name: columns[name] for name in sorted(columns)})"
            )
        },
    ),
    Fault(
        "evaluations",
        "pairs-static",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/huggingface/sentence-transformers/issues/3281",
        mistake="The evaluator runs after every step instead of every epoch.",
        slower=1.4,
        edits={SCRIPT: replace('eval_strategy="epoch"', 'eval_strategy="steps",\n    eval_steps=1')},
    ),
]
