"""A convolutional network on digits with a little dropout."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
DROP = 0.2


class Net(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Dropout2d(drop), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.drop(self.features(x).flatten(1)))


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    output = model(x)
    model.train()
    return nn.functional.cross_entropy(output, y).item(), (output.argmax(1) == y).float().mean().item()


torch.manual_seed(SEED)
digits = load_digits()
images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
order = torch.randperm(len(images))
train, val = order[:1400], order[1400:]
model = Net(DROP)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    for rows in train[torch.randperm(len(train))].split(32):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(
        epoch,
        f"{loss.item():.3f}",
        "validation {:.3f}, accuracy {:.3f}".format(*evaluate(model, images[val], labels[val])),
    )
