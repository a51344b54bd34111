"""normflows: normalizing flows, in the loop of its examples."""

from field.edits import drop_line, replace
from field.programs import LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("normflows==1.7.3",))

PROGRAMS = [
    Program("moons-coupling", "density.py", "generative", "no-loader", Metric(LOWER, 2.4), copies=("normflows",)),
    Program(
        "moons-spline",
        "density.py",
        "generative",
        "no-loader",
        Metric(LOWER, 1.9),
        ("--flow", "spline", "--layers", "3"),
    ),
    Program(
        "circles-spline",
        "density.py",
        "generative",
        "no-loader",
        Metric(LOWER, 2.3),
        ("--flow", "spline", "--layers", "3", "--data", "circles"),
    ),
    Program(
        "moons-masked",
        "density.py",
        "generative",
        "no-loader",
        Metric(LOWER, 2.65),
        ("--flow", "masked", "--layers", "4"),
    ),
    Program("four-coupling", "density.py", "generative", "no-loader", Metric(LOWER, 1.2), ("--data", "four")),
]

FAULTS = [
    Fault(
        "volume",
        "moons-coupling",
        accepted=(),
        category="defect",
        source="https://github.com/VincentStimper/normalizing-flows/issues/27",
        mistake="The log determinants enter the likelihood with the wrong sign.",
        edits={
            "normflows/core.py": replace(
                "            log_q += log_det\n        log_q += self.q0.log_prob(z)\n        return -torch.mean(log_q)",
                "            log_q -= log_det\n        log_q += self.q0.log_prob(z)\n        return -torch.mean(log_q)",
            )
        },
    ),
    Fault(
        "same-half",
        "four-coupling",
        accepted=(),
        category="defect",
        source="https://github.com/bayesiains/nflows/issues/30",
        mistake="Nothing is permuted between the couplings, so half of the dimensions is never transformed.",
        edits={SCRIPT: drop_line('mode="swap"')},
    ),
    Fault(
        "large-rate",
        "moons-spline",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/VincentStimper/normalizing-flows/issues/73",
        mistake="The learning rate of Adam is 0.5, so the likelihood never settles.",
        arguments=("--flow", "spline", "--layers", "3", "--lr", "0.5"),
    ),
]
