"""keras on its torch backend: compile and fit."""

from field.edits import insert_after, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("keras==3.15.1",))

PROGRAMS = [
    Program("images-cnn", "images.py", "vision", "trainer", Metric(HIGHER, 0.93)),
    Program("images-dense", "images.py", "vision", "trainer", Metric(HIGHER, 0.92), ("--model", "dense")),
    Program("cancer", "table.py", "tabular", "callbacks", Metric(HIGHER, 0.92)),
    Program("wine", "table.py", "tabular", "callbacks", Metric(HIGHER, 0.9), ("--data", "wine", "--epochs", "40")),
    Program(
        "friedman",
        "table.py",
        "tabular",
        "callbacks",
        Metric(LOWER, 0.42),
        ("--data", "friedman", "--epochs", "40", "--l2", "0.0003"),
    ),
    Program("series-lstm", "series.py", "time-series", "trainer", Metric(LOWER, 0.03)),
    Program("series-gru", "series.py", "time-series", "trainer", Metric(LOWER, 0.03), ("--cell", "GRU")),
    Program("autoencoder", "autoencoder.py", "generative", "no-torch-optim", Metric(LOWER, 0.035)),
]

FAULTS = [
    Fault(
        "from-logits",
        "images-cnn",
        accepted=("softmax-before-cross-entropy",),
        category="defect",
        source="https://github.com/keras-team/keras/issues/16906",
        mistake="The loss is told to expect logits, but the model ends in a softmax.",
        edits={
            SCRIPT: replace(
                '"sparse_categorical_crossentropy"', "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
            )
        },
    ),
    Fault(
        "large-rate",
        "images-cnn",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/keras-team/keras/issues/2711",
        mistake="The learning rate of Adam is 0.3, so the model is at chance from the first epoch.",
        arguments=("--lr", "0.3"),
    ),
    Fault(
        "test-scale",
        "images-dense",
        accepted=("train-validation-mismatch", "training-serving-skew"),
        category="evaluation",
        source="https://github.com/GoogleCloudPlatform/asl-ml-immersion/pull/424",
        mistake="The test images are scaled by hand and by the model's first layer again.",
        edits={SCRIPT: replace("model.evaluate(x_test,", "model.evaluate(x_test / 16,")},
    ),
    Fault(
        "last-layer",
        "images-cnn",
        accepted=("misplaced-activation", "wrong-loss-for-task"),
        category="defect",
        source="https://geeksmental.com/question/why-does-accuracy-remain-the-same",
        mistake="The last layer is a ReLU, but the loss expects probabilities.",
        edits={
            SCRIPT: replace('layers.Dense(10, activation="softmax")', 'layers.Dense(10, activation="relu")', times=2)
        },
    ),
    Fault(
        "file-order",
        "images-dense",
        accepted=("train-validation-mismatch", "not-shuffled"),
        category="evaluation",
        source="https://github.com/keras-team/keras/issues/8346",
        mistake="The data come class by class, and the split takes their end, so one class is not trained.",
        edits={
            SCRIPT: insert_after(
                "x_train, x_test, y_train, y_test =",
                'order = y_train.argsort(kind="stable")\nx_train, y_train = x_train[order], y_train[order]',
            )
        },
    ),
    Fault(
        "gaps",
        "friedman",
        accepted=("nan-in-inputs",),
        category="data",
        source="https://github.com/keras-team/keras/issues/2134",
        mistake="Some values of one feature are missing, so the means of the features and the loss are NaN.",
        edits={SCRIPT: insert_after("x_train, x_test, y_train, y_test =", 'x_train[::40, 3] = float("nan")')},
    ),
    Fault(
        "single-predictions",
        "series-gru",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/keras-team/keras/issues/11006",
        mistake="A callback predicts the test windows one by one after every epoch, each with a loop of its own.",
        slower=1.5,
        edits={
            SCRIPT: replace(
                "verbose=2)",
                "verbose=2, callbacks=[keras.callbacks.LambdaCallback("
                "on_epoch_end=lambda *_: [model.predict(x[None], verbose=0) for x in x_test])])",
            )
        },
    ),
    Fault(
        "half",
        "friedman",
        accepted=("half-precision-underflow", "division-by-zero"),
        category="numerics",
        source="https://github.com/keras-team/keras/issues/11860",
        mistake="Everything is computed in float16, where Adam's epsilon is zero.",
        edits={SCRIPT: insert_after("keras.utils.set_random_seed", 'keras.config.set_floatx("float16")')},
    ),
    Fault(
        "direction",
        "wine",
        accepted=(),
        category="evaluation",
        source="https://github.com/tensorflow/tensorflow/issues/44509",
        mistake="A score is monitored as if it were a loss, so the worst weights are restored.",
        edits={SCRIPT: replace('EarlyStopping(monitor="val_loss"', 'EarlyStopping(monitor="val_accuracy", mode="min"')},
    ),
]
