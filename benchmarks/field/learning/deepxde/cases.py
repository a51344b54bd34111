"""deepxde: physics-informed networks; the loop is in Model.train."""

from field.edits import replace
from field.programs import LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("deepxde==1.15.0",))

PROGRAMS = [
    Program("poisson", "poisson.py", "physics", "trainer", Metric(LOWER, 0.1)),
    Program(
        "poisson-sine",
        "poisson.py",
        "physics",
        "trainer",
        Metric(LOWER, 0.1),
        arguments=("--activation", "sin", "--iterations", "1200"),
    ),
    Program("diffusion", "diffusion.py", "physics", "callbacks", Metric(LOWER, 0.15)),
    Program(
        "diffusion-exact",
        "diffusion.py",
        "physics",
        "callbacks",
        Metric(LOWER, 0.05),
        arguments=("--constraint", "hard"),
    ),
    Program("oscillator", "oscillator.py", "physics", "trainer", Metric(LOWER, 0.1)),
    Program("inverse", "inverse.py", "physics", "trainer", Metric(LOWER, 0.15)),
    Program("regression", "regression.py", "science", "trainer", Metric(LOWER, 0.1)),
    Program("operator", "antiderivative.py", "science", "trainer", Metric(LOWER, 0.1)),
    Program("laplace", "laplace.py", "physics", "trainer", Metric(LOWER, 0.15)),
    Program("beam", "beam.py", "physics", "closure", Metric(LOWER, 0.05)),
]

FAULTS = [
    Fault(
        "relu",
        "poisson",
        accepted=("misplaced-activation",),
        category="defect",
        source="https://github.com/lululxvi/deepxde/issues/80",
        mistake="The second derivative of a ReLU network is zero, so the residual of the equation has no gradient.",
        arguments=("--activation", "relu"),
    ),
    Fault(
        "long-domain",
        "poisson-sine",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/lululxvi/deepxde/issues/257",
        mistake="The coordinates reach from -100 to 100 and are not scaled, so the solution is not found.",
        arguments=("--activation", "sin", "--iterations", "1200", "--length", "100"),
    ),
    Fault(
        "conditions-neglected",
        "diffusion",
        accepted=(),
        category="condition",
        source="https://github.com/lululxvi/deepxde/issues/544",
        mistake="The weights of the boundary and initial conditions are so small that a wrong solution is learned.",
        arguments=("--weights", "1", "0.00001", "0.00001"),
    ),
    Fault(
        "unknown-left-out",
        "inverse",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/lululxvi/deepxde/pull/1775",
        mistake="The unknown coefficient is not handed to compile, so it keeps its initial value.",
        edits={"train.py": replace(", external_trainable_variables=C", "")},
    ),
    Fault(
        "first-point",
        "laplace",
        accepted=("shape-broadcast-in-loss",),
        category="defect",
        source="https://github.com/lululxvi/deepxde/issues/1442",
        mistake="The boundary value is computed from the first point only and broadcast over all points.",
        edits={"train.py": replace("np.sin(np.pi * x[:, 0:1])\n\n", "np.sin(np.pi * x[0])\n\n")},
    ),
]
