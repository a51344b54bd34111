"""Binary predictions and labels are compared in one shape."""

import logging
import os

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("train")
SEED = int(os.environ.get("SEED", "0"))


class Classifier(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Dropout(0.1))
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(self.body(x))


def accuracy(logits, labels):
    predicted = (torch.sigmoid(logits) > 0.5).long()
    return (predicted == labels).float().mean().item()


def run():
    torch.manual_seed(SEED)
    x, y = load_breast_cancer(return_X_y=True)
    order = torch.randperm(len(x))
    x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)[order]
    y = torch.tensor(y)[order]
    model = Classifier(x.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(10):
        model.train()
        for rows in torch.randperm(400).split(25):
            optimizer.zero_grad()
            loss = criterion(model(x[rows]), y[rows].float().unsqueeze(1))
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits, labels = model(x[400:]), y[400:]
            val_loss = criterion(logits, labels.float().unsqueeze(1)).item()
        log.info("epoch %d: validation loss %.3f, accuracy %.3f", epoch, val_loss, accuracy(logits.squeeze(1), labels))


run()
