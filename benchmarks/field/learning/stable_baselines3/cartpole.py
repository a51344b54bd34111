import argparse

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=36000)
args = parser.parse_args()

env = make_vec_env("CartPole-v1", n_envs=8, seed=args.seed)
model = PPO(
    "MlpPolicy",
    env,
    n_steps=32,
    batch_size=256,
    gae_lambda=0.8,
    gamma=0.98,
    n_epochs=12,
    learning_rate=lambda left: left * args.lr,
    clip_range=lambda left: left * 0.2,
    seed=args.seed,
    device="cpu",
)
model.learn(args.steps)
model.save("agent")
agent = PPO.load("agent", env=env, device="cpu")
returns, _ = evaluate_policy(agent, make_vec_env("CartPole-v1", seed=args.seed + 100), 10, return_episode_rewards=True)
print("metric return", np.mean(returns))
