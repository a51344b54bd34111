"""A digit CNN with a backbone and a head."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
GRADE = os.environ.get("GRADE", "medium")


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.features(x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


model = Classifier()
if GRADE == "mild":
    set_trainable(model.backbone.features[0], False)
    set_trainable(model.backbone.features[3], False)
elif GRADE == "medium":
    set_trainable(model.backbone, False)
else:
    set_trainable(model, False)
    model.head.bias.requires_grad = True

d = load_digits()
x, y = torch.tensor(d.images).float().unsqueeze(1) / 16, torch.tensor(d.target)
p = torch.randperm(len(x))
train = DataLoader(TensorDataset(x[p[:1400]], y[p[:1400]]), batch_size=64, shuffle=True)
val = DataLoader(TensorDataset(x[p[1400:]], y[p[1400:]]), batch_size=200)
optimizer = torch.optim.Adam([q for q in model.parameters() if q.requires_grad], lr=3e-3)
for epoch in range(8):
    model.train()
    for xb, yb in train:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        acc = sum((model(xb).argmax(1) == yb).sum().item() for xb, yb in val) / 397
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f}")
