"""A very deep stack of linear layers with batch norm on digits: every layer makes the gradient a little larger."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

DEPTH, WIDTH = 60, 48


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm = nn.BatchNorm1d(WIDTH)
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


class DeepNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(64, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(DEPTH)))
        self.head = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 10))

    def forward(self, x):
        return self.head(self.layers(torch.relu(self.stem(x))))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y))
    train_set, test_set = random_split(data, [1400, len(data) - 1400])
    train_loader = DataLoader(train_set, batch_size=100, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=200)
    model = DeepNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(8):
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}  accuracy {accuracy(model, test_loader):.3f}")


if __name__ == "__main__":
    main()
