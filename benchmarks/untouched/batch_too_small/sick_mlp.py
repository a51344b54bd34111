"""Noisy classification with single-sample updates."""

import os

import torch
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
BATCH = {"mild": 4, "medium": 1, "severe": 1}[os.environ.get("GRADE", "medium")]
LR = {"mild": 0.1, "medium": 0.1, "severe": 0.2}[os.environ.get("GRADE", "medium")]

X, y = make_classification(
    2600,
    n_features=20,
    n_informative=8,
    n_classes=4,
    n_clusters_per_class=1,
    class_sep=0.7,
    flip_y=0.0,
    random_state=SEED,
)
X = torch.tensor((X - X.mean(0)) / X.std(0)).float()
y = torch.tensor(y)
train = DataLoader(TensorDataset(X[:2000], y[:2000]), batch_size=BATCH, shuffle=True)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.SGD(model.parameters(), lr=LR)
for epoch in range(3):
    model.train()
    running = 0.0
    for xb, yb in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        running = 0.98 * running + 0.02 * loss.item()
    model.eval()
    with torch.no_grad():
        out = model(X[2000:])
        val = nn.functional.cross_entropy(out, y[2000:]).item()
    print(f"epoch {epoch} running {running:.3f} val {val:.3f} acc {(out.argmax(1) == y[2000:]).float().mean():.3f}")
