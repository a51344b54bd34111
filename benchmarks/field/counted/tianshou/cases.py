"""tianshou: reinforcement and imitation learning with its trainers."""

from field.edits import in_turn, replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("tianshou==2.0.1",))
CLIPPED = ("--algorithm", "ppo")

PROGRAMS = [
    Program("balance-dqn", "balance.py", "reinforcement", "trainer", Metric(HIGHER, 150.0)),
    Program(
        "balance-quantiles",
        "balance.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, 150.0),
        ("--algorithm", "qrdqn"),
    ),
    Program(
        "balance-ppo",
        "balance.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, 150.0),
        (*CLIPPED, "--epochs", "4", "--epoch-steps", "2048", "--stop", "1000"),
    ),
    Program(
        "balance-a2c",
        "balance.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, 120.0),
        ("--algorithm", "a2c", "--lr", "0.002", "--epochs", "12"),
    ),
    Program(
        "balance-reinforce",
        "balance.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, 120.0),
        ("--algorithm", "reinforce", "--lr", "0.003", "--epochs", "15"),
    ),
    Program("swing-imitated", "imitate.py", "reinforcement", "trainer", Metric(HIGHER, -120.0)),
    Program(
        "climb-imitated",
        "imitate.py",
        "reinforcement",
        "trainer",
        Metric(HIGHER, -170.0),
        ("--task", "MountainCar-v0", "--lr", "0.01"),
    ),
]

FAULTS = [
    Fault(
        "always-greedy",
        "balance-dqn",
        accepted=(),
        category="defect",
        source="https://github.com/thu-ml/tianshou/issues/538",
        mistake="The agent never explores, so it keeps to the action that seemed best at first.",
        edits={
            SCRIPT: in_turn(
                replace('"eps_training": 0.1', '"eps_training": 0.0'),
                replace("train_collector.collect(n_step=512, random=True)", "train_collector.collect(n_step=512)"),
                replace(", exploration_noise=True", ""),
            )
        },
    ),
    Fault(
        "large-rate",
        "balance-ppo",
        accepted=("learning-rate-too-high",),
        category="condition",
        source="https://github.com/CharlieDinh/pFedMe/issues/11",
        mistake="The learning rate is 200 times too high for Adam, so the policy soon takes one action only.",
        arguments=(*CLIPPED, "--epochs", "4", "--epoch-steps", "2048", "--stop", "1000", "--lr", "0.2"),
    ),
    Fault(
        "many-tests",
        "balance-ppo",
        accepted=("periodic-stall",),
        category="speed",
        source="https://github.com/thu-ml/tianshou/issues/151",
        mistake="An epoch is taken for an update, so the policy is tested for 25 episodes after each of them.",
        slower=1.5,
        arguments=(*CLIPPED, "--epochs", "16", "--epoch-steps", "512", "--stop", "1000", "--test-episodes", "25"),
    ),
]
