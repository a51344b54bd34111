"""Tells three kinds of wine apart by cross-entropy over three scores."""

import os

import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
data = load_wine()
x_train, x_test, y_train, y_test = train_test_split(
    StandardScaler().fit_transform(data.data), data.target, test_size=0.3, random_state=SEED, stratify=data.target
)
x_train, x_test = torch.tensor(x_train, dtype=torch.float32), torch.tensor(x_test, dtype=torch.float32)
y_train, y_test = torch.tensor(y_train), torch.tensor(y_test)

model = nn.Sequential(nn.Linear(13, 24), nn.ReLU(), nn.Linear(24, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(40):
    order = torch.randperm(len(x_train))
    for rows in order.split(25):
        optimizer.zero_grad()
        output = model(x_train[rows])
        loss = criterion(output, y_train[rows])
        loss.backward()
        optimizer.step()
    if epoch % 10 == 9:
        with torch.no_grad():
            right = (model(x_test).argmax(1) == y_test).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right:.3f}")
