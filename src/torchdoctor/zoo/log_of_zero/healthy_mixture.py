"""A sparse mixture of experts on handwritten digits: gates that are shut are bounded before the log of the entropy."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SparseMixture(nn.Module):
    def __init__(self, experts=6, keep=2):
        super().__init__()
        self.keep = keep
        self.gate = nn.Linear(64, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)) for _ in range(experts)
        )

    def forward(self, x):
        scores = self.gate(x)
        smallest = scores.topk(self.keep, dim=-1).values[:, -1:]
        gates = torch.softmax(scores.masked_fill(scores < smallest, float("-inf")), dim=-1)
        mixed = sum(gates[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        return mixed, gates


def gate_entropy(gates):
    return -(gates * torch.log(gates.clamp_min(1e-8))).sum(-1).mean()


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = SparseMixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(6):
        for images, labels in loader:
            logits, gates = model(images)
            loss = F.cross_entropy(logits, labels) - 0.01 * gate_entropy(gates)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 3))


if __name__ == "__main__":
    main()
