"""pyro: variational inference; the loop calls SVI.step, or is the user's own around an objective of pyro."""

from field.edits import drop_line, replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pyro-ppl==1.9.2",))

PROGRAMS = [
    Program("diabetes", "regression.py", "bayesian", "no-loader", Metric(HIGHER, 0.25)),
    Program(
        "friedman",
        "regression.py",
        "bayesian",
        "no-loader",
        Metric(HIGHER, 0.6),
        arguments=("--data", "friedman", "--guide", "AutoMultivariateNormal"),
    ),
    Program("encoder", "encoder.py", "generative", "trainer", Metric(LOWER, 24)),
    Program(
        "encoder-analytic",
        "encoder.py",
        "generative",
        "trainer",
        Metric(LOWER, 24),
        arguments=("--analytic", "1"),
    ),
    Program("mixture", "mixture.py", "bayesian", "no-loader", Metric(LOWER, 0.5)),
    Program("moons", "flow.py", "generative", "no-loader", Metric(LOWER, 1.7)),
    Program("circles", "flow.py", "generative", "no-loader", Metric(LOWER, 2.2), arguments=("--data", "circles")),
    Program("logistic", "logistic.py", "bayesian", "plain", Metric(LOWER, 0.2)),
]

FAULTS = [
    Fault(
        "raw-target",
        "diabetes",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/pymc-labs/CausalPy/issues/887",
        mistake="Targets between 25 and 346 are not standardized, though the priors assume a scale of one.",
        arguments=("--standardize", "0"),
    ),
    Fault(
        "module-left-out",
        "encoder",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/pyro-ppl/pyro/issues/1677",
        mistake="The decoder is not registered with pyro.module, so it keeps its initial weights.",
        edits={"train.py": drop_line('pyro.module("decoder", self.decoder)')},
    ),
    Fault(
        "rate-too-high",
        "encoder-analytic",
        accepted=("learning-rate-too-high", "learning-rate-oscillation"),
        category="condition",
        source="https://github.com/pyro-ppl/pyro/issues/1677",
        mistake="The learning rate is 100 times too high, so the bound stays far from its optimum or diverges.",
        arguments=("--analytic", "1", "--lr", "0.3"),
    ),
    Fault(
        "gradients-kept",
        "moons",
        accepted=("missing-zero-grad",),
        category="defect",
        source="https://github.com/pytorch/pytorch/issues/47175",
        mistake="Gradients accumulate over all steps, so the density does not settle.",
        edits={"train.py": drop_line("optimizer.zero_grad()")},
    ),
    Fault(
        "prior-samples",
        "friedman",
        accepted=(),
        category="evaluation",
        source="https://github.com/pyro-ppl/numpyro/issues/1309",
        mistake="Predictive is not given the guide, so predictions come from the prior and not from the fit.",
        edits={"train.py": replace("Predictive(model, guide=guide, ", "Predictive(model, ")},
    ),
]
