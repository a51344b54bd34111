"""Diabetes progression with a wide network."""

import os

import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
WIDTH = {"mild": 32, "medium": 256, "severe": 512}[os.environ.get("GRADE", "medium")]

X, y = load_diabetes(return_X_y=True)
X_tr, X_va, y_tr, y_va = train_test_split(X, y, test_size=0.35, random_state=SEED)
m, s, ym, ys = X_tr.mean(0), X_tr.std(0), y_tr.mean(), y_tr.std()
prep = lambda a, b: TensorDataset(torch.tensor((a - m) / s).float(), torch.tensor((b - ym) / ys).float())  # noqa: E731
train, val = prep(X_tr, y_tr), prep(X_va, y_va)
model = nn.Sequential(nn.Linear(10, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.MSELoss()
for epoch in range(60):
    model.train()
    total = 0.0
    for x, t in DataLoader(train, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = loss_fn(model(x).squeeze(1), t)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(t)
    model.eval()
    with torch.no_grad():
        x, t = val.tensors
        v = loss_fn(model(x).squeeze(1), t).item()
    if epoch % 6 == 5:
        print(f"epoch {epoch + 1} train {total / len(train):.4f} val {v:.4f}")
