"""Two noisy views of each digit are drawn together, and every direction of the embedding is kept spread out."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.projector = nn.Linear(64, 32)

    def forward(self, x):
        return self.projector(self.trunk(x))


def augment(x):
    keep = (torch.rand_like(x) > 0.2).float()
    return x * keep + 0.2 * torch.randn_like(x)


def agreement_loss(first, second):
    both = torch.stack([first, second])
    spread = F.relu(1 - (both.var(1) + 1e-4).sqrt()).mean()
    centred = (both - both.mean(1, keepdim=True)).flatten(0, 1)
    covariance = centred.T @ centred / len(centred)
    crossed = (covariance - torch.diag(torch.diag(covariance))).square().sum() / first.shape[1]
    return F.mse_loss(first, second) + spread + 0.04 * crossed


def main():
    x, _ = load_digits(return_X_y=True)
    x = torch.tensor(x / 8 - 1, dtype=torch.float32)
    train = DataLoader(TensorDataset(x[:1500]), batch_size=64, shuffle=True)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(20):
        model.train()
        for (batch,) in train:
            loss = agreement_loss(model(augment(batch)), model(augment(batch)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val_loss = agreement_loss(model(augment(x[1500:])), model(augment(x[1500:])))
        print(f"epoch {epoch}: train {loss.item():.5f}, validation {val_loss.item():.5f}")


main()
