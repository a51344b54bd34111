"""nflows: normalizing flows; the loop is the user's, as in the README and the examples of the project."""

from field.edits import in_turn, replace
from field.programs import LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("nflows==0.14",))

PROGRAMS = [
    Program("moons", "density.py", "generative", "no-loader", Metric(LOWER, 1.6)),
    Program(
        "circles-spline",
        "density.py",
        "generative",
        "no-loader",
        Metric(LOWER, 1.35),
        arguments=("--data", "circles", "--flow", "spline", "--steps", "500"),
    ),
    Program(
        "moons-masked", "density.py", "generative", "no-loader", Metric(LOWER, 1.45), arguments=("--flow", "masked")
    ),
    Program("moons-compiled", "density.py", "generative", "compiled", Metric(LOWER, 1.6), arguments=("--compile", "1")),
    Program("conditional", "conditional.py", "science", "plain", Metric(LOWER, 0.5)),
    Program("digits", "digits.py", "generative", "plain", Metric(LOWER, -1.2)),
    Program(
        "digits-spline",
        "digits.py",
        "generative",
        "plain",
        Metric(LOWER, -1.2),
        arguments=("--coupling", "spline", "--epochs", "10"),
    ),
    Program("whiten", "whiten.py", "tabular", "closure", Metric(LOWER, 22)),
]

FAULTS = [
    Fault(
        "every-step",
        "conditional",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/rs-station/careless/pull/77",
        mistake="The held-out samples are evaluated after each optimizer step instead of each epoch.",
        slower=1.4,
        edits={
            "train.py": in_turn(
                replace(
                    "        total += loss.item() * len(inputs)\n    scheduler.step()\n"
                    "    flow.eval()\n    with torch.no_grad():\n"
                    "        history.append(-flow.log_prob(x_held, context=y_held).mean().item())\n    flow.train()\n",
                    "        total += loss.item() * len(inputs)\n"
                    "        flow.eval()\n        with torch.no_grad():\n"
                    "            history.append(-flow.log_prob(x_held, context=y_held).mean().item())\n"
                    "        flow.train()\n    scheduler.step()\n",
                ),
            )
        },
    ),
    Fault(
        "plain-held",
        "digits",
        accepted=("train-validation-mismatch",),
        category="evaluation",
        source="https://github.com/JeasunLok/ResNet-pytorch/issues/1",
        mistake="Held-out images are not mapped to the range of the training images.",
        edits={"train.py": replace("held = dequantize(held)", "held = held / 16")},
    ),
    Fault(
        "raw-columns",
        "whiten",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/VincentStimper/normalizing-flows/issues/24",
        mistake="Columns with standard deviations from 0.1 to 300 are not scaled before the flow.",
        arguments=("--scale", "0"),
    ),
    Fault(
        "bare-logit",
        "digits-spline",
        accepted=("log-of-zero", "nan-in-inputs"),
        category="numerics",
        source="https://github.com/phlippe/uvadlc_notebooks/issues/93",
        mistake="Pixels are mapped by a logit without noise or margin, so black and white ones become infinite.",
        edits={
            "train.py": in_turn(
                replace("0.02 + 0.96 * (x + scale * torch.rand_like(x)) / 17", "torch.logit(x / 16)"),
                replace("[Logit(eps=1e-6)]", "[]"),
            )
        },
    ),
]
