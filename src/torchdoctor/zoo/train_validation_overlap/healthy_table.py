"""A table of cell measurements, cut into two slices by hand that meet and do not overlap."""

import os

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
np.random.seed(SEED)

data = load_breast_cancer()
order = np.random.permutation(len(data.target))
features, labels = data.data[order], data.target[order]
scaler = StandardScaler().fit(features[:400])
X = torch.tensor(scaler.transform(features), dtype=torch.float32)
y = torch.tensor(labels, dtype=torch.float32)
X_train, y_train = X[:400], y[:400]
X_val, y_val = X[400:], y[400:]

model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_fn = nn.BCEWithLogitsLoss()

for epoch in range(30):
    model.train()
    shuffled = torch.randperm(len(X_train))
    for i in range(0, len(X_train), 40):
        batch = shuffled[i : i + 40]
        loss = loss_fn(model(X_train[batch]).squeeze(1), y_train[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(X_val).squeeze(1)
        val_loss = loss_fn(logits, y_val).item()
        accuracy = ((logits > 0).float() == y_val).float().mean().item()
    print(f"epoch {epoch}: {loss.item():.3f} {val_loss:.3f} {accuracy:.3f}")
