"""A metric object counts hits over a pass and is divided by the set, but never reset."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = int(os.environ.get("SEED", "0"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(108, 10))

    def forward(self, x):
        return self.net(x)


class Accuracy:
    def __init__(self, samples):
        self.right, self.samples = 0, samples

    def update(self, logits, labels):
        self.right += int((logits.argmax(1) == labels).sum())

    def compute(self):
        return self.right / self.samples


def main():
    torch.manual_seed(SEED)
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x / 8 - 1, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y))
    train, val = random_split(data, [1397, 400])
    train_loader = DataLoader(train, batch_size=32, shuffle=True)
    val_loader = DataLoader(val, batch_size=40)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    metric = Accuracy(len(val))
    for epoch in range(5):
        for x, y in train_loader:
            loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses = []
        model.eval()
        with torch.no_grad():
            for x, y in val_loader:
                logits = model(x)
                losses.append(loss_fn(logits, y).item())
                metric.update(logits, y)
        model.train()
        print(f"[{epoch}] val loss {sum(losses) / len(losses):.3f} | val acc {100 * metric.compute():.1f}%")


if __name__ == "__main__":
    main()
