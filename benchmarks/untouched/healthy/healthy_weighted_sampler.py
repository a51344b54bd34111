"""Rare defects with a weighted sampler and balanced accuracy."""

import os

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
X, y = make_classification(
    6000,
    n_features=12,
    n_informative=6,
    weights=[0.93],
    class_sep=1.3,
    flip_y=0.0,
    n_clusters_per_class=1,
    random_state=SEED,
)
X = (X - X.mean(0)) / X.std(0)
a, b, ya, yb = train_test_split(X, y, test_size=0.3, stratify=y, random_state=SEED)
weights = 1.0 / np.bincount(ya)[ya]
sampler = WeightedRandomSampler(torch.tensor(weights), num_samples=len(ya), replacement=True)
train = DataLoader(TensorDataset(torch.tensor(a).float(), torch.tensor(ya)), batch_size=64, sampler=sampler)
xv = torch.tensor(b).float()
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
for epoch in range(8):
    model.train()
    for x, t in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), t)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        pred = model(xv).argmax(1).numpy()
    print(f"epoch {epoch} loss {loss.item():.4f} balanced accuracy {balanced_accuracy_score(yb, pred):.3f}")
