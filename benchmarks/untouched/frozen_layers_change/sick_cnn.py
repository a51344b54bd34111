"""Fine-tuning a digit CNN on inverted pictures with a frozen backbone."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

d = load_digits()
x, y = torch.tensor(d.images).float()[:, None] / 16, torch.tensor(d.target)
perm = torch.randperm(len(x))
x, y = x[perm], y[perm]
source, target, test = slice(0, 1000), slice(1000, 1400), slice(1400, None)

backbone = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
)
head = nn.Linear(128, 10)
model = nn.Sequential(backbone, head)


def train(images, labels, params, epochs, lr):
    optimizer = torch.optim.Adam(params, lr=lr)
    for _ in range(epochs):
        model.train()
        for idx in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[idx]), labels[idx])
            loss.backward()
            optimizer.step()
    return loss.item()


def score(images, labels):
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


print("pretraining", train(x[source], y[source], model.parameters(), 6, 3e-3), score(x[test], y[test]))

for p in backbone.parameters():
    p.requires_grad_(False)
darker = 1.0 - 0.7 * x
model[1] = nn.Linear(128, 10)
print("fine-tuning", train(darker[target], y[target], model[1].parameters(), 12, 3e-3))
print("new task", score(darker[test], y[test]), "old task", score(x[test], y[test]))
