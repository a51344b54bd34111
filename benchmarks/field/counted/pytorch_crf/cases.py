"""pytorch-crf: a conditional random field as the last layer of a tagger, in the loop of its documentation."""

from field.edits import replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pytorch-crf==0.7.2",))

PROGRAMS = [
    Program("tagger-lstm", "tagger.py", "language", "plain", Metric(HIGHER, 0.95)),
    Program("tagger-gru", "tagger.py", "language", "plain", Metric(HIGHER, 0.95), ("--encoder", "gru")),
    Program(
        "tagger-conv",
        "tagger.py",
        "language",
        "plain",
        Metric(HIGHER, 0.94),
        ("--encoder", "conv", "--lr", "0.005", "--epochs", "14"),
    ),
]

FAULTS = [
    Fault(
        "likelihood",
        "tagger-lstm",
        accepted=("loss-sign-flipped",),
        category="defect",
        source="https://github.com/kmkurn/pytorch-crf/issues/81",
        mistake="The log likelihood that the layer returns is minimized.",
        edits={SCRIPT: replace("return -self.crf(", "return self.crf(")},
    ),
]
