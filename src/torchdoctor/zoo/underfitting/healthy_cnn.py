"""A convolutional network on digits that is trained until its loss is low; nothing is held out."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

STEPS = 900


def draw(images, labels, size=64):
    chosen = torch.randint(0, len(images), (size,))
    return images[chosen], labels[chosen]


torch.manual_seed(int(os.environ.get("SEED", "0")))
digits = load_digits()
images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(512, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.5)
for step in range(STEPS):
    batch, wanted = draw(images, labels)
    loss = F.cross_entropy(net(batch), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
