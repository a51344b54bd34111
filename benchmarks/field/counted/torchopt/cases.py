"""torchopt: functional and differentiable optimizers, in the loops of its documentation."""

from field.edits import replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("torchopt==0.7.3",))
DESCENT = ("--data", "friedman", "--optimizer", "sgd", "--lr", "0.05")

PROGRAMS = [
    Program("digits-functional", "plain.py", "vision", "no-torch-optim", Metric(HIGHER, 0.92)),
    Program(
        "digits-decay",
        "plain.py",
        "vision",
        "no-torch-optim",
        Metric(HIGHER, 0.92),
        ("--optimizer", "adamw", "--lr", "0.005", "--batch-size", "32"),
    ),
    Program(
        "digits-object",
        "plain.py",
        "vision",
        "no-torch-optim",
        Metric(HIGHER, 0.92),
        ("--style", "object", "--optimizer", "rmsprop", "--lr", "0.001"),
    ),
    Program(
        "friedman-wrapped",
        "plain.py",
        "tabular",
        "no-torch-optim",
        Metric(LOWER, 0.06),
        ("--data", "friedman", "--style", "wrapped"),
    ),
    Program("friedman-descent", "plain.py", "tabular", "no-torch-optim", Metric(LOWER, 0.06), DESCENT),
    Program("waves-tasks", "tasks.py", "other", "several-optimizers", Metric(LOWER, 0.12)),
]

FAULTS = [
    Fault(
        "no-eps",
        "digits-functional",
        accepted=("division-by-zero", "optimizer-misconfigured"),
        category="numerics",
        source="https://github.com/pytorch/pytorch/issues/1767",
        mistake="Adam's eps is zero, and pixels that are always blank have gradients of zero, so 0 / 0 is taken.",
        arguments=("--eps", "0"),
    ),
    Fault(
        "short-schedule",
        "digits-functional",
        accepted=("learning-rate-decayed-too-early", "scheduler-misuse"),
        category="condition",
        source="https://github.com/d8ahazard/sd_dreambooth_extension/issues/273",
        mistake="The schedule is made for as many steps as there are reports, so it ends after 2% of the training.",
        edits={SCRIPT: replace("args.lr / 100, args.steps, 0", "args.lr / 100, args.steps // 50, 0")},
    ),
    Fault(
        "row-by-row",
        "friedman-descent",
        accepted=("small-kernels", "device-underfilled"),
        category="speed",
        source="https://github.com/facebookresearch/tbsm/pull/1",
        mistake="The rows of a batch go through the model one by one.",
        slower=1.5,
        edits={
            SCRIPT: replace(
                "loss_of(functional_call(model, params, (inputs,)), targets)",
                "loss_of(torch.stack([functional_call(model, params, (row,)) for row in inputs]), targets)",
            )
        },
    ),
]
