"""Fraud detection on tabular transactions."""

import os

import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
FRAUD = {"mild": 0.10, "medium": 0.03, "severe": 0.008}[os.environ.get("GRADE", "medium")]

X, y = make_classification(
    n_samples=6000,
    n_features=12,
    n_informative=5,
    n_redundant=2,
    weights=[1 - FRAUD],
    class_sep=0.6,
    flip_y=0.0,
    n_clusters_per_class=2,
    random_state=SEED,
)
X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.25, stratify=y, random_state=SEED)
as_set = lambda a, b: TensorDataset(torch.tensor(a).float(), torch.tensor(b).float())  # noqa: E731
train_loader = DataLoader(as_set(X_train, y_train), batch_size=128, shuffle=True)
val_loader = DataLoader(as_set(X_val, y_val), batch_size=500)


class Detector(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


model = Detector(12)
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(10):
    model.train()
    for x, t in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), t)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = count = found = 0
    with torch.no_grad():
        for x, t in val_loader:
            pred = (model(x) > 0).float()
            correct += (pred == t).sum().item()
            found += pred.sum().item()
            count += len(t)
    print(f"epoch {epoch}: loss {loss.item():.4f}, validation accuracy {correct / count:.4f}, flagged {found:.0f}")
