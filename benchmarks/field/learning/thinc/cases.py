"""thinc: models of functions, with torch modules wrapped; the loop is the user's, as in the documentation."""

from field.edits import in_turn, replace
from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("thinc==9.1.1",))

PROGRAMS = [
    Program("digits", "digits.py", "vision", "no-torch-optim", Metric(HIGHER, 0.9)),
    Program(
        "digits-convolutional",
        "digits.py",
        "vision",
        "no-torch-optim",
        Metric(HIGHER, 0.94),
        arguments=("--model", "convolutional"),
    ),
    Program("surface", "surface.py", "tabular", "no-torch-optim", Metric(HIGHER, 0.8)),
    Program(
        "surface-rectified",
        "surface.py",
        "tabular",
        "no-torch-optim",
        Metric(HIGHER, 0.75),
        arguments=("--optimizer", "RAdam"),
    ),
    Program("tagging", "tagging.py", "language", "no-torch-optim", Metric(HIGHER, 0.95)),
    Program(
        "tagging-gated", "tagging.py", "language", "no-torch-optim", Metric(HIGHER, 0.95), arguments=("--cell", "gru")
    ),
]

FAULTS = [
    Fault(
        "swapped",
        "surface-rectified",
        accepted=("loss-sign-flipped",),
        category="defect",
        source="https://github.com/ai4co/rl4co/pull/186",
        mistake="Prediction and target are swapped, so that the gradient points uphill.",
        arguments=("--optimizer", "RAdam"),
        edits={"train.py": replace("get_grad(predicted, some_y)", "get_grad(some_y, predicted)")},
    ),
    Fault(
        "bare-logarithm",
        "surface",
        accepted=("nan-in-targets", "log-of-zero"),
        category="numerics",
        source="https://github.com/NTMC-Community/MatchZoo-py/pull/69",
        mistake="The logarithm of the smallest target is taken at zero, so that all scaled targets are NaN.",
        edits={"train.py": replace("np.log1p(y - y.min())", "np.log(y - y.min())")},
    ),
    Fault(
        "every-batch",
        "tagging",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/isl-org/Open3D-ML/pull/385",
        mistake="All test sentences are tagged after each batch instead of each epoch.",
        slower=1.4,
        edits={
            "train.py": in_turn(
                replace(
                    "    right = np.concatenate([(a.argmax(1)",
                    "        tagged = model.predict(test_x)\n    right = np.concatenate([(a.argmax(1)",
                ),
                replace("zip(model.predict(test_x), test_y", "zip(tagged, test_y"),
            )
        },
    ),
    Fault(
        "high-rate",
        "digits-convolutional",
        accepted=("learning-rate-too-high", "dead-relu"),
        category="condition",
        source="https://github.com/davisking/dlib/issues/610",
        mistake="The learning rate is a hundred times too high, so that the units die.",
        arguments=("--model", "convolutional", "--rate", "0.3"),
    ),
]
