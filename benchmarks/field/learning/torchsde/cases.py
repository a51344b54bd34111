"""torchsde: neural stochastic differential equations; the loop is the user's, as in the examples of the project."""

from field.edits import drop_line, replace
from field.programs import LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("torchsde==0.2.6",))

PROGRAMS = [
    Program("latent", "latent.py", "time-series", "no-loader", Metric(LOWER, 0.15)),
    Program("latent-brief", "latent.py", "time-series", "no-loader", Metric(LOWER, 0.4), arguments=("--steps", "80")),
    Program(
        "latent-milstein",
        "latent.py",
        "time-series",
        "no-loader",
        Metric(LOWER, 0.25),
        arguments=("--method", "milstein", "--steps", "90"),
    ),
    Program("paths", "paths.py", "generative", "no-loader", Metric(LOWER, 0.05)),
    Program(
        "paths-general", "paths.py", "generative", "no-loader", Metric(LOWER, 0.05), arguments=("--noise", "general")
    ),
    Program(
        "paths-shifted", "paths.py", "generative", "no-loader", Metric(LOWER, 0.05), arguments=("--target", "shifted")
    ),
]

FAULTS = [
    Fault(
        "fine-steps",
        "paths",
        accepted=("small-kernels",),
        category="speed",
        source="https://github.com/google-research/torchsde/pull/80",
        mistake="The solver takes eight times as many small steps as the paths need.",
        slower=1.5,
        arguments=("--dt", "0.0125"),
    ),
    Fault(
        "solved-again",
        "latent-brief",
        accepted=(),
        category="speed",
        source="https://github.com/rtqichen/torchdiffeq/issues/243",
        mistake="The adjoint method solves everything backward once more, though a small graph fits into memory.",
        slower=2.0,
        arguments=("--steps", "80", "--adjoint", "1"),
    ),
    Fault(
        "accumulated",
        "paths-shifted",
        accepted=("missing-zero-grad",),
        category="defect",
        source="https://discuss.pytorch.org/t/why-do-we-need-to-set-the-gradients-manually-to-zero-in-pytorch/4903",
        mistake="Gradients are never cleared, so they add up over all steps.",
        arguments=("--target", "shifted"),
        edits={"train.py": drop_line("optimizer.zero_grad()")},
    ),
    Fault(
        "by-hand",
        "paths-general",
        accepted=("sqrt-at-zero",),
        category="numerics",
        source="https://github.com/adambielski/siamese-triplet/issues/18",
        mistake="Distances are roots of sums, and that of a path to itself has an infinite gradient.",
        arguments=("--noise", "general"),
        edits={
            "train.py": replace("- torch.cdist(a, a).mean()", "- ((a.unsqueeze(1) - a) ** 2).sum(-1).sqrt().mean()")
        },
    ),
]
