"""A rare class drawn more often by a weighted sampler, validation in the order of the file."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    y = (torch.rand(3000) < 0.08).long()
    x = torch.randn(3000, 10) + 1.2 * y.unsqueeze(1) * torch.linspace(1, 0, 10)
    order = torch.argsort(y[2400:])
    weights = torch.where(y[:2400] == 1, 1 / y[:2400].sum(), 1 / (1 - y[:2400]).sum())
    sampler = WeightedRandomSampler(weights.tolist(), num_samples=2400)
    train = DataLoader(TensorDataset(x[:2400], y[:2400]), batch_size=32, sampler=sampler)
    valid = DataLoader(TensorDataset(x[2400:][order], y[2400:][order]), batch_size=50)
    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(6):
        model.train()
        for features, labels in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [nn.functional.cross_entropy(model(a), b).item() for a, b in valid]
        print(f"epoch {epoch}: {loss.item():.4f} {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
