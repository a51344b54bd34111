"""pfrl: reinforcement learning; the loops are in pfrl.experiments and the agents."""

from field.edits import replace
from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("pfrl==0.4.0",))

PROGRAMS = [
    Program("line", "switching.py", "reinforcement", "trainer", Metric(HIGHER, 20)),
    Program(
        "line-double", "switching.py", "reinforcement", "trainer", Metric(HIGHER, 20), arguments=("--agent", "double")
    ),
    Program(
        "line-categorical",
        "switching.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, 20),
        arguments=("--agent", "categorical"),
    ),
    Program("reach", "reaching.py", "reinforcement", "trainer", Metric(HIGHER, 10)),
    Program(
        "reach-soft",
        "reaching.py",
        "reinforcement",
        "several-optimizers",
        Metric(HIGHER, 10),
        arguments=("--agent", "sac"),
    ),
    Program(
        "reach-twin",
        "reaching.py",
        "reinforcement",
        "several-optimizers",
        Metric(HIGHER, 11),
        arguments=("--agent", "td3"),
    ),
    Program(
        "reach-deterministic",
        "reaching.py",
        "reinforcement",
        "several-optimizers",
        Metric(HIGHER, 10),
        arguments=("--agent", "ddpg"),
    ),
]

FAULTS = [
    Fault(
        "large-rewards",
        "line",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/google-deepmind/open_spiel/issues/742",
        mistake="Rewards are in the hundreds, so that the values are far from what the network can output soon.",
        arguments=("--reward", "500"),
    ),
    Fault(
        "frequent-evaluation",
        "line",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/kuds/mesozoic-labs/pull/199",
        mistake="The agent is evaluated after each episode.",
        slower=1.4,
        arguments=("--interval", "25"),
    ),
    Fault(
        "shared-optimizer",
        "reach-twin",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/SforAiDl/genrl/issues/426",
        mistake="The optimizer of the policy holds the parameters of a critic, so that the policy never changes.",
        arguments=("--agent", "td3"),
        edits={
            "train.py": replace(
                "policy, q1, q2, optimizer(policy), optimizer(q1), optimizer(q2), buffer, explorer",
                "policy, q1, q2, optimizer(q1), optimizer(q1), optimizer(q2), buffer, explorer",
            )
        },
    ),
]
