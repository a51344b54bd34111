import argparse

from stable_baselines3 import DQN, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.evaluation import evaluate_policy

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

env = make_vec_env(lambda: BitFlippingEnv(n_bits=6, continuous=False, max_steps=6), seed=args.seed)
model = DQN(
    "MultiInputPolicy",
    env,
    replay_buffer_class=HerReplayBuffer,
    replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
    learning_rate=1e-3,
    learning_starts=300,
    train_freq=2,
    batch_size=128,
    buffer_size=20000,
    target_update_interval=200,
    exploration_fraction=0.5,
    gamma=0.95,
    seed=args.seed,
    device="cpu",
)
model.learn(5000)
mean, _ = evaluate_policy(model, env, 100)
print("metric return", mean)
