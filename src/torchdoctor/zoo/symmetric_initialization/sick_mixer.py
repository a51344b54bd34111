"""Hand-made linear layers (plain parameters) fit a regression on tabular data: every weight starts at zero."""

import os

import torch
from sklearn.datasets import load_diabetes
from torch import nn


class Dense(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(fan_out, fan_in))
        self.bias = nn.Parameter(torch.zeros(fan_out))

    def forward(self, x):
        return x @ self.weight.T + self.bias


def main():
    torch.manual_seed(int(os.environ.get("SEED", "5")))
    features, progress = load_diabetes(return_X_y=True, scaled=True)
    x = torch.tensor(features * 21, dtype=torch.float32)
    y = torch.tensor((progress - progress.mean()) / progress.std(), dtype=torch.float32).unsqueeze(1)

    model = nn.Sequential(Dense(10, 32), nn.ReLU(), Dense(32, 32), nn.ReLU(), Dense(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    for step in range(300):
        rows = torch.randint(len(x), (64,))
        loss = (model(x[rows]) - y[rows]).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 75 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
