import argparse

import gymnasium as gym
import numpy as np
from stable_baselines3 import A2C, DDPG, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--algorithm", choices=["PPO", "A2C", "SAC", "TD3", "DDPG"], default="PPO")
parser.add_argument("--steps", type=int, default=20000)
parser.add_argument("--unit", type=float, default=1.0)
parser.add_argument("--bound", type=float, default=1.0)
parser.add_argument("--normalize", type=int, default=0)
args = parser.parse_args()


class Reach(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Box(-args.bound, args.bound, (2,), np.float32)

    def observation(self):
        return (args.unit * np.concatenate([self.position, self.goal])).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.time = 0
        return self.observation(), {}

    def step(self, action):
        self.position = np.clip(self.position + 0.3 * np.clip(action, -1, 1), -1.5, 1.5)
        self.time += 1
        reward = -np.linalg.norm(self.position - self.goal)
        return self.observation(), float(reward), False, self.time >= 20, {}


if args.algorithm in ("PPO", "A2C"):
    env = make_vec_env(Reach, n_envs=8, seed=args.seed)
else:
    env = make_vec_env(Reach, seed=args.seed)
if args.normalize:
    env = VecNormalize(env, gamma=0.9)
common = {"gamma": 0.9, "seed": args.seed, "device": "cpu"}
if args.algorithm == "PPO":
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=8, learning_rate=1e-3, **common)
elif args.algorithm == "A2C":
    model = A2C("MlpPolicy", env, n_steps=8, learning_rate=2e-3, **common)
else:
    common |= {"learning_rate": 2e-3, "batch_size": 64, "learning_starts": 200, "train_freq": 2}
    common["policy_kwargs"] = {"net_arch": [64, 64]}
    if args.algorithm == "SAC":
        model = SAC("MlpPolicy", env, **common)
    else:
        noise = NormalActionNoise(np.zeros(2), np.full(2, 0.2))
        model = {"TD3": TD3, "DDPG": DDPG}[args.algorithm]("MlpPolicy", env, action_noise=noise, **common)
model.learn(args.steps)

check = make_vec_env(Reach, seed=args.seed + 100)
if args.normalize:
    env.save("statistics.pkl")
    check = VecNormalize.load("statistics.pkl", check)
    check.training, check.norm_reward = False, False
mean, _ = evaluate_policy(model, check, 50)
print("metric return", mean)
