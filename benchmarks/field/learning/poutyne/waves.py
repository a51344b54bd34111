import argparse

import torch
from poutyne import ModelBundle, set_seeds
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
set_seeds(args.seed)


def waves(count):
    label = torch.randint(0, 3, (count,))
    period = torch.tensor([5.0, 8.0, 13.0])[label]
    phase = 2 * torch.pi * torch.rand(count, 1)
    signal = torch.sin(2 * torch.pi * torch.arange(26) / period[:, None] + phase) + 0.3 * torch.randn(count, 26)
    return TensorDataset(signal[:, None], label)


network = nn.Sequential(
    nn.Conv1d(1, 16, 5),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Conv1d(16, 16, 5),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(16, 3),
)
bundle = ModelBundle.from_network("waves", network, optimizer="adam", task="classif")
bundle.train(DataLoader(waves(1500), batch_size=32, shuffle=True), DataLoader(waves(300), batch_size=300), epochs=10)
result = bundle.test(DataLoader(waves(600), batch_size=300))
print("\nmetric accuracy", result["test_acc"])
