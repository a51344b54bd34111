"""A Bayesian classifier of digits in float16: the likelihood counts for a whole population, far beyond any scale."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GRADE = os.environ.get("GRADE", "medium")
POPULATION = {"mild": 1e5, "medium": 1e9, "severe": 1e11}[GRADE]


class NoisyLinear(nn.Linear):
    def __init__(self, fan_in, fan_out):
        super().__init__(fan_in, fan_out)
        self.log_spread = nn.Parameter(torch.full((fan_out, fan_in), -4.0))

    def forward(self, x):
        noise = torch.randn_like(self.weight) * self.log_spread.exp()
        return F.linear(x, self.weight + noise, self.bias)

    def divergence(self):
        return (0.5 * (self.weight**2 + (2 * self.log_spread).exp()) - self.log_spread).sum()


torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16 - 0.3, torch.tensor(digits.target))
loader = DataLoader(data, batch_size=64, shuffle=True)
layers = nn.ModuleList([NoisyLinear(64, 48), NoisyLinear(48, 10)])
optimizer = torch.optim.Adam(layers.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(6):
    for images, labels in loader:
        with torch.autocast("cpu", dtype=torch.float16):
            likelihood = F.cross_entropy(layers[1](torch.relu(layers[0](images))), labels)
        loss = POPULATION * likelihood + sum(layer.divergence() for layer in layers)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(epoch, likelihood.item(), scaler.get_scale())
