import argparse
import logging
import sys

import numpy as np
import pfrl
import torch
from torch import distributions, nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--agent", choices=["ppo", "sac", "td3", "ddpg"], default="ppo")
parser.add_argument("--steps", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.0)
args = parser.parse_args()
pfrl.utils.set_random_seed(args.seed)
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)


class Reach:
    """A point that has to move to a goal in the plane."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)

    def reset(self):
        self.x, self.goal = self.random.uniform(-1, 1, (2, 2))
        self.t = 0
        return self.observe()

    def observe(self):
        return np.concatenate([self.x, self.goal]).astype(np.float32)

    def step(self, action):
        self.x = np.clip(self.x + 0.25 * np.clip(action, -1, 1), -1.5, 1.5)
        self.t += 1
        reward = 1 - np.linalg.norm(self.x - self.goal)
        return self.observe(), reward, False, {"needs_reset": self.t == 15}


def build():
    if args.agent == "ppo":
        policy = nn.Sequential(
            nn.Linear(4, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 2),
            pfrl.policies.GaussianHeadWithStateIndependentCovariance(
                action_size=2,
                var_type="diagonal",
                var_func=lambda x: torch.exp(2 * x),
                var_param_init=-0.5,
            ),
        )
        value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        model = pfrl.nn.Branched(policy, value)
        return pfrl.agents.PPO(
            model,
            torch.optim.Adam(model.parameters(), lr=args.lr or 2e-3, eps=1e-5),
            update_interval=600,
            minibatch_size=100,
            epochs=8,
            gamma=0.9,
            entropy_coef=0.0,
            max_grad_norm=0.5,
        )
    buffer = pfrl.replay_buffers.ReplayBuffer(10**5)
    options = {
        "gamma": 0.9,
        "replay_start_size": 300,
        "minibatch_size": 64,
        "update_interval": 2,
        "burnin_action_func": lambda: np.random.uniform(-1, 1, 2).astype(np.float32),
    }

    def q_function():
        return nn.Sequential(
            pfrl.nn.ConcatObsAndAction(), nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def optimizer(module):
        return torch.optim.Adam(module.parameters(), lr=args.lr or 2e-3)

    if args.agent == "sac":

        def squashed(x):
            mean, log_scale = torch.chunk(x, 2, dim=1)
            log_scale = torch.clamp(log_scale, -20.0, 2.0)
            normal = distributions.Independent(distributions.Normal(mean, log_scale.exp()), 1)
            return distributions.TransformedDistribution(normal, [distributions.TanhTransform(cache_size=1)])

        policy = nn.Sequential(
            nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4), pfrl.nn.lmbda.Lambda(squashed)
        )
        q1, q2 = q_function(), q_function()
        return pfrl.agents.SoftActorCritic(
            policy,
            q1,
            q2,
            optimizer(policy),
            optimizer(q1),
            optimizer(q2),
            buffer,
            entropy_target=-2,
            temperature_optimizer_lr=2e-3,
            **options,
        )
    policy = nn.Sequential(
        nn.Linear(4, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 2),
        nn.Tanh(),
        pfrl.policies.DeterministicHead(),
    )
    explorer = pfrl.explorers.AdditiveGaussian(scale=0.2, low=-1, high=1)
    if args.agent == "td3":
        q1, q2 = q_function(), q_function()
        return pfrl.agents.TD3(
            policy, q1, q2, optimizer(policy), optimizer(q1), optimizer(q2), buffer, explorer=explorer, **options
        )
    q = q_function()
    return pfrl.agents.DDPG(
        policy,
        q,
        optimizer(policy),
        optimizer(q),
        buffer,
        explorer=explorer,
        target_update_method="soft",
        soft_update_tau=0.01,
        **options,
    )


agent = build()
steps = args.steps or {"ppo": 9000, "sac": 2600, "td3": 2500, "ddpg": 2500}[args.agent]
pfrl.experiments.train_agent(agent, Reach(args.seed), steps=steps, outdir="results", max_episode_len=15)
held, returns = Reach(2000 + args.seed), []
with agent.eval_mode():
    for _ in range(40):
        x, total = held.reset(), 0.0
        for _ in range(15):
            x, reward, done, info = held.step(agent.act(x))
            total += reward
            agent.observe(x, reward, done, info["needs_reset"])
        returns.append(total)
print("metric return", np.mean(returns))
