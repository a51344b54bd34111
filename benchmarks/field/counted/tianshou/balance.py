import argparse

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import A2C, DQN, PPO, QRDQN, Reinforce
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--algorithm", default="dqn")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--epoch-steps", type=int, default=1500)
parser.add_argument("--gamma", type=float, default=0.97)
parser.add_argument("--test-episodes", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--stop", type=float, default=195)
args = parser.parse_args()
np.random.seed(args.seed)
torch.manual_seed(args.seed)


def make(count, seed):
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1", max_episode_steps=200) for _ in range(count)])
    envs.seed(seed)
    return envs


env = gym.make("CartPole-v1")
train_envs, test_envs = make(8, args.seed), make(5, 100 + args.seed)
optim = AdamOptimizerFactory(lr=args.lr)
spaces = {"action_space": env.action_space, "observation_space": env.observation_space}
shape, actions = env.observation_space.shape, env.action_space.n
if args.algorithm in ("dqn", "qrdqn"):
    settings = {"gamma": args.gamma, "n_step_return_horizon": 3, "target_update_freq": 100, "optim": optim}
    exploration = {"eps_training": 0.1, "eps_inference": 0.0}
    if args.algorithm == "dqn":
        net = Net(state_shape=shape, action_shape=actions, hidden_sizes=[64, 64])
        policy = DiscreteQLearningPolicy(model=net, **exploration, **spaces)
        algorithm = DQN(policy=policy, **settings)
    else:
        net = Net(state_shape=shape, action_shape=actions, hidden_sizes=[64, 64], softmax=False, num_atoms=21)
        policy = QRDQNPolicy(model=net, **exploration, **spaces)
        algorithm = QRDQN(policy=policy, num_quantiles=21, **settings)
else:
    actor = DiscreteActor(
        preprocess_net=Net(state_shape=shape, hidden_sizes=[64, 64]), action_shape=actions, softmax_output=False
    )
    policy = DiscreteActorPolicy(actor=actor, deterministic_eval=True, **spaces)
    critic = DiscreteCritic(preprocess_net=Net(state_shape=shape, hidden_sizes=[64, 64]))
    if args.algorithm == "ppo":
        algorithm = PPO(policy=policy, critic=critic, optim=optim, gamma=args.gamma, max_grad_norm=0.5)
    elif args.algorithm == "a2c":
        algorithm = A2C(policy=policy, critic=critic, optim=optim, gamma=args.gamma, max_grad_norm=0.5)
    else:
        algorithm = Reinforce(policy=policy, optim=optim, gamma=args.gamma, return_standardization=True)

train_collector = Collector(algorithm, train_envs, VectorReplayBuffer(20000, 8), exploration_noise=True)
test_collector = Collector(algorithm, test_envs)
common = {
    "training_collector": train_collector,
    "test_collector": test_collector,
    "max_epochs": args.epochs,
    "epoch_num_steps": args.epoch_steps,
    "test_step_num_episodes": args.test_episodes,
    "batch_size": args.batch_size,
    "stop_fn": lambda mean: mean >= args.stop,
    "show_progress": False,
}
if args.algorithm in ("dqn", "qrdqn"):
    train_collector.reset()
    train_collector.collect(n_step=512, random=True)
    algorithm.run_training(
        OffPolicyTrainerParams(
            **common, collection_step_num_env_steps=8, update_step_num_gradient_steps_per_sample=0.25
        )
    )
elif args.algorithm == "reinforce":
    algorithm.run_training(
        OnPolicyTrainerParams(**common, collection_step_num_env_steps=None, collection_step_num_episodes=8)
    )
else:
    algorithm.run_training(
        OnPolicyTrainerParams(
            **common,
            collection_step_num_env_steps=512 if args.algorithm == "ppo" else 128,
            update_step_num_repetitions=6 if args.algorithm == "ppo" else 1,
        )
    )
test_collector.reset()
print("metric return", test_collector.collect(n_episode=20).returns.mean())
