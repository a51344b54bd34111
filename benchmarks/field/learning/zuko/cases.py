"""zuko: normalizing flows; the loop is the user's, as in the tutorials of the project."""

from field.edits import replace
from field.programs import LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("zuko==1.6.0",))

PROGRAMS = [
    Program("moons", "density.py", "generative", "plain", Metric(LOWER, 1.6)),
    Program("moons-affine", "density.py", "generative", "plain", Metric(LOWER, 2.3), arguments=("--flow", "MAF")),
    Program(
        "circles-coupled",
        "density.py",
        "generative",
        "plain",
        Metric(LOWER, 2.65),
        arguments=("--data", "circles", "--flow", "RealNVP", "--epochs", "30"),
    ),
    Program("circles", "density.py", "generative", "plain", Metric(LOWER, 2.4), arguments=("--data", "circles")),
    Program("conditional", "conditional.py", "science", "plain", Metric(LOWER, -0.3)),
    Program(
        "conditional-spline",
        "conditional.py",
        "science",
        "plain",
        Metric(LOWER, -0.3),
        arguments=("--flow", "NSF"),
    ),
    Program("banana", "energy.py", "generative", "no-loader", Metric(LOWER, -0.8)),
    Program("ring", "energy.py", "generative", "no-loader", Metric(LOWER, -1.8), arguments=("--target", "ring")),
]

FAULTS = [
    Fault(
        "out-of-range",
        "circles",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/VincentStimper/normalizing-flows/issues/24",
        mistake="The samples reach far outside the interval of the splines and are not scaled.",
        arguments=("--data", "circles", "--scale", "30"),
    ),
    Fault(
        "climbing",
        "banana",
        accepted=("loss-sign-flipped",),
        category="defect",
        source="https://github.com/lollcat/fab-torch/pull/28",
        mistake="The divergence has the wrong sign, so the flow moves away from the target.",
        edits={
            "train.py": replace(
                "loss = log_prob.mean() - log_energy(x).mean()", "loss = log_energy(x).mean() - log_prob.mean()"
            )
        },
    ),
    Fault(
        "rate-too-high",
        "moons-affine",
        accepted=("learning-rate-too-high", "learning-rate-oscillation"),
        category="condition",
        source="https://github.com/biomedia-mira/deepscm/issues/1",
        mistake="The learning rate is 100 times too high, so the likelihood jumps or becomes NaN.",
        arguments=("--flow", "MAF", "--lr", "0.2"),
    ),
    Fault(
        "plain-samples",
        "ring",
        accepted=(),
        category="defect",
        source="https://github.com/jankrepl/deepdow/pull/106",
        mistake="Samples are drawn without reparametrization, so the energy has no gradient.",
        arguments=("--target", "ring"),
        edits={
            "train.py": replace(
                "x, log_prob = flow().rsample_and_log_prob((128,))",
                "x = flow().sample((128,))\n    log_prob = flow().log_prob(x)",
            )
        },
    ),
]
