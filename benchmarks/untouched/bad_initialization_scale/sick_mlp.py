"""Twenty synthetic classes with a three-layer network and its own initialisation."""

import os

import torch
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
STD = {"mild": 0.25, "medium": 0.8, "severe": 2.5}[os.environ.get("GRADE", "medium")]


class Classifier(nn.Module):
    def __init__(self, d_in, d_hidden, classes):
        super().__init__()
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.fc2 = nn.Linear(d_hidden, d_hidden)
        self.fc3 = nn.Linear(d_hidden, classes)
        self.reset()

    def reset(self):
        for p in self.parameters():
            nn.init.normal_(p, mean=0.0, std=STD)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


X, y = make_classification(
    n_samples=3000,
    n_features=40,
    n_informative=20,
    n_classes=20,
    n_clusters_per_class=1,
    class_sep=2.0,
    random_state=SEED,
)
X = (X - X.mean(0)) / X.std(0)
loader = DataLoader(TensorDataset(torch.tensor(X).float(), torch.tensor(y)), batch_size=100, shuffle=True)
model = Classifier(40, 128, 20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for epoch in range(10):
    losses = []
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} first {losses[0]:.3f} mean {sum(losses) / len(losses):.3f}")
