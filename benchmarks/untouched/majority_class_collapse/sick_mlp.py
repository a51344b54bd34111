"""Three risk levels with class weights."""

import os

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
POWER = {"mild": 4, "medium": 14, "severe": 22}[os.environ.get("GRADE", "medium")]

X, y = make_classification(
    3000,
    n_features=10,
    n_informative=5,
    n_classes=3,
    weights=[0.45, 0.3, 0.25],
    n_clusters_per_class=1,
    class_sep=0.4,
    random_state=SEED,
)
X = (X - X.mean(0)) / X.std(0)
a, b, ya, yb = train_test_split(X, y, test_size=0.3, stratify=y, random_state=SEED)
share = np.bincount(ya) / len(ya)
weights = share**POWER / (share**POWER).mean()
train = TensorDataset(torch.tensor(a).float(), torch.tensor(ya))
xv, yv = torch.tensor(b).float(), torch.tensor(yb)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
criterion = nn.CrossEntropyLoss(weight=torch.tensor(weights).float())
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(12):
    model.train()
    for x, t in DataLoader(train, batch_size=64, shuffle=True):
        opt.zero_grad()
        loss = criterion(model(x), t)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        pred = model(xv).argmax(1)
    acc, counts = (pred == yv).float().mean(), torch.bincount(pred, minlength=3).tolist()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f} predicted {counts}")
