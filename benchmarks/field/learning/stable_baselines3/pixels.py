import argparse

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


class Quarter(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
        self.action_space = gym.spaces.Discrete(4)

    def picture(self):
        self.place = int(self.np_random.integers(4))
        image = self.np_random.integers(0, 90, (36, 36, 1))
        row, column = divmod(self.place, 2)
        image[18 * row + 5 : 18 * row + 13, 18 * column + 5 : 18 * column + 13] += 150
        return image.astype(np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.picture(), {}

    def step(self, action):
        reward = float(action == self.place)
        self.time += 1
        return self.picture(), reward, False, self.time >= 20, {}


env = make_vec_env(Quarter, n_envs=4, seed=args.seed)
model = PPO(
    "CnnPolicy", env, n_steps=64, batch_size=64, n_epochs=4, learning_rate=1e-3, gamma=0.5, seed=args.seed, device="cpu"
)
model.learn(4096)
mean, _ = evaluate_policy(model, make_vec_env(Quarter, seed=args.seed + 100), 20)
print("metric return", mean)
