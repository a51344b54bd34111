"""torchdiffeq: solvers of differential equations with gradients, in the loops of its documentation's examples."""

from field.edits import drop_line, in_turn, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("torchdiffeq==0.2.5",))

FIXED = ("--method", "rk4", "--optimizer", "Adam")

PROGRAMS = [
    Program("spiral", "trajectory.py", "physics", "no-loader", Metric(LOWER, 0.2)),
    Program("spiral-adjoint", "trajectory.py", "physics", "no-loader", Metric(LOWER, 0.2), ("--adjoint",)),
    Program(
        "pendulum",
        "trajectory.py",
        "physics",
        "no-loader",
        Metric(LOWER, 0.05),
        ("--system", "pendulum", *FIXED, "--lr", "0.005", "--batch-size", "8"),
    ),
    Program(
        "prey",
        "trajectory.py",
        "physics",
        "no-loader",
        Metric(LOWER, 0.15),
        ("--system", "prey", *FIXED, "--lr", "0.01", "--niters", "1000", "--batch-time", "20"),
    ),
    Program("digits", "digits.py", "vision", "plain", Metric(HIGHER, 0.94)),
    Program(
        "digits-compiled",
        "digits.py",
        "vision",
        "compiled",
        Metric(HIGHER, 0.94),
        ("--compile", "--method", "rk4"),
    ),
    Program("circles", "flow.py", "generative", "no-loader", Metric(LOWER, 1.7)),
    Program("latent", "latent.py", "time-series", "no-loader", Metric(LOWER, 0.02)),
    Program("rates", "rates.py", "physics", "closure", Metric(LOWER, 0.05)),
]

FAULTS = [
    Fault(
        "tolerance",
        "digits",
        accepted=(),
        category="speed",
        source="https://github.com/rtqichen/torchdiffeq/issues/175",
        mistake="The solver's tolerance is far tighter than the task needs, so it takes many times as many steps.",
        slower=1.5,
        arguments=("--tol", "1e-6"),
    ),
    Fault(
        "separate-calls",
        "pendulum",
        accepted=("small-kernels", "device-underfilled"),
        category="speed",
        source="https://github.com/rtqichen/torchdiffeq/issues/207",
        mistake="Every trajectory of the batch is solved in a call of its own, though one call can solve all.",
        slower=2.0,
        edits={
            SCRIPT: replace(
                "pred_y = solve(func, batch_y0, batch_t, **settings)",
                "pred_y = torch.stack([solve(func, y0, batch_t, **settings) for y0 in batch_y0], dim=1)",
            )
        },
    ),
    Fault(
        "plain-descent",
        "latent",
        accepted=("learning-rate-too-high", "exploding-gradients"),
        category="condition",
        source="https://github.com/rtqichen/torchdiffeq/issues/58",
        mistake="Plain gradient descent with Adam's learning rate diverges, as the loss sums over observations.",
        arguments=("--optimizer", "SGD"),
    ),
    Fault(
        "relative",
        "pendulum",
        accepted=("division-by-zero",),
        category="numerics",
        source="https://github.com/unit8co/darts/issues/2517",
        mistake="The error is divided by the observed value, which is zero at the start and tiny at every turn.",
        edits={
            SCRIPT: replace(
                "torch.mean(torch.abs(pred_y - batch_y))", "torch.mean(torch.abs((pred_y - batch_y) / batch_y))"
            )
        },
    ),
    Fault(
        "dynamics-left-out",
        "latent",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/rtqichen/torchdiffeq/issues/79",
        mistake="The optimizer does not get the parameters of the differential equation, so the dynamics stay random.",
        edits={SCRIPT: replace("[*func.parameters(), *dec.parameters(),", "[*dec.parameters(),")},
    ),
    Fault(
        "outside-closure",
        "rates",
        accepted=("missing-zero-grad",),
        category="defect",
        source="https://github.com/skorch-dev/skorch/issues/636",
        mistake="Gradients are cleared once per step and not in the closure, which is evaluated many times per step.",
        edits={
            SCRIPT: in_turn(
                drop_line("    optimizer.zero_grad()"),
                replace(
                    "    loss = optimizer.step(closure)",
                    "    optimizer.zero_grad()\n    loss = optimizer.step(closure)",
                ),
            )
        },
    ),
]
