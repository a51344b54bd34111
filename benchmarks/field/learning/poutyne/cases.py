"""poutyne: a Keras-like interface; the loop is in Model.fit_generator."""

from field.edits import in_turn, insert_after, replace
from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("poutyne==1.19.0",))

PROGRAMS = [
    Program("digits", "digits.py", "vision", "trainer", Metric(HIGHER, 90)),
    Program(
        "digits-cosine",
        "digits.py",
        "vision",
        "callbacks",
        Metric(HIGHER, 90),
        arguments=("--optimizer", "momentum", "--callbacks", "cosine", "--epochs", "10"),
    ),
    Program(
        "digits-restored",
        "digits.py",
        "vision",
        "callbacks",
        Metric(HIGHER, 93),
        arguments=("--network", "convolutional", "--callbacks", "restore", "--epochs", "10"),
    ),
    Program("friedman", "diabetes.py", "tabular", "callbacks", Metric(HIGHER, 0.85)),
    Program(
        "diabetes",
        "diabetes.py",
        "tabular",
        "callbacks",
        Metric(HIGHER, 0.2),
        arguments=("--data", "diabetes", "--decay", "0.001"),
    ),
    Program("transfer", "transfer.py", "vision", "trainer", Metric(HIGHER, 88)),
    Program("waves", "waves.py", "time-series", "trainer", Metric(HIGHER, 85)),
]

FAULTS = [
    Fault(
        "probabilities",
        "digits-cosine",
        accepted=("softmax-before-cross-entropy", "misplaced-activation"),
        category="defect",
        source="https://github.com/mlelarge/graph_neural_net/pull/37",
        mistake="The network ends with softmax before a loss that applies it again, so learning is slow.",
        edits={
            "train.py": in_turn(
                replace("nn.Linear(80, 10))", "nn.Linear(80, 10), nn.Softmax(dim=1))"),
            )
        },
    ),
    Fault(
        "heavy-decay",
        "friedman",
        accepted=("over-regularized",),
        category="condition",
        source="https://github.com/Joker316701882/Additive-Margin-Softmax/issues/16",
        mistake="The weight decay is so strong that the weights shrink to zero and the mean is predicted.",
        arguments=("--decay", "1"),
    ),
    Fault(
        "quick-decay",
        "digits-cosine",
        accepted=("learning-rate-decayed-too-early", "scheduler-misuse"),
        category="condition",
        source="https://github.com/novioleo/FOTS/issues/13",
        mistake="The learning rate is divided by ten after every epoch, so learning ends after the first epochs.",
        edits={
            "train.py": in_turn(
                replace("CosineAnnealingLR(T_max=args.epochs)", "ExponentialLR(gamma=0.1)"),
                replace("import BestModelRestore, CosineAnnealingLR,", "import BestModelRestore, ExponentialLR,"),
            )
        },
    ),
    Fault(
        "gaps",
        "diabetes",
        accepted=("nan-in-inputs",),
        category="data",
        source="https://github.com/circleAhn/TESLA-tf/issues/1",
        mistake="Some rows of the table have missing values, so the loss and then all weights become NaN.",
        arguments=("--data", "diabetes", "--decay", "0.001", "--gaps", "3"),
    ),
    Fault(
        "folder-order",
        "digits-restored",
        accepted=("train-validation-mismatch",),
        category="evaluation",
        source="https://github.com/uzh-rpg/rpg_event_representation_learning/issues/2",
        mistake="Validation and test numbers the classes in another order than training, so scores are near chance.",
        edits={
            "train.py": insert_after(
                "x_valid, x_test, y_valid, y_test",
                "index = {name: k for k, name in enumerate({str(c) for c in y_test})}\n"
                "y_valid, y_test = (np.array([index[str(c)] for c in a]) for a in (y_valid, y_test))",
            )
        },
    ),
]
