"""pykeen: embeddings of knowledge graphs, in its pipeline, on data sets that it brings along."""

from field.edits import replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pykeen==1.11.1",))
MULTICLASS = ("--loop", "lcwa", "--loss", "crossentropy")
UMLS = ("--data", "umls", "--model", "DistMult", *MULTICLASS, "--epochs", "20", "--lr", "0.03")
ROTATE = ("--data", "kinships", "--model", "RotatE", "--loss", "nssa")
COMPLEX = ("--data", "kinships", "--model", "ComplEx", *MULTICLASS, "--epochs", "25")

PROGRAMS = [
    Program(
        "nations-tucker",
        "links.py",
        "graph",
        "trainer",
        Metric(HIGHER, 0.4),
        ("--model", "TuckER", "--loop", "lcwa", "--loss", "bcewithlogits", "--smoothing", "0.1", "--epochs", "30"),
    ),
    Program(
        "nations-transe",
        "links.py",
        "graph",
        "trainer",
        Metric(HIGHER, 0.38),
        ("--model", "TransE", "--loss", "marginranking", "--lr", "0.03", "--epochs", "30"),
    ),
    Program("kinships-complex", "links.py", "graph", "trainer", Metric(HIGHER, 0.45), (*COMPLEX, "--lr", "0.05")),
    Program(
        "kinships-distmult",
        "links.py",
        "graph",
        "trainer",
        Metric(HIGHER, 0.38),
        ("--data", "kinships", *MULTICLASS, "--epochs", "20", "--lr", "0.03"),
    ),
    Program(
        "kinships-rotate",
        "links.py",
        "graph",
        "trainer",
        Metric(HIGHER, 0.5),
        (*ROTATE, "--lr", "0.05", "--epochs", "15", "--negatives", "16"),
    ),
    Program("umls-distmult", "links.py", "graph", "trainer", Metric(HIGHER, 0.42), UMLS),
]

FAULTS = [
    Fault(
        "own-ids",
        "umls-distmult",
        accepted=("train-validation-mismatch",),
        category="evaluation",
        source="https://github.com/elsevier-AI-Lab/BioBLP/issues/13",
        mistake="The test data numbers its entities and relations by itself, so other embeddings are looked up.",
        edits={SCRIPT: replace('folder / "test.txt", **ids', 'folder / "test.txt"')},
    ),
    Fault(
        "plain-descent",
        "kinships-complex",
        accepted=("learning-rate-too-low",),
        category="condition",
        source="https://github.com/thunlp/OpenKE/issues/133",
        mistake="Plain gradient descent at 0.01 hardly moves the small embeddings.",
        arguments=(*COMPLEX, "--lr", "0.01", "--optimizer", "SGD"),
    ),
    Fault(
        "training-evaluated",
        "umls-distmult",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/keras-team/keras-cv/pull/1071",
        mistake="All of the training data is ranked after each epoch.",
        slower=1.2,
        arguments=(*UMLS, "--stopper", "1"),
        edits={SCRIPT: replace("validation=validation", "validation=training")},
    ),
]
