"""Predicts disease progression from ten measurements: predictions and targets have the same shape."""

import os

import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
table, progress = load_diabetes(return_X_y=True)
x = torch.tensor(table * 21, dtype=torch.float32)
y = torch.tensor((progress - progress.mean()) / progress.std(), dtype=torch.float32)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.MSELoss()
for epoch in range(15):
    errors = []
    for features, target in loader:
        prediction = model(features).squeeze(1)
        loss = criterion(prediction, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(loss.item())
    print(f"epoch {epoch} mse {sum(errors) / len(errors):.3f}")
