"""stable-baselines3: reinforcement learning; the loops are in the algorithms' learn and train."""

from field.edits import replace
from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("stable-baselines3==2.9.2",))

PROGRAMS = [
    Program("cartpole", "cartpole.py", "reinforcement", "trainer", Metric(HIGHER, 250)),
    Program("reach", "reach.py", "reinforcement", "trainer", Metric(HIGHER, -4)),
    Program(
        "reach-normalized",
        "reach.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, -4),
        arguments=("--unit", "500", "--normalize", "1"),
    ),
    Program(
        "reach-a2c",
        "reach.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, -6),
        arguments=("--algorithm", "A2C", "--steps", "40000"),
    ),
    Program(
        "reach-sac",
        "reach.py",
        "reinforcement",
        "several-optimizers",
        Metric(HIGHER, -4),
        arguments=("--algorithm", "SAC", "--steps", "3000"),
    ),
    Program(
        "reach-td3",
        "reach.py",
        "reinforcement",
        "several-optimizers",
        Metric(HIGHER, -4),
        arguments=("--algorithm", "TD3", "--steps", "3500"),
    ),
    Program("identity", "identity.py", "reinforcement", "trainer", Metric(HIGHER, 80)),
    Program(
        "identity-pairs",
        "identity.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, 60),
        arguments=("--algorithm", "A2C"),
    ),
    Program("flipping", "flipping.py", "reinforcement", "trainer", Metric(HIGHER, -4.5)),
    Program("pixels", "pixels.py", "reinforcement", "trainer", Metric(HIGHER, 17)),
]

FAULTS = [
    Fault(
        "load-unused",
        "cartpole",
        accepted=("stale-evaluation",),
        category="evaluation",
        source="https://github.com/hill-a/stable-baselines/issues/685",
        mistake="load returns a new agent that is thrown away, so an agent that was never trained is evaluated.",
        edits={
            "train.py": replace(
                'agent = PPO.load("agent", env=env, device="cpu")',
                'agent = PPO("MlpPolicy", env, device="cpu")\nagent.load("agent")',
            )
        },
    ),
    Fault(
        "fresh-statistics",
        "reach-normalized",
        accepted=("train-validation-mismatch", "training-serving-skew"),
        category="evaluation",
        source="https://github.com/isaac-sim/IsaacLab/issues/2635",
        mistake="Evaluation starts with fresh normalization statistics, so the policy sees inputs of another scale.",
        edits={
            "train.py": replace('VecNormalize.load("statistics.pkl", check)', "VecNormalize(check)"),
        },
    ),
    Fault(
        "raw-observations",
        "reach-normalized",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/DLR-RM/stable-baselines3/issues/563",
        mistake="Observations in the hundreds are not normalized, so tanh units saturate and little is learned.",
        arguments=("--unit", "500"),
    ),
    Fault(
        "wide-actions",
        "reach-sac",
        accepted=(),
        category="condition",
        source="https://github.com/isaac-sim/IsaacLab/issues/5080",
        mistake="The action space reaches from -100 to 100 where actions of 1 are useful, so control stays coarse.",
        arguments=("--algorithm", "SAC", "--steps", "3000", "--bound", "100"),
    ),
    Fault(
        "late-start",
        "identity",
        accepted=("no-parameter-update",),
        category="condition",
        source="https://github.com/DLR-RM/stable-baselines3/issues/526",
        mistake="learning_starts exceeds the number of steps, so the agent is never trained.",
        arguments=("--starts", "50000"),
    ),
]
