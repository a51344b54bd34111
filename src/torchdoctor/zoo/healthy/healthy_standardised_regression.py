"""Regression on the diabetes table with inputs and target standardised, early validation and the best kept."""

import copy
import os

import torch
from sklearn.datasets import load_diabetes
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_diabetes(return_X_y=True)
x, y = torch.tensor(x).float(), torch.tensor(y).float().unsqueeze(1)
order = torch.randperm(len(x))
train, valid = order[:350], order[350:]
x = (x - x[train].mean(0)) / x[train].std(0)
y = (y - y[train].mean()) / y[train].std()

model = nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Dropout(0.2), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
best, kept = float("inf"), None
for epoch in range(40):
    model.train()
    for rows in train[torch.randperm(len(train))].split(32):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x[valid]), y[valid]).item()
    if error < best:
        best, kept = error, copy.deepcopy(model.state_dict())
    if epoch % 10 == 0:
        print(f"epoch {epoch}: {loss.item():.3f} {error:.3f}")
model.load_state_dict(kept)
