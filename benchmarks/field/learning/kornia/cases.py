"""kornia: computer vision on tensors; ImageRegistrator has a loop, the others are the user's, as in the tutorials."""

from field.edits import in_turn, replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("kornia==0.9.0",))

PROGRAMS = [
    Program("blobs", "blobs.py", "segmentation", "no-loader", Metric(HIGHER, 0.75)),
    Program(
        "blobs-focal", "blobs.py", "segmentation", "no-loader", Metric(HIGHER, 0.75), arguments=("--loss", "focal")
    ),
    Program(
        "blobs-tversky", "blobs.py", "segmentation", "no-loader", Metric(HIGHER, 0.75), arguments=("--loss", "tversky")
    ),
    Program("points", "points.py", "detection", "plain", Metric(LOWER, 1.0)),
    Program("points-heatmap", "points.py", "detection", "plain", Metric(LOWER, 1.0), arguments=("--heatmap", "0.5")),
    Program("registration", "registration.py", "vision", "trainer", Metric(LOWER, 0.3), arguments=("--lr", "0.05")),
    Program(
        "registration-homography",
        "registration.py",
        "vision",
        "trainer",
        Metric(LOWER, 0.2),
        arguments=("--model", "homography"),
    ),
    Program("smoothing", "smoothing.py", "vision", "no-loader", Metric(HIGHER, 24)),
]

FAULTS = [
    Fault(
        "apart",
        "blobs",
        accepted=("inputs-and-labels-unrelated",),
        category="data",
        source="https://github.com/kornia/kornia/issues/495",
        mistake="Images and masks are augmented with different random flips and rotations.",
        edits={
            "train.py": in_turn(
                replace('    data_keys=["input", "mask"],\n', '    data_keys=["input"],\n'),
                replace(
                    "x, y = augment(images[chosen], masks[chosen])",
                    "x, y = augment(images[chosen]), augment(masks[chosen])",
                ),
            )
        },
    ),
    Fault(
        "one-at-a-time",
        "blobs-focal",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/kornia/kornia/pull/491",
        mistake="Images are augmented one by one instead of as a batch.",
        slower=1.5,
        arguments=("--loss", "focal"),
        edits={
            "train.py": replace(
                "x, y = augment(images[chosen], masks[chosen])",
                "pairs = [augment(images[i : i + 1], masks[i : i + 1]) for i in chosen.tolist()]\n"
                "            x, y = (torch.cat(part) for part in zip(*pairs, strict=True))",
            )
        },
    ),
    Fault(
        "by-hand",
        "smoothing",
        accepted=("sqrt-at-zero",),
        category="numerics",
        source="https://github.com/pytorch/pytorch/issues/6394",
        mistake="The isotropic total variation is a root without margin, so flat regions have no finite gradient.",
        edits={
            "train.py": in_turn(
                replace(
                    "self.smooth(self.clean).sum()",
                    "(down[..., :-1] ** 2 + across[..., :-1, :] ** 2).sqrt().sum()",
                ),
                replace(
                    "        return difference +",
                    "        down, across = self.clean.diff(dim=2), self.clean.diff(dim=3)\n"
                    "        return difference +",
                ),
            )
        },
    ),
]
