"""pytorch-tabnet: attentive networks for tables with a scikit-learn interface."""

from field.edits import in_turn, replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pytorch-tabnet==4.1.0",))

PROGRAMS = [
    Program("digits", "classify.py", "tabular", "trainer", Metric(HIGHER, 0.88)),
    Program(
        "cancer",
        "classify.py",
        "tabular",
        "trainer",
        Metric(HIGHER, 0.9),
        ("--data", "cancer", "--batch-size", "64", "--virtual-batch-size", "32"),
    ),
    Program("made", "classify.py", "tabular", "trainer", Metric(HIGHER, 0.82), ("--data", "made", "--mask", "entmax")),
    Program("friedman", "regress.py", "tabular", "trainer", Metric(HIGHER, 0.85)),
    Program("mixed", "mixed.py", "tabular", "trainer", Metric(HIGHER, 0.84)),
    Program("mixed-pretrained", "mixed.py", "tabular", "trainer", Metric(HIGHER, 0.83), ("--pretrain",)),
]

FAULTS = [
    Fault(
        "batch-of-all",
        "digits",
        accepted=("no-parameter-update",),
        category="defect",
        source="https://github.com/dreamquark-ai/tabnet/issues/519",
        mistake="The batch is larger than the data and incomplete batches are dropped, so nothing is trained.",
        arguments=("--batch-size", "4096"),
    ),
    Fault(
        "target-range",
        "friedman",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/dreamquark-ai/tabnet/issues/523",
        mistake="The targets are in the hundred thousands, and the network starts near zero and does not get there.",
        edits={
            SCRIPT: in_turn(
                replace("scaler.transform(y_train[:, None])", "y_train[:, None]"),
                replace("scaler.transform(y_valid[:, None])", "y_valid[:, None]"),
                replace("scaler.inverse_transform(model.predict(X_test))", "model.predict(X_test)"),
            )
        },
    ),
    Fault(
        "test-codes",
        "mixed",
        accepted=("train-validation-mismatch", "training-serving-skew"),
        category="evaluation",
        source="https://github.com/scikit-learn/scikit-learn/issues/10324",
        mistake="Training and test data are encoded separately, so a code stands for different categories in them.",
        edits={
            SCRIPT: in_turn(
                replace(
                    "    encoder = LabelEncoder().fit(frame[column])\n",
                    "    codes = np.zeros(COUNT, dtype=int)\n"
                    "    for part in (np.concatenate([train, valid]), test):\n"
                    "        codes[part] = pd.factorize(frame[column].to_numpy()[part])[0]\n",
                ),
                replace("encoder.transform(frame[column])", "codes"),
            )
        },
    ),
    Fault(
        "tiny-parts",
        "made",
        accepted=("batchnorm-small-batch",),
        category="condition",
        source="https://github.com/dreamquark-ai/tabnet/issues/251",
        mistake="Batch statistics are taken over two samples each.",
        arguments=("--data", "made", "--mask", "entmax", "--virtual-batch-size", "2"),
    ),
]
