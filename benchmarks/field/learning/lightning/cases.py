"""lightning: the loops are in Trainer.fit; Fabric is used in the user's own loop, as its documentation shows."""

from field.edits import replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("lightning==2.6.6",))

PROGRAMS = [
    Program("digits", "digits.py", "vision", "callbacks", Metric(HIGHER, 0.9)),
    Program(
        "digits-cycle",
        "digits.py",
        "vision",
        "callbacks",
        Metric(HIGHER, 0.9),
        arguments=("--schedule", "cycle", "--epochs", "8"),
    ),
    Program(
        "digits-convolutional",
        "digits.py",
        "vision",
        "callbacks",
        Metric(HIGHER, 0.94),
        arguments=("--model", "convolutional", "--epochs", "8"),
    ),
    Program("ring", "ring.py", "generative", "several-optimizers", Metric(LOWER, 0.06)),
    Program("copying", "copying.py", "language", "trainer", Metric(HIGHER, 0.9)),
    Program("circles", "circles.py", "segmentation", "trainer", Metric(HIGHER, 0.75)),
    Program(
        "circles-accumulated",
        "circles.py",
        "segmentation",
        "trainer",
        Metric(HIGHER, 0.7),
        arguments=("--accumulate", "2"),
    ),
    Program("encoder", "encoder.py", "generative", "trainer", Metric(LOWER, 28)),
    Program(
        "encoder-averaged",
        "encoder.py",
        "generative",
        "callbacks",
        Metric(LOWER, 28),
        arguments=("--average", "1"),
    ),
    Program("fabric", "fabric.py", "tabular", "plain", Metric(LOWER, 0.15)),
]

FAULTS = [
    Fault(
        "once-per-epoch",
        "digits-cycle",
        accepted=("scheduler-misuse", "learning-rate-too-low"),
        category="condition",
        source="https://github.com/Lightning-AI/pytorch-lightning/issues/6948",
        mistake="The key interval stands outside the schedule's dictionary, so the warm-up advances once per epoch.",
        edits={
            "train.py": replace('{"scheduler": schedule, "interval": "step"}}', 'schedule, "interval": "step"}'),
        },
    ),
    Fault(
        "leftover-gradients",
        "ring",
        accepted=("missing-zero-grad",),
        category="defect",
        source="https://github.com/Lightning-AI/pytorch-lightning/issues/591",
        mistake="Gradients of the discriminator are not cleared between steps of the manual optimization.",
        edits={"train.py": replace("        optimizer_d.zero_grad()\n", "")},
    ),
    Fault(
        "pure-half",
        "digits",
        accepted=("half-precision-underflow", "half-precision-overflow"),
        category="numerics",
        source="https://discuss.pytorch.org/t/adam-half-precision-nans/1765",
        mistake="All weights are half precision, in which Adam's epsilon is zero, so weights become NaN.",
        arguments=("--precision", "16-true"),
    ),
    Fault(
        "nothing-loaded",
        "digits-convolutional",
        accepted=("stale-evaluation",),
        category="evaluation",
        source="https://github.com/pytorch/examples/issues/1029",
        mistake="The names in the checkpoint have a prefix and strict=False hides it, so a fresh model is tested.",
        edits={
            "train.py": replace(
                '(result,) = trainer.test(model, loader(x_test, y_test), ckpt_path="best")',
                "model = Classifier()\n"
                "saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)\n"
                'model.layers.load_state_dict(saved["state_dict"], strict=False)\n'
                "(result,) = trainer.test(model, loader(x_test, y_test))",
            )
        },
    ),
    Fault(
        "many-workers",
        "digits",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/Lightning-AI/pytorch-lightning/issues/17410",
        mistake="Four workers are started anew for each epoch, though the data are in memory already.",
        slower=1.4,
        arguments=("--workers", "4"),
    ),
]
