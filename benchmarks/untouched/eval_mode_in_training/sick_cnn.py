"""CNN with dropout and batch norm, validated after each epoch."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(int(os.environ.get("SEED", "0")))

digits = load_digits()
data = TensorDataset(torch.tensor(digits.images).float().unsqueeze(1) / 16, torch.tensor(digits.target))
train_set, val_set = random_split(data, [1400, 397])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=200)

net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Dropout2d(0.2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Dropout(0.4),
    nn.Linear(512, 10),
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()


def validate():
    net.eval()
    loss = hits = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            out = net(x)
            loss += criterion(out, y).item() * len(y)
            hits += (out.argmax(1) == y).sum().item()
    return loss / len(val_set), hits / len(val_set)


net.train()
print("before training: loss {:.3f} acc {:.3f}".format(*validate()))
for epoch in range(7):
    running = 0.0
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        running += loss.item() * len(y)
    print(epoch, f"train {running / len(train_set):.4f}", "val {:.4f} acc {:.3f}".format(*validate()))
