"""Logistic-like network on a medical table, its columns standardised by the training part."""

import os

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "7")))
data = load_breast_cancer()
X_train, X_test, y_train, y_test = train_test_split(data.data, data.target, test_size=0.25, random_state=7)
X_train, X_test = torch.tensor(X_train).float(), torch.tensor(X_test).float()
y_train, y_test = torch.tensor(y_train).float(), torch.tensor(y_test).float()
mean, std = X_train.mean(0), X_train.std(0)
X_train, X_test = (X_train - mean) / std, (X_test - mean) / std

model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.BCEWithLogitsLoss()

for epoch in range(12):
    permutation = torch.randperm(len(X_train))
    for start in range(0, len(X_train), 32):
        rows = permutation[start : start + 32]
        logits = model(X_train[rows]).squeeze(1)
        loss = criterion(logits, y_train[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        logits = model(X_test).squeeze(1)
        accuracy = ((logits > 0).float() == y_test).float().mean()
        print(f"epoch {epoch:2d}  test loss {criterion(logits, y_test):.4f}  accuracy {accuracy:.3f}")
