import argparse

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm.imitation.imitation_base import ImitationPolicy, OfflineImitationLearning
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, ReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OfflineTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--task", default="Acrobot-v1")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()
np.random.seed(args.seed)
torch.manual_seed(args.seed)


def expert(state):
    if args.task == "Acrobot-v1":
        return 2 if state[5] > 0 else 0
    return 2 if state[1] > 0 else 0


env = gym.make(args.task, max_episode_steps=300)
buffer = ReplayBuffer(6000)
state, _ = env.reset(seed=args.seed)
for _ in range(6000):
    action = expert(state)
    after, reward, terminated, truncated, info = env.step(action)
    step = {"obs": state, "act": action, "rew": reward, "terminated": terminated, "truncated": truncated}
    buffer.add(Batch(obs_next=after, info={}, **step))
    state = env.reset()[0] if terminated or truncated else after

envs = DummyVectorEnv([lambda: gym.make(args.task, max_episode_steps=300) for _ in range(5)])
envs.seed(100 + args.seed)
net = Net(state_shape=env.observation_space.shape, hidden_sizes=[64])
actor = DiscreteActor(preprocess_net=net, action_shape=env.action_space.n, softmax_output=False)
policy = ImitationPolicy(actor=actor, action_space=env.action_space, observation_space=env.observation_space)
algorithm = OfflineImitationLearning(policy=policy, optim=AdamOptimizerFactory(lr=args.lr))
collector = Collector(algorithm, envs)
algorithm.run_training(
    OfflineTrainerParams(
        buffer=buffer,
        test_collector=collector,
        max_epochs=args.epochs,
        epoch_num_steps=500,
        test_step_num_episodes=5,
        batch_size=args.batch_size,
        show_progress=False,
    )
)
collector.reset()
print("metric return", collector.collect(n_episode=10).returns.mean())
