import argparse

from stable_baselines3 import A2C, DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import IdentityEnv, IdentityEnvMultiDiscrete
from stable_baselines3.common.evaluation import evaluate_policy

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--algorithm", choices=["A2C", "DQN"], default="DQN")
parser.add_argument("--starts", type=int, default=200)
args = parser.parse_args()

if args.algorithm == "DQN":
    env = make_vec_env(lambda: IdentityEnv(dim=8), seed=args.seed)
    model = DQN(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        learning_starts=args.starts,
        buffer_size=5000,
        target_update_interval=250,
        exploration_fraction=0.3,
        gamma=0.5,
        seed=args.seed,
        device="cpu",
    )
    model.learn(5000)
else:
    env = make_vec_env(lambda: IdentityEnvMultiDiscrete(dim=5), n_envs=8, seed=args.seed)
    model = A2C("MlpPolicy", env, learning_rate=2e-3, gamma=0.5, seed=args.seed, device="cpu")
    model.learn(16000)
mean, _ = evaluate_policy(model, env, 10)
print("metric return", mean)
