"""pythae: autoencoders; the loop is in BaseTrainer.train."""

from field.edits import replace
from field.programs import LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pythae==0.1.2",))

PROGRAMS = [
    Program("digits", "digits.py", "generative", "trainer", Metric(LOWER, 0.7)),
    Program(
        "digits-plain",
        "digits.py",
        "generative",
        "trainer",
        Metric(LOWER, 0.4),
        arguments=("--model", "AE"),
    ),
    Program(
        "digits-beta",
        "digits.py",
        "generative",
        "trainer",
        Metric(LOWER, 0.75),
        arguments=("--model", "BetaVAE", "--beta", "0.5"),
    ),
    Program(
        "digits-weighted",
        "digits.py",
        "generative",
        "trainer",
        Metric(LOWER, 0.8),
        arguments=("--model", "IWAE", "--epochs", "25"),
    ),
    Program(
        "digits-wasserstein",
        "digits.py",
        "generative",
        "trainer",
        Metric(LOWER, 0.5),
        arguments=("--model", "WAE_MMD", "--epochs", "15"),
    ),
    Program("spectra", "spectra.py", "science", "trainer", Metric(LOWER, 0.4)),
    Program(
        "spectra-plateau",
        "spectra.py",
        "science",
        "trainer",
        Metric(LOWER, 0.4),
        arguments=("--scheduler", "plateau"),
    ),
]

FAULTS = [
    Fault(
        "raw-pixels",
        "digits-wasserstein",
        accepted=("unnormalized-inputs", "misplaced-activation"),
        category="data",
        source="https://github.com/wohlert/semi-supervised-pytorch/issues/9",
        mistake="Pixels between 0 and 255 are not scaled, and the decoder's sigmoid cannot reach them.",
        arguments=("--model", "WAE_MMD", "--epochs", "15", "--maximum", "255"),
    ),
    Fault(
        "rectified-output",
        "spectra",
        accepted=("misplaced-activation",),
        category="defect",
        source="https://github.com/ethanluoyc/pytorch-vae/issues/3",
        mistake="The decoder ends with a ReLU, so negative values of the standardized data are out of reach.",
        edits={"train.py": replace("nn.Linear(64, 40))", "nn.Linear(64, 40), nn.ReLU())")},
    ),
    Fault(
        "rate-too-high",
        "digits-plain",
        accepted=("learning-rate-too-high", "learning-rate-oscillation"),
        category="condition",
        source="https://github.com/clementchadebec/benchmark_VAE/issues/102",
        mistake="The learning rate is 100 times too high, so the reconstructions are no better than a constant.",
        arguments=("--model", "AE", "--lr", "0.1"),
    ),
    Fault(
        "heavy-divergence",
        "digits-beta",
        accepted=("over-regularized", "representation-collapse"),
        category="condition",
        source="https://github.com/AntixK/PyTorch-VAE/issues/56",
        mistake="The weight of the divergence is 200 times too large, so the code carries nothing of the input.",
        arguments=("--model", "BetaVAE", "--beta", "100"),
    ),
]
