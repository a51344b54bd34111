"""Ten noisy prototypes, classified by a small network."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))
EPOCHS = {"mild": 5, "medium": 2, "severe": 1}[os.environ.get("GRADE", "medium")]

images = torch.randn(10, 20)


def draw(n):
    label = torch.randint(0, 10, (n,))
    return images[label] + 1.2 * torch.randn(n, 20), label


train = DataLoader(TensorDataset(*draw(3000)), batch_size=50, shuffle=True)
xv, yv = draw(1000)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.SGD(model.parameters(), lr=0.02)
ce = nn.CrossEntropyLoss()
for epoch in range(EPOCHS):
    for step, (x, y) in enumerate(train):
        model.train()
        opt.zero_grad()
        loss = ce(model(x), y)
        loss.backward()
        opt.step()
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                out = model(xv)
            acc = (out.argmax(1) == yv).float().mean().item()
            print(f"{epoch}.{step + 1} train {loss.item():.3f} val {ce(out, yv).item():.3f} acc {acc:.3f}")
