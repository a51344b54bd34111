"""A convolutional classifier of digits ends in a ReLU: every block has one, the last included."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Block(nn.Module):
    def __init__(self, layer, activation=True):
        super().__init__()
        self.layer = layer
        self.activation = nn.ReLU() if activation else nn.Identity()

    def forward(self, x):
        return self.activation(self.layer(x))


model = nn.Sequential(
    Block(nn.Conv2d(1, 12, 3, padding=1)),
    nn.MaxPool2d(2),
    Block(nn.Conv2d(12, 24, 3, padding=1)),
    nn.Flatten(),
    Block(nn.Linear(24 * 16, 64)),
    Block(nn.Linear(64, 10)),
)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1), torch.tensor(digits.target))
train_set, val_set = random_split(data, [1400, 397])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=256)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for epoch in range(6):
    model.train()
    for images, labels in train_loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in val_loader)
    print(f"epoch {epoch}: loss {loss.item():.3f}, validation accuracy {right / len(val_set):.3f}")
