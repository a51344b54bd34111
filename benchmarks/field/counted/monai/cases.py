"""monai: medical images; the loop is the one of its segmentation tutorials."""

from field.edits import replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("monai==1.6.1",))

PROGRAMS = [
    Program("organs", "organs.py", "segmentation", "plain", Metric(HIGHER, 0.8)),
    Program(
        "organs-attention",
        "organs.py",
        "segmentation",
        "plain",
        Metric(HIGHER, 0.85),
        ("--model", "attention", "--loss", "both", "--epochs", "8"),
    ),
    Program(
        "organs-basic",
        "organs.py",
        "segmentation",
        "plain",
        Metric(HIGHER, 0.85),
        ("--model", "basic", "--loss", "both", "--epochs", "7"),
    ),
    Program(
        "organs-focal",
        "organs.py",
        "segmentation",
        "plain",
        Metric(HIGHER, 0.85),
        ("--model", "attention", "--loss", "focal", "--epochs", "8"),
    ),
    Program(
        "organs-both",
        "organs.py",
        "segmentation",
        "plain",
        Metric(HIGHER, 0.8),
        ("--loss", "both", "--batch-size", "4", "--lr", "0.003", "--epochs", "7"),
    ),
]

FAULTS = [
    Fault(
        "uncached",
        "organs",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/Project-MONAI/tutorials/issues/51",
        mistake="The fixed transforms, a median filter among them, are done again for each sample in each epoch.",
        slower=1.2,
        arguments=("--data", "plain"),
    ),
    Fault(
        "raw-outputs",
        "organs",
        accepted=("wrong-loss-for-task",),
        category="defect",
        source="https://github.com/Project-MONAI/MONAI/pull/70",
        mistake="The loss gets raw outputs where it wants probabilities, so the overlap has no bound.",
        edits={SCRIPT: replace("criterion = DiceLoss(sigmoid=True)", "criterion = DiceLoss()")},
    ),
    Fault(
        "images-only",
        "organs-attention",
        accepted=("inputs-and-labels-unrelated",),
        category="data",
        source="https://github.com/fastai/fastai/issues/245",
        mistake="Flips and rotations are applied to the image and not to its mask.",
        edits={
            SCRIPT: replace(
                'random = [RandFlipd(keys=["image", "label"], prob=0.5), '
                'RandRotate90d(keys=["image", "label"], prob=0.5)]',
                'random = [RandFlipd(keys=["image"], prob=0.5), RandRotate90d(keys=["image"], prob=0.5)]',
            )
        },
    ),
    Fault(
        "mask-values",
        "organs",
        accepted=("invalid-labels",),
        category="data",
        source="https://github.com/mateuszbuda/brain-segmentation-pytorch/issues/36",
        mistake="The masks for training hold 255 where they should hold 1, so the loss falls below zero.",
        edits={
            SCRIPT: replace(
                "train_data = CacheDataset(scans(96),",
                'train_data = CacheDataset([{**row, "label": 255 * row["label"]} for row in scans(96)],',
            )
        },
    ),
]
