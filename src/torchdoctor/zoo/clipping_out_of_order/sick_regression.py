"""A regression on housing-like data that clips a generator of parameters which the optimizer has used up."""

import os

import torch
from sklearn.datasets import make_regression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
x, y = make_regression(800, 12, noise=8.0, random_state=SEED)
x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
y = (y - y.mean()) / y.std()
loader = DataLoader(TensorDataset(x[:640], y[:640]), batch_size=32, shuffle=True)

model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
parameters = model.parameters()
optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
for epoch in range(8):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 5.0)
        optimizer.step()
    with torch.no_grad():
        validation = nn.functional.mse_loss(model(x[640:]).squeeze(1), y[640:]).item()
    print(f"epoch {epoch}: train {loss.item():.4f}, validation {validation:.4f}")
