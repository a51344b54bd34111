"""torchbearer: a trainer with callbacks; the loop is in Trial.run."""

from field.edits import replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("torchbearer==0.5.5",))

PROGRAMS = [
    Program("digits", "digits.py", "vision", "callbacks", Metric(HIGHER, 0.95)),
    Program("digits-dense", "digits.py", "vision", "callbacks", Metric(HIGHER, 0.88), arguments=("--model", "dense")),
    Program("friedman", "friedman.py", "tabular", "trainer", Metric(HIGHER, 0.85)),
    Program(
        "friedman-closure",
        "friedman.py",
        "tabular",
        "closure",
        Metric(HIGHER, 0.85),
        arguments=("--optimizer", "LBFGS", "--epochs", "60"),
    ),
    Program("encoder", "encoder.py", "generative", "callbacks", Metric(LOWER, 0.62)),
    Program("circles", "circles.py", "segmentation", "callbacks", Metric(HIGHER, 0.75)),
    Program(
        "circles-entropy",
        "circles.py",
        "segmentation",
        "callbacks",
        Metric(HIGHER, 0.75),
        arguments=("--loss", "entropy"),
    ),
    Program("ring", "ring.py", "generative", "several-optimizers", Metric(LOWER, 0.05)),
]

FAULTS = [
    Fault(
        "standardized-pixels",
        "digits",
        accepted=("nan-in-inputs", "division-by-zero"),
        category="numerics",
        source="https://github.com/fastai/fastai/issues/889",
        mistake="Each pixel is divided by its standard deviation, which is zero for pixels that are always black.",
        edits={"train.py": replace("torch.tensor(x / 16,", "torch.tensor((x - x.mean(0)) / x.std(0),")},
    ),
    Fault(
        "default-workers",
        "friedman",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/pytorch/pytorch/pull/10260",
        mistake="A worker process is started for each pass over data that are in memory, which is the default.",
        slower=1.4,
        edits={
            "train.py": replace("shuffle=True, num_workers=0)", "shuffle=True)"),
        },
    ),
    Fault(
        "mean-over-pixels",
        "encoder",
        accepted=("representation-collapse", "unintended-gradient-scale"),
        category="defect",
        source="https://github.com/zdebruine/MMVAE/pull/19",
        mistake="The reconstruction is averaged over pixels and the divergence summed, so the code is not used.",
        edits={
            "train.py": replace(
                'F.binary_cross_entropy_with_logits(predicted, target, reduction="sum") / len(target)',
                "F.binary_cross_entropy_with_logits(predicted, target)",
            )
        },
    ),
    Fault(
        "heavy-decay",
        "friedman",
        accepted=("over-regularized",),
        category="condition",
        source="https://github.com/tinghuiz/SfMLearner/issues/34",
        mistake="The weight decay is far too strong, so the weights go to zero.",
        arguments=("--decay", "5.0"),
    ),
]
