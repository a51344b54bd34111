"""Digits with pixels from 0 to 16 as they come, a simple network, Adam, and no trouble."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
train, test = torch.utils.data.random_split(data, [1437, 360])
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(6):
    model.train()
    for inputs, labels in DataLoader(train, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        outputs = [(model(a).argmax(1) == b).float().mean().item() for a, b in DataLoader(test, batch_size=360)]
    print(f"epoch {epoch}: {loss.item():.4f} {outputs[0]:.3f}")
