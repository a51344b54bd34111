import argparse
import logging
import sys

import numpy as np
import pfrl
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--agent", choices=["dqn", "double", "categorical"], default="dqn")
parser.add_argument("--steps", type=int, default=3000)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--reward", type=float, default=1.0)
parser.add_argument("--target", type=int, default=50)
parser.add_argument("--interval", type=int, default=1000)
args = parser.parse_args()
pfrl.utils.set_random_seed(args.seed)
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)


class Line:
    """A cart on a line that has to be held at a goal; the action accelerates it."""

    def __init__(self, seed, reward=1.0):
        self.random, self.reward = np.random.RandomState(seed), reward

    def reset(self):
        self.x, self.v, self.t = self.random.uniform(-1, 1), 0.0, 0
        return self.observe()

    def observe(self):
        return np.array([self.x, self.v], dtype=np.float32)

    def step(self, action):
        self.v = 0.8 * self.v + 0.1 * (action - 1)
        self.x = float(np.clip(self.x + self.v, -1.5, 1.5))
        self.t += 1
        return self.observe(), self.reward * (1 - abs(self.x)), False, {"needs_reset": self.t == 25}


def q_function():
    if args.agent == "categorical":
        return pfrl.q_functions.DistributionalFCStateQFunctionWithDiscreteAction(
            2, 3, n_atoms=21, v_min=-10, v_max=20, n_hidden_channels=48, n_hidden_layers=2
        )
    return nn.Sequential(
        nn.Linear(2, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 3),
        pfrl.q_functions.DiscreteActionValueHead(),
    )


kind = {"dqn": pfrl.agents.DQN, "double": pfrl.agents.DoubleDQN, "categorical": pfrl.agents.CategoricalDQN}
model = q_function()
agent = kind[args.agent](
    model,
    torch.optim.Adam(model.parameters(), lr=args.lr),
    pfrl.replay_buffers.ReplayBuffer(capacity=10**5),
    gamma=0.95,
    explorer=pfrl.explorers.LinearDecayEpsilonGreedy(1.0, 0.1, 1500, lambda: np.random.randint(3)),
    replay_start_size=300,
    update_interval=2,
    target_update_interval=args.target,
    minibatch_size=32,
    phi=lambda x: x,
)
pfrl.experiments.train_agent_with_evaluation(
    agent,
    Line(args.seed, args.reward),
    steps=args.steps,
    eval_n_steps=None,
    eval_n_episodes=10,
    eval_interval=args.interval,
    outdir="results",
    train_max_episode_len=25,
    eval_env=Line(1000 + args.seed, args.reward),
    use_tensorboard=False,
)
held, returns = Line(2000 + args.seed), []
with agent.eval_mode():
    for _ in range(40):
        x, total = held.reset(), 0.0
        for _ in range(25):
            x, reward, done, info = held.step(agent.act(x))
            total += reward
            agent.observe(x, reward, done, info["needs_reset"])
        returns.append(total)
print("metric return", np.mean(returns))
