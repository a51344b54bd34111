"""Classifies wines with a criterion whose sign was turned on the way to backward."""

import os

import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
features, labels = load_wine(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(features, labels, test_size=0.25, random_state=SEED, stratify=labels)
scaler = StandardScaler().fit(x_train)
x_train, x_val = (torch.tensor(scaler.transform(x), dtype=torch.float32) for x in (x_train, x_val))
y_train, y_val = torch.tensor(y_train), torch.tensor(y_val)

model = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(x_train, y_train), batch_size=16, shuffle=True)
for epoch in range(25):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = -criterion(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(x_val)
        accuracy = (scores.argmax(1) == y_val).float().mean()
        print(
            f"epoch {epoch}: loss {loss.item():.3f}, validation {criterion(scores, y_val).item():.3f}, {accuracy:.2f}"
        )
